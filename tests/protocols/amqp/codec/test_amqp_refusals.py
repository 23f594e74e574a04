"""What a peer must not send, and the reply code for it."""

import pytest
from pamqp import commands

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.errors import FrameError
from posthouse.protocols.amqp.codec.events import METHOD, OVERSIZED, PUBLISH
from tests.protocols.amqp.codec.amqp_cases import (
    content_body,
    content_header,
    method,
    opened,
    outcome,
    publish,
    raw,
)

PUBLISHED = method(commands.Basic.Publish(routing_key="k"))
PUBLISH_ID = (60, 40)
NONE = (0, 0)
QOS = method(commands.Basic.Qos())

REFUSED: dict[str, tuple[bytes, int, tuple[int, int]]] = {
    "unknown frame type": (raw(4, 0, b""), 501, NONE),
    "unknown frame type, from its header": (raw(9, 1, bytes(4000))[:7], 501, NONE),
    "second protocol header": (b"AMQP\0\0\x09\x01", 501, NONE),
    "frame too large": (raw(3, 1, bytes(4097))[:7], 501, NONE),
    "wrong frame end": (raw(1, 1, QOS[7:-1], b"\xcd"), 501, NONE),
    "wrong end of a method of a publish": (PUBLISHED[:-1] + b"\0" + content_header(0), 501, NONE),
    "wrong end of a header": (PUBLISHED + content_header(1)[:-1] + b"\0" + content_body(b"x"), 501, NONE),
    "wrong end of a header without a body": (PUBLISHED + content_header(0)[:-1] + b"\0", 501, NONE),
    "wrong end of a body": (publish(b"x")[:-1] + b"\0", 501, NONE),
    "wrong end of an ack": (encode.ack(1, 1, False)[:-1] + b"\0", 501, NONE),
    "method frame without a method": (raw(1, 1, b"\0\x3c\0"), 501, NONE),
    "heartbeat with payload": (raw(8, 0, b"x"), 501, NONE),
    "heartbeat on a channel": (raw(8, 1, b""), 505, NONE),
    "unknown class": (raw(1, 1, b"\0\x63\0\x0a"), 540, (99, 10)),
    "unknown method": (raw(1, 1, b"\0\x3c\0\x63"), 540, (60, 99)),
    "arguments cut off": (raw(1, 1, QOS[7:-2]), 501, (60, 10)),
    "arguments with excess": (raw(1, 1, QOS[7:-1] + b"\0"), 501, (60, 10)),
    "ack cut off": (raw(1, 1, encode.ack(1, 1, False)[7:-2]), 501, (60, 80)),
    "ack with excess": (raw(1, 1, encode.ack(1, 1, False)[7:-1] + b"\0"), 501, (60, 80)),
    "publish cut off": (raw(1, 1, PUBLISHED[7:-2]) + content_header(0), 501, PUBLISH_ID),
    "publish without a key": (raw(1, 1, PUBLISHED[7:13]), 501, PUBLISH_ID),
    "publish with excess": (raw(1, 1, PUBLISHED[7:-1] + b"\0") + content_header(0), 501, PUBLISH_ID),
    "string cut off": (raw(1, 1, b"\0\x14\0\x0a\x05abc"), 501, (20, 10)),
    "string not UTF-8": (raw(1, 1, b"\0\x14\0\x0a\x02\xc3\x28"), 501, (20, 10)),
    "table cut off": (raw(1, 0, b"\0\x0a\0\x0b\0\0\0\x09"), 501, (10, 11)),
    "table with an unknown type": (raw(1, 0, b"\0\x0a\0\x0b\0\0\0\x03\x01ay"), 501, (10, 11)),
    "table beyond its end": (raw(1, 0, b"\0\x0a\0\x0b\0\0\0\x03\x01al" + bytes(20)), 501, (10, 11)),
    "table nested too deep": (
        raw(1, 0, b"\0\x0a\0\x0b\0\0\x10\0" + b"\0A" + b"\0\0\x01\0A" * 200 + bytes(100)),
        501,
        (10, 11),
    ),
    "publish on channel 0": (publish(b"x", channel=0), 504, PUBLISH_ID),
    "header without a publish": (content_header(1), 505, NONE),
    "body without a publish": (content_body(b"x"), 505, NONE),
    "body on another channel": (PUBLISHED + content_header(1) + content_body(b"x", 2), 505, NONE),
    "content after another method": (QOS + content_header(1), 505, NONE),
    "body before its header": (PUBLISHED + content_body(b"x"), 505, PUBLISH_ID),
    "another method before the header": (PUBLISHED + QOS, 505, PUBLISH_ID),
    "another publish before the header": (PUBLISHED + PUBLISHED, 505, PUBLISH_ID),
    "an ack before the body": (PUBLISHED + content_header(1) + encode.ack(1, 1, False), 505, PUBLISH_ID),
    "two headers": (PUBLISHED + content_header(1) * 2, 505, PUBLISH_ID),
    "header of another class": (PUBLISHED + content_header(1, kind=61 << 16), 505, PUBLISH_ID),
    "header with weight": (PUBLISHED + content_header(1, kind=60 << 16 | 1), 505, PUBLISH_ID),
    "header cut off": (PUBLISHED + raw(2, 1, bytes((0, 60)) + bytes(9)), 501, NONE),
    "header without flags": (PUBLISHED + content_header(1, b"\0") + content_body(b"x"), 501, NONE),
    "empty message without flags": (PUBLISHED + content_header(0, b""), 501, NONE),
    "body longer than announced": (PUBLISHED + content_header(2) + content_body(b"abc"), 501, PUBLISH_ID),
    "second body longer than announced": (
        PUBLISHED + content_header(3) + content_body(b"ab") * 2,
        501,
        PUBLISH_ID,
    ),
    "body for an empty message": (publish(b"") + content_body(b""), 505, NONE),
}

