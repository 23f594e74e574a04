"""Events out of streams: each whole, byte by byte, cut anywhere, and with the beginning of more behind it."""

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.events import ACK, HEARTBEAT, METHOD, PROTOCOL_HEADER, PUBLISH
from posthouse.protocols.amqp.codec.framing import PROTOCOL
from tests.protocols.amqp.codec.amqp_cases import (
    content_body,
    content_header,
    described,
    method,
    opened,
    outcome,
    publish,
    raw,
)

PROPERTIES = b"\x90\x00\x04text\x02"
TAG = 0x0102030405060708
QOS = commands.Basic.Qos(prefetch_count=7, global_=True)
BODY = bytes(range(200))

CASES: dict[str, tuple[bytes, list[Any]]] = {
    "publish": (
        publish(b"hello", PROPERTIES, exchange="ex", key="key"),
        [(PUBLISH, 1, b"ex", b"key", 0, PROPERTIES, b"hello")],
    ),
    "publish to the default exchange": (publish(b"x"), [(PUBLISH, 1, b"", b"", 0, b"\0\0", b"x")]),
    "mandatory": (publish(b"x", mandatory=True), [(PUBLISH, 1, b"", b"", 1, b"\0\0", b"x")]),
    "empty body": (publish(b"", PROPERTIES, key="k"), [(PUBLISH, 1, b"", b"k", 0, PROPERTIES, b"")]),
    "longest names": (
        publish(b"x", exchange="e" * 127, key="k" * 255, channel=65535),
        [(PUBLISH, 65535, b"e" * 127, b"k" * 255, 0, b"\0\0", b"x")],
    ),
    "body in three frames": (publish(BODY, cuts=(1, 70)), [(PUBLISH, 1, b"", b"", 0, b"\0\0", BODY)]),
    "empty body frames": (
        publish(b"ab", cuts=(1,))[:-9] + content_body(b"") * 3 + content_body(b"b"),
        [(PUBLISH, 1, b"", b"", 0, b"\0\0", b"ab")],
    ),
    "body that looks like a frame": (
        publish(publish(b"x")) + publish(b"y"),
        [(PUBLISH, 1, b"", b"", 0, b"\0\0", publish(b"x")), (PUBLISH, 1, b"", b"", 0, b"\0\0", b"y")],
    ),
    "two channels interleaved": (
        publish(b"ab", channel=1)[:-10]
        + publish(b"cd", channel=2, cuts=(1,))[:-9]
        + content_body(b"ab", 1)
        + encode.ack(3, 9, True)
        + content_body(b"d", 2),
        [
            (PUBLISH, 1, b"", b"", 0, b"\0\0", b"ab"),
            (ACK, 3, 9, True),
            (PUBLISH, 2, b"", b"", 0, b"\0\0", b"cd"),
        ],
    ),
    "acks": (
        encode.ack(1, TAG, False) + encode.ack(2, (1 << 64) - 1, True),
        [(ACK, 1, TAG, False), (ACK, 2, (1 << 64) - 1, True)],
    ),
    "heartbeat": (encode.HEARTBEAT, [(HEARTBEAT, 0)]),
    "method": (method(QOS, 3), [(METHOD, 3, *described(QOS))]),
    "method without arguments": (
        method(commands.Channel.CloseOk(), 9),
        [(METHOD, 9, *described(commands.Channel.CloseOk()))],
    ),
    "everything in a row": (
        publish(b"a") + method(QOS) + encode.HEARTBEAT + encode.ack(1, 1, False) + publish(b"b", cuts=()) * 2,
        [
            (PUBLISH, 1, b"", b"", 0, b"\0\0", b"a"),
            (METHOD, 1, *described(QOS)),
            (HEARTBEAT, 0),
            (ACK, 1, 1, False),
            (PUBLISH, 1, b"", b"", 0, b"\0\0", b"b"),
            (PUBLISH, 1, b"", b"", 0, b"\0\0", b"b"),
        ],
    ),
}

cases = pytest.mark.parametrize(("data", "expected"), list(CASES.values()), ids=list(CASES))


@cases
def test_whole(data: bytes, expected: list[Any]) -> None:
    assert outcome(opened(), [data]) == (expected, 0)


@cases
def test_byte_by_byte(data: bytes, expected: list[Any]) -> None:
    assert outcome(opened(), [data[at : at + 1] for at in range(len(data))]) == (expected, 0)


@cases
@pytest.mark.parametrize(
    "trailing", [publish(b"next")[:size] for size in (1, 7, 8, 13, 14, 22, 40, 50)], ids=len
)
def test_with_trailing_data(data: bytes, expected: list[Any], trailing: bytes) -> None:
    decoder = opened()
    assert outcome(decoder, [data + trailing]) == (expected, 0)
    following = [(PUBLISH, 1, b"", b"", 0, b"\0\0", b"next")]
    assert outcome(decoder, [publish(b"next")[len(trailing) :]]) == (following, 0)


@cases
def test_cut_anywhere(data: bytes, expected: list[Any]) -> None:
    for at in range(len(data)):
        assert outcome(opened(), [data[:at], b"", data[at:]]) == (expected, 0)


