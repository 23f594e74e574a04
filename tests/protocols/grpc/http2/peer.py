"""The server's side of HTTP/2 without sockets: bytes in, frames out, and a noting application."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any

from hpack import Decoder, Encoder

from posthouse.protocols.grpc.http2.connection import Http2Connection
from posthouse.protocols.grpc.http2.frames import FRAME_HEAD, FRAME_HEAD_BYTES, PREFACE, FrameType, frame
from posthouse.protocols.grpc.http2.header_blocks import Request
from posthouse.protocols.grpc.http2.limits import Http2Limits
from posthouse.protocols.grpc.http2.streams import Stream

Headers = Sequence[tuple[str, str]]
REQUEST: Headers = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test/echo"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)


@dataclass(eq=False)
class Output:
    is_congested: bool = False
    sent: bytearray = field(default_factory=bytearray)

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        self.sent += frame


@dataclass(eq=False)
class Noting:
    requests: dict[int, Request] = field(default_factory=dict)
    streams: dict[int, Stream] = field(default_factory=dict)
    data_of: dict[int, bytes] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)
    was_drained: bool = False

    def request(self, stream: Stream, request: Request) -> None:
        self.requests[stream.id] = request
        self.streams[stream.id] = stream
        self.data_of[stream.id] = b""
        if stream.is_remote_ended:
            self.ended.append(stream.id)

    def data(self, stream: Stream, data: bytes) -> None:
        self.data_of[stream.id] += data
        if stream.is_remote_ended:
            self.ended.append(stream.id)

    def was_reset(self, stream: Stream) -> None:
        self.resets.append(stream.id)

    def drained(self) -> None:
        self.was_drained = True


class Peer:
    """A client that may send anything."""

    def __init__(self, *, greets: bool = True, **limits: Any) -> None:
        self.now = 0.0
        self.output = Output()
        self.app = Noting()
        self.http2 = Http2Connection(self.output, self.app, Http2Limits(**limits), lambda: self.now)
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.http2.start()
        if greets:
            self.send(PREFACE + frame(FrameType.SETTINGS, 0, 0))
            self.frames()

    def send(self, data: bytes) -> None:
        self.http2.receive(data)

    def frame(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.send(frame(kind, flags, stream, payload))

    def headers(self, stream: int, headers: Headers = REQUEST, *, flags: int = 0x04) -> None:
        self.frame(FrameType.HEADERS, flags, stream, self.encoder.encode(headers))

    def data(self, stream: int, data: bytes, flags: int = 0) -> None:
        self.frame(FrameType.DATA, flags, stream, data)

    def reset(self, stream: int) -> None:
        self.frame(FrameType.RST_STREAM, 0, stream, pack(">I", 8))

    def window(self, stream: int, increment: int) -> None:
        self.frame(FrameType.WINDOW_UPDATE, 0, stream, pack(">I", increment))

    def settings(self, *settings: tuple[int, int]) -> None:
        self.frame(FrameType.SETTINGS, 0, 0, b"".join(pack(">HI", *each) for each in settings))

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """What the server has sent since the last time: type, flags, stream, payload."""
        data, found, at = bytes(self.output.sent), [], 0
        self.output.sent.clear()
        while at < len(data):
            high, low, kind, flags, stream = FRAME_HEAD.unpack_from(data, at)
            start = at + FRAME_HEAD_BYTES
            at = start + (high << 8 | low)
            found.append((kind, flags, stream, data[start:at]))
        assert at == len(data)
        return found
