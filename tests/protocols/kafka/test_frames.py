"""Frames come out whole, whatever the pieces that their bytes arrive in."""

import struct

import pytest

from posthouse.protocols.kafka.frames import RECEIVE_BUFFER, FrameError, FrameReader

MAX_FRAME = 8 * 1024 * 1024


def make_reader() -> FrameReader:
    return FrameReader(memoryview(bytearray(RECEIVE_BUFFER)), MAX_FRAME)


def feed(reader: FrameReader, data: bytes, piece: int) -> list[memoryview]:
    frames = []
    pos = 0
    while pos < len(data):
        buffer = reader.buffer()
        size = min(piece, len(buffer), len(data) - pos)
        buffer[:size] = data[pos : pos + size]
        frames += reader.received(size)
        pos += size
    return frames


def stream(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 4096, 2**20])
@pytest.mark.parametrize(
    "frames",
    [
        [b"a"],
        [b""],
        [b"", b"", b"abc"],
        [b"x" * 16 * 1024, b"y"],
        [b"x" * (16 * 1024 + 1), b"y"],
        [bytes([index]) * 100 for index in range(50)],
    ],
    ids=["one", "empty", "several", "small-limit", "above-small-limit", "many"],
)
def test_any_pieces(frames: list[bytes], piece: int) -> None:
    reader = make_reader()
    assert feed(reader, stream(*frames), piece) == frames
    assert not reader.in_frame


@pytest.mark.parametrize("size", [64 * 1024, 2**20, 2**20 + 1, 5 * 2**20, MAX_FRAME])
def test_large(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
    frames = feed(make_reader(), stream(b"before", content, b"after"), 2**16)
    assert frames == [b"before", content, b"after"]


def test_frames_are_writable_and_never_written_again() -> None:
    reader = make_reader()
    first, large = feed(reader, stream(b"first", b"L" * 100_000), 2**16)
    assert not first.readonly and not large.readonly
    feed(reader, stream(b"other" * 1000, b"M" * 100_000), 2**16)
    assert bytes(first) == b"first"
    assert bytes(large) == b"L" * 100_000


def test_a_promise_costs_no_memory() -> None:
    reader = make_reader()
    feed(reader, struct.pack(">i", MAX_FRAME) + b"x", 100)
    assert reader.in_frame
    assert len(reader.buffer()) <= 2**20


@pytest.mark.parametrize("length", [-1, -(2**31), MAX_FRAME + 1, 2**31 - 1])
def test_impossible_lengths(length: int) -> None:
    with pytest.raises(FrameError):
        feed(make_reader(), struct.pack(">i", length), 4)


@pytest.mark.parametrize(
    ("first", "name"),
    [(b"\x16\x03\x01\x02\x00", "TLS"), (b"GET / HTTP/1.1", "HTTP"), (b"AMQP\x00\x00\x09\x01", "AMQP")],
)
def test_clients_of_other_protocols_are_told(first: bytes, name: str) -> None:
    with pytest.raises(FrameError, match=f"the client seems to speak {name}, which this listener does not"):
        feed(make_reader(), first, len(first))


@pytest.mark.parametrize("begun", [b"\0", b"\0\0\0\5ab", b"\0\1\0\0" + b"x" * 20_000])
def test_knows_that_a_frame_has_begun(begun: bytes) -> None:
    reader = make_reader()
    assert feed(reader, begun, 2**16) == []
    assert reader.in_frame


def test_only_records_make_a_request_very_large() -> None:
    limit = 16 * 2**20
    begin = b"\x00\x03" + bytes(20_000)
    with pytest.raises(FrameError, match="carries no records"):
        feed(
            FrameReader(memoryview(bytearray(RECEIVE_BUFFER)), 2 * limit),
            struct.pack(">i", limit + 1) + begin,
            2**16,
        )
    reader = FrameReader(memoryview(bytearray(RECEIVE_BUFFER)), 2 * limit)
    assert feed(reader, struct.pack(">i", limit + 1) + b"\x00\x00" + begin, 2**16) == []
    assert reader.in_frame


def test_memory_follows_what_has_arrived() -> None:
    reader = make_reader()
    feed(reader, struct.pack(">i", MAX_FRAME) + bytes(100), 2**16)
    assert reader.held == 104
    feed(reader, bytes(20_000), 2**16)
    assert reader.held <= 16 * 21_000
