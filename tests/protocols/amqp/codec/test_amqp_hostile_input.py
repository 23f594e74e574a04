"""Whatever arrives, the decoder gives events or raises FrameError, and costs no more than it was sent."""

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.errors import FrameError
from posthouse.protocols.amqp.codec.events import PUBLISH
from tests.protocols.amqp.codec.amqp_cases import (
    any_command,
    content_body,
    content_header,
    few,
    method,
    opened,
    outcome,
    properties,
    publish,
    raw,
)
from tests.yardstick import slowness

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated")

PUBLISHED = method(commands.Basic.Publish(routing_key="k"))
_channels = st.integers(0, 3)
_pieces = st.one_of(
    st.builds(
        lambda body, values, channel, cut: publish(
            body, values.marshal(), channel=channel, cuts=[min(cut, len(body))]
        ),
        st.binary(max_size=40),
        properties,
        _channels,
        st.integers(0, 40),
    ),
    st.builds(encode.ack, _channels, st.integers(0, 100), st.booleans()),
    st.builds(method, any_command, _channels),
    st.builds(content_header, st.integers(0, 5), channel=_channels),
    st.builds(content_body, st.binary(max_size=5), _channels),
    st.builds(raw, st.sampled_from([1, 2, 3, 8]), _channels, st.binary(max_size=30)),
    st.just(encode.HEARTBEAT),
)
streams = st.lists(_pieces, min_size=1, max_size=6).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(streams))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        patch = draw(st.binary(max_size=4))
        data[at : at + draw(st.integers(0, 4))] = patch
    return bytes(data)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@few(400)
@given(damaged(), st.integers(2, 60))
def test_a_stream_means_the_same_however_it_is_cut(data: bytes, size: int) -> None:
    """Byte by byte nothing takes the fast path, so that this holds the two against each other."""
    slowly = outcome(opened(), pieces(data, 1))
    assert outcome(opened(), [data]) == slowly
    assert outcome(opened(), pieces(data, size)) == slowly


@few(300)
@given(st.lists(st.binary(max_size=100), max_size=5), st.booleans())
def test_noise(chunks: list[bytes], is_open: bool) -> None:
    decoder = opened() if is_open else Decoder(frame_max=4096)
    failed = False
    for chunk in chunks:
        try:
            decoder.feed(chunk)
        except FrameError:
            assert not failed, "a fault is told once"
            failed = True


@few(300)
@given(damaged(), st.integers(1, 60), st.integers(0, 3), st.data())
def test_closing_and_discarding_in_between(data: bytes, size: int, channel: int, choices: Any) -> None:
    decoder = opened()
    failed = False
    for piece in pieces(data, size):
        match choices.draw(st.integers(0, 9)):
            case 0:
                decoder.discard(channel)
            case 1:
                decoder.accept(channel)
            case 2:
                decoder.close()
        try:
            decoder.feed(piece)
        except FrameError:
            assert not failed
            failed = True


def seconds_for(frame_size: int, chunk: int) -> float:
    decoder = opened(frame_max=frame_size, max_body=frame_size)
    data = publish(bytes(frame_size - 8))
    begun = time.process_time()
    events = [event for piece in pieces(data, chunk) for event in decoder.feed(piece)]
    assert events == [(PUBLISH, 1, b"", b"", 0, b"\0\0", bytes(frame_size - 8))]
    return time.process_time() - begun


def test_a_frame_in_tiny_chunks_takes_linear_time() -> None:
    """Four times as much takes four times as long, not sixteen: 12 leaves room for a busy machine."""
    seconds_for(10_000, 1)
    assert min(seconds_for(400_000, 1) for _ in range(2)) < 12 * max(
        seconds_for(100_000, 1) for _ in range(2)
    )


def test_a_body_in_tiny_frames_takes_linear_time_and_little_memory() -> None:
    size = 100_000
    head = PUBLISHED + content_header(size)
    decoder = opened()
    decoder.feed(head)
    part = content_body(b"ab") * 100
    tracemalloc.start()
    try:
        for _ in range(size // 200 - 1):
            assert decoder.feed(part) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * size + 20_000
    (event,) = decoder.feed(part)
    assert event[-1] == b"ab" * (size // 2)


@pytest.mark.parametrize(
    "claim",
    [
        raw(3, 1, bytes(1 << 20))[:7],
        PUBLISHED + content_header(1 << 20),
        PUBLISHED + content_header(1 << 20) + raw(3, 1, bytes(1 << 20))[:7],
        raw(1, 1, b"\0\x0a\0\x0b" + b"\xff\xff\xff\xff" * 10),
        raw(1, 1, b"\0\x0a\0\x0b" + b"\0\0\0\x10\x01aA\x7f\xff\xff\xff" + bytes(20)),
    ],
)
def test_lengths_are_only_claims(claim: bytes) -> None:
    decoder = opened(frame_max=1 << 20)
    tracemalloc.start()
    try:
        outcome(decoder, [claim])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize("value", [b"V", b"t\1", b"A\0\0\0\0", b"F\0\0\0\0", b"S\0\0\0\0"])
def test_a_large_table_of_small_values(value: bytes) -> None:
    """pamqp copies the rest of the frame for each: seconds for one frame."""
    array = b"A" + (len(value) * 20_000).to_bytes(4) + value * 20_000
    table = (len(array) + 2).to_bytes(4) + b"\x01a" + array
    payload = b"\0\x0a\0\x0b" + table + b"\x05PLAIN" + b"\0\0\0\0" + b"\x05en_US"
    spent = []
    for _ in range(3):
        begun = time.thread_time()
        (event,) = opened(frame_max=1 << 20).feed(raw(1, 0, payload))
        spent.append((time.thread_time() - begun) / slowness())
    assert min(spent) < 1
    assert len(event[2].client_properties["a"]) == 20_000  # type: ignore[union-attr, misc]