refused = pytest.mark.parametrize(("data", "code", "ids"), list(REFUSED.values()), ids=list(REFUSED))


@refused
def test_refused(data: bytes, code: int, ids: tuple[int, int]) -> None:
    with pytest.raises(FrameError) as caught:
        opened(max_body=10_000).feed(data)
    error = caught.value
    assert (error.code, (error.class_id, error.method_id)) == (code, ids)
    assert error.text


@refused
def test_refused_however_it_is_cut(data: bytes, code: int, ids: tuple[int, int]) -> None:
    pieces = [data[at : at + 1] for at in range(len(data))]
    whole = outcome(opened(max_body=10_000), [data])
    assert whole[1] == code
    assert outcome(opened(max_body=10_000), pieces) == whole


@refused
def test_what_was_complete_before_counts(data: bytes, code: int, ids: tuple[int, int]) -> None:
    events, found = outcome(opened(max_body=10_000), [publish(b"x", channel=5) + data])
    assert (events[0], found) == ((PUBLISH, 5, b"", b"", 0, b"\0\0", b"x"), code)


@refused
def test_afterwards_only_close_ok_is_seen(data: bytes, code: int, ids: tuple[int, int]) -> None:
    decoder = opened(max_body=10_000)
    close_ok = method(commands.Connection.CloseOk(), 0)
    with pytest.raises(FrameError) as caught:
        decoder.feed(data + b"")
    events = decoder.feed(publish(b"x") + close_ok[:5]) + decoder.feed(close_ok[5:])
    assert len(events) == (0 if caught.value.is_lost else 1)
    if code != 501:
        assert not caught.value.is_lost


def test_a_body_in_one_frame_that_is_too_large_for_a_message() -> None:
    assert outcome(opened(max_body=10), [publish(bytes(11))]) == ([(OVERSIZED, 1, 11)], 0)
    assert outcome(opened(max_body=10), [publish(bytes(10))])[0][0][0] == PUBLISH


@pytest.mark.parametrize("size", [11, (1 << 64) - 1])
def test_a_body_that_is_too_large_is_passed_over(size: int) -> None:
    decoder = opened(max_body=10)
    assert decoder.feed(PUBLISHED + content_header(size)) == [(OVERSIZED, 1, size)]
    for _ in range(100):
        assert decoder.feed(content_body(bytes(4000)) + QOS) == []
    assert decoder.held == 0
    assert [event[0] for event in decoder.feed(publish(b"x", channel=2))] == [PUBLISH]
    assert [event[0] for event in decoder.feed(method(commands.Channel.CloseOk()))] == [METHOD]
    assert [event[0] for event in decoder.feed(publish(b"x"))] == [PUBLISH]


def test_frames_behind_the_faulty_one_are_kept() -> None:
    decoder = opened()
    with pytest.raises(FrameError):
        decoder.feed(content_body(b"x") + method(commands.Connection.CloseOk(), 0))
    assert len(decoder.feed(b"")) + len(decoder.feed(encode.HEARTBEAT)) == 1


def test_channels_share_what_bodies_may_hold() -> None:
    decoder = opened(max_body=1000)
    with pytest.raises(FrameError, match="too many"):
        for channel in range(1, 10):
            decoder.feed(publish(bytes(1000), channel=channel, cuts=(990,))[:-18])


def test_what_was_forgotten_is_not_counted() -> None:
    decoder = opened(max_body=1000)
    for _ in range(50):
        for channel in range(1, 4):
            decoder.feed(publish(bytes(1000), channel=channel, cuts=(990,))[:-18])
        decoder.feed(content_body(bytes(10)))
        decoder.discard(2)
        decoder.discard(3)
        for channel in (2, 3):
            decoder.accept(channel)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"\0\0\5ab", "<<0,0,5,97,98>>"),
        (b"abc", '<<"abc">>'),
        (b'a"c', "<<97,34,99>>"),
        (b"", "<<>>"),
    ],
)
def test_what_cannot_be_decoded_is_shown_as_rabbitmq_does(payload: bytes, shown: str) -> None:
    with pytest.raises(FrameError) as caught:
        opened().feed(raw(1, 1, b"\0\x32\0\x0a" + payload))
    assert caught.value.text == f"cannot decode {shown}"


def test_the_close_can_still_be_agreed_to_after_arguments_that_cannot_be_decoded() -> None:
    decoder = opened()
    with pytest.raises(FrameError):
        decoder.feed(raw(1, 1, b"\0\x32\0\x0a"))
    assert [event[0] for event in decoder.feed(raw(1, 0, b"\0\x0a\0\x33"))] == [METHOD]
