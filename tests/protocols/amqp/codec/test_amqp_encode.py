"""What pamqp would refuse to write."""

from typing import Any

import pytest
from pamqp import commands

from posthouse.protocols.amqp.codec import encode
from tests.protocols.amqp.codec.amqp_cases import content_in, frames_of

FRAME_MAX = 4096
LONG = bytes(range(97, 107)) * 40


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 2 * 4088, 2 * 4088 + 1])
def test_bodies_are_split_where_frames_end(size: int) -> None:
    body = bytes(size)
    data = encode.deliver(1, b"c", 1, False, b"", b"", b"\0\0", body, FRAME_MAX)
    *_, whole, largest = content_in(data)
    assert (whole, largest) == (body, min(size, 4088))
    assert len(frames_of(data)) == 2 + -(-size // 4088)


@pytest.mark.parametrize("body", [b"", b"x", bytes(5000)])
def test_keys_of_other_protocols_are_cut(body: bytes) -> None:
    deliver = encode.deliver(1, b"c", 1, False, b"", LONG, b"\0\0", body, FRAME_MAX)
    get_ok = encode.get_ok(1, 1, False, b"", LONG, 0, b"\0\0", body, FRAME_MAX)
    returned = encode.returned(1, 312, "NO_ROUTE", b"", LONG, b"\0\0", body, FRAME_MAX)
    for data in (deliver, get_ok, returned):
        _, command, _, whole, _ = content_in(data)
        assert (command.routing_key, whole) == (LONG[:255].decode(), body)


def test_any_queue_may_be_declared() -> None:
    ((_, command),) = frames_of(encode.declare_ok(1, "größe <*>", 1 << 40, 2))
    assert isinstance(command, commands.Queue.DeclareOk)
    assert (command.queue, command.message_count, command.consumer_count) == ("größe <*>", 0xFFFFFFFF, 2)


@pytest.mark.parametrize(
    ("text", "shown"), [("é" * 200, "é" * 127), ("a" * 300, "a" * 255), ("a" + "é" * 127, "a" + "é" * 127)]
)
def test_texts_for_people_are_cut_between_characters(text: str, shown: str) -> None:
    command = commands.Channel.Close(404, text, 50, 10)
    ((channel, read),) = frames_of(encode.method(7, command))
    assert channel == 7
    assert isinstance(read, commands.Channel.Close)
    assert (read.reply_code, read.reply_text, read.class_id, read.method_id) == (404, shown, 50, 10)


def test_arguments_that_were_left_out() -> None:
    """pamqp has None where the specification has no default."""
    kinds: list[Any] = [commands.Queue.DeclareOk, commands.Connection.Start, commands.Basic.GetEmpty]
    for kind in kinds:
        ((_, read),) = frames_of(encode.method(0, kind()))
        assert isinstance(read, kind)
