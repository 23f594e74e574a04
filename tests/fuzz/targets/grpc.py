"""HTTP/2 of a server, header blocks, and the messages of gRPC in a stream."""

import gzip
from collections.abc import Iterator
from contextlib import suppress
from struct import pack
from typing import Any, Final

from hpack import Encoder

from posthouse.protocols.grpc.http2.connection import Http2Connection
from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode
from posthouse.protocols.grpc.http2.field_decoder import FieldDecoder
from posthouse.protocols.grpc.http2.frames import PREFACE, frame
from posthouse.protocols.grpc.http2.header_blocks import Request
from posthouse.protocols.grpc.http2.limits import Http2Limits
from posthouse.protocols.grpc.http2.streams import Stream
from posthouse.protocols.grpc.messages import MessageReader, encode_message, gunzip
from posthouse.protocols.grpc.status import GrpcError
from tests.fuzz.target import Target

MAX_MESSAGE: Final = 5000
_HEADERS: Final = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a/b"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class _Echoing:
    """Answers each request with its data, and notes everything."""

    is_congested = False

    def __init__(self) -> None:
        self.sent = bytearray()
        self.seen: list[Any] = []
        self.http2 = Http2Connection(self, self, Http2Limits(max_streams=4), lambda: 0.0)
        self.http2.start()

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        self.sent += frame

    def request(self, stream: Stream, request: Request) -> None:
        self.seen.append((stream.id, request.path, request.fields))
        stream.call = b""
        if stream.is_remote_ended:
            self.data(stream, b"")

    def data(self, stream: Stream, data: bytes) -> None:
        stream.call += data
        self.http2.taken(stream, len(data))
        if stream.is_remote_ended:
            self.seen.append((stream.id, stream.call))
            self.http2.sender.respond(stream, b"\x88", b"-" + stream.call, b"\x00\x01a\x01b")

    def was_reset(self, stream: Stream) -> None:
        self.seen.append((stream.id, "reset"))

    def drained(self) -> None:
        raise AssertionError("the server has not said that it goes away")


def connection(data: bytes) -> None:
    """However it is cut, the same is seen and sent, and no more is held than arrived."""
    if data:
        assert _run(data[1:], data[0] + 1) == _run(data[1:], len(data))


def _run(data: bytes, piece: int) -> tuple[list[Any], bytes]:
    echoing = _Echoing()
    with suppress(ConnectionFault):
        for start in range(0, len(data), piece):
            echoing.http2.receive(data[start : start + piece])
            assert echoing.http2.held <= len(data)
    http2 = echoing.http2
    assert http2.sender.pending_bytes == sum(each.pending_bytes for each in http2.streams.values())
    assert len(http2.streams) <= 4
    return echoing.seen, bytes(echoing.sent)


def _connection_seeds() -> Iterator[bytes]:
    encoder = Encoder()
    greeting = b"\xff" + PREFACE + frame(4, 0, 0, pack(">HI", 4, 100))
    block = encoder.encode(_HEADERS)
    again = encoder.encode(_HEADERS)
    yield greeting + frame(1, 4, 1, block) + frame(0, 1, 1, b"hello") + frame(1, 5, 3, again)
    parts = frame(1, 0, 1, block[:5]) + frame(9, 4, 1, block[5:])
    yield greeting + parts + frame(0, 8, 1, b"\x02ab\0\0") + frame(1, 5, 1, b"\x00\x01a\x01b")
    yield greeting + frame(1, 5, 1, block) + frame(0, 1, 1, b"late") + frame(8, 0, 0, pack(">I", 5))
    yield greeting + frame(1, 4, 1, block) + frame(3, 0, 1, bytes(4)) + frame(6, 0, 0, bytes(8))
    update = frame(4, 0, 0, pack(">HI", 4, 0)) + frame(8, 0, 1, pack(">I", 2))
    yield greeting + frame(1, 4, 1, block) + update + frame(0, 1, 1, b"x") + frame(7, 0, 0, bytes(8))


def fields(data: bytes) -> None:
    """Blocks with a byte of length before each."""
    decoder = FieldDecoder(200)
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        try:
            found = decoder.decode(data[at + 1 : end])
        except ConnectionFault as fault:
            assert fault.code == ErrorCode.COMPRESSION_ERROR
            return
        assert len(found) <= end - at
        assert decoder._size <= 200
        assert decoder._size == sum(len(name) + len(value) + 32 for name, value in decoder._table)
        at = end


def _field_seeds() -> Iterator[bytes]:
    for huffman in (True, False):
        encoder = Encoder()
        encoder.header_table_size = 200
        blocks = [encoder.encode([*_HEADERS, ("x-date", "2026")], huffman=huffman) for _ in range(3)]
        yield b"".join(bytes((len(each),)) + each for each in blocks)


def messages(data: bytes) -> None:
    if not data:
        return
    first = _messages(data[1:], data[0] + 1)
    assert first == _messages(data[1:], len(data))
    if first is not None:
        for message in first:
            assert MessageReader(MAX_MESSAGE, None).feed(encode_message(message)) == [
                (message, len(message) + 5)
            ]


def _messages(data: bytes, piece: int) -> list[bytes] | None:
    reader = MessageReader(MAX_MESSAGE, gunzip)
    found: list[bytes] = []
    try:
        for start in range(0, len(data), piece):
            found += [message for message, _ in reader.feed(data[start : start + piece])]
            assert reader.held <= len(data)
    except GrpcError:
        return None
    assert all(len(each) <= MAX_MESSAGE for each in found)
    return found


def _message_seeds() -> Iterator[bytes]:
    compressed = gzip.compress(b"hello" * 50, mtime=0)
    plain = encode_message(b"one") + encode_message(b"")
    yield b"\xff" + plain + b"\x01" + pack(">I", len(compressed)) + compressed
    bomb = gzip.compress(bytes(500_000), mtime=0)
    yield b"\x07" + b"\x01" + pack(">I", len(bomb)) + bomb


TARGETS = (
    Target(
        name="http2",
        run=connection,
        seeds=_connection_seeds,
        dictionary=(b"\0\0\0\x04\0\0\0\0\0", b"\0\0\x04\x08\0\0\0\0\x01", b"\0\0\x04\x03\0\0\0\0\x01"),
    ),
    Target(name="http2-headers", run=fields, seeds=_field_seeds),
    Target(name="grpc-messages", run=messages, seeds=_message_seeds),
)