def test_frames_may_be_as_large_as_agreed() -> None:
    """RabbitMQ leaves room for clients that do not count what is around the payload."""
    decoder = opened(frame_max=4096)
    (event,) = decoder.feed(publish(bytes(4096)))
    assert event == (PUBLISH, 1, b"", b"", 0, b"\0\0", bytes(4096))
    decoder.frame_max = 5000
    (event,) = decoder.feed(publish(bytes(5000)))
    assert event[-1] == bytes(5000)


def test_secrets_may_be_any_bytes() -> None:
    payload = b"\0\x0a\0\x0b" + bytes(4) + b"\x08EXTERNAL" + b"\0\0\0\x02\xff\xfe" + b"\x05en_US"
    ((_, _, command),) = opened().feed(raw(1, 0, payload))  # type: ignore[misc]
    assert isinstance(command, commands.Connection.StartOk)
    assert described(command)[1]["response"] == b"\xff\xfe"
    assert (command.mechanism, command.locale) == ("EXTERNAL", "en_US")


class TestProtocolHeader:
    def test_is_the_first_event(self) -> None:
        decoder = Decoder(frame_max=4096)
        assert decoder.feed(PROTOCOL[:7]) == []
        assert decoder.feed(PROTOCOL[7:] + encode.HEARTBEAT) == [
            (PROTOCOL_HEADER, 0, PROTOCOL),
            (HEARTBEAT, 0),
        ]

    @pytest.mark.parametrize(
        "begin",
        [b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"GET / HT", b"\x16\x03\x01\x02\x00\x01\x00\x01"],
    )
    def test_of_something_else_ends_the_decoding(self, begin: bytes) -> None:
        decoder = Decoder(frame_max=4096)
        assert decoder.feed(begin + b"whatever follows") == [(PROTOCOL_HEADER, 0, begin)]
        assert decoder.feed(b"and goes on") == []


class TestDiscarding:
    """The broker has closed a channel, and the peer does not know yet."""

    CLOSE_OK = commands.Channel.CloseOk()

    def test_what_is_under_way_is_forgotten(self) -> None:
        decoder = opened()
        decoder.feed(publish(b"abc", cuts=(1,))[:-10])
        decoder.discard(1)
        rest = content_body(b"bc") + publish(b"x") + encode.ack(1, 1, False) + method(QOS)
        assert decoder.feed(rest) == []
        assert [event[1] for event in decoder.feed(publish(b"x", channel=2))] == [2]

    def test_half_of_a_message_may_follow(self) -> None:
        decoder = opened()
        decoder.discard(1)
        assert decoder.feed(content_header(1) + content_body(b"x") + content_body(b"y") * 3) == []

    def test_close_ok_ends_it_within_a_chunk(self) -> None:
        decoder = opened()
        decoder.discard(1)
        open_again = commands.Channel.Open()
        events, code = outcome(
            decoder, [publish(b"x") + method(self.CLOSE_OK) + method(open_again) + publish(b"y")]
        )
        assert code == 0
        assert events == [
            (METHOD, 1, *described(self.CLOSE_OK)),
            (METHOD, 1, *described(open_again)),
            (PUBLISH, 1, b"", b"", 0, b"\0\0", b"y"),
        ]

    def test_the_peers_own_close_is_given(self) -> None:
        decoder = opened()
        decoder.discard(1)
        close = commands.Channel.Close(200, "bye", 0, 0)
        assert outcome(decoder, [method(close) + publish(b"x")]) == ([(METHOD, 1, *described(close))], 0)

    def test_until_accepted(self) -> None:
        decoder = opened()
        decoder.accept(1)
        decoder.discard(1)
        assert decoder.feed(publish(b"x")) == []
        decoder.accept(1)
        assert len(decoder.feed(publish(b"x"))) == 1

    def test_accepting_does_not_touch_a_message_under_way(self) -> None:
        decoder = opened()
        decoder.feed(publish(b"abc")[:-1])
        decoder.accept(1)
        assert decoder.feed(b"\xce") == [(PUBLISH, 1, b"", b"", 0, b"\0\0", b"abc")]


class TestClosing:
    CLOSE_OK = commands.Connection.CloseOk()

    @pytest.mark.parametrize(
        "cut", [lambda data: [data], lambda data: [data[at : at + 1] for at in range(len(data))]]
    )
    def test_only_the_end_of_the_connection_is_given(self, cut: Callable[[bytes], list[bytes]]) -> None:
        decoder = opened()
        decoder.close()
        close = commands.Connection.Close(200, "bye", 0, 0)
        data = (
            publish(b"x")
            + content_body(b"out of place")
            + method(QOS)
            + raw(1, 0, b"\xff\xff\xff\xff")
            + method(close, 0)
            + method(self.CLOSE_OK, 0)
        )
        expected = [(METHOD, 0, *described(close)), (METHOD, 0, *described(self.CLOSE_OK))]
        assert outcome(decoder, cut(data)) == (expected, 0)

    def test_damage_is_not_told_again(self) -> None:
        decoder = opened()
        decoder.close()
        assert decoder.feed(b"\xff" * 20) == []
        assert decoder.feed(method(self.CLOSE_OK, 0)) == []
        decoder.close()
        assert decoder.feed(method(self.CLOSE_OK, 0)) == []
