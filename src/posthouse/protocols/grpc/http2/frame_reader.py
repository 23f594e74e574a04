"""Frames and header blocks out of a stream of bytes."""

from collections.abc import Callable

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode
from posthouse.protocols.grpc.http2.frames import (
    DEFAULT_FRAME,
    END_HEADERS,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    PADDED,
    PREFACE,
    PRIORITY,
    STREAM_BITS,
)
from posthouse.protocols.grpc.http2.limits import Http2Limits

_PRIORITY_BYTES = 5


class FrameReader:
    """The client's preface, then frames."""

    __slots__ = ("_expects_preface", "_rest", "_take", "has_backlog", "is_held_back")

    def __init__(self, take: Callable[[int, int, int, bytes], None]) -> None:
        """`take` is called with type, flags, stream and payload of each frame."""
        self._take = take
        self._rest = b""
        self._expects_preface = True
        self.is_held_back = False
        """Frames wait, except for the one that is being taken."""
        self.has_backlog = False
        """Bytes wait because of that: `feed(b"")` goes on with them."""

    @property
    def held(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> None:
        """Raises ConnectionFault, also those of `take`."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at = 0
        if self._expects_preface:
            if data[: len(PREFACE)] != PREFACE[: len(data)]:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the client does not speak HTTP/2")
            if len(data) < len(PREFACE):
                self._rest = data
                return
            self._expects_preface = False
            at = len(PREFACE)
        size = len(data)
        unpack = FRAME_HEAD.unpack_from
        while size - at >= FRAME_HEAD_BYTES and not self.is_held_back:
            high, low, kind, flags, stream = unpack(data, at)
            length = high << 8 | low
            if length > DEFAULT_FRAME:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            start = at + FRAME_HEAD_BYTES
            end = start + length
            if end > size:
                break
            self._take(kind, flags, stream & STREAM_BITS, data[start:end])
            at = end
        self.has_backlog = self.is_held_back and at < size
        if at < size:
            self._rest = data[at:]

    def forget(self) -> None:
        self._rest = b""


class HeadersReader:
    """A header block in HEADERS and CONTINUATION. The caller sees to it that nothing comes between them."""

    __slots__ = ("_limits", "_parts", "flags", "held", "stream")

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._parts: list[bytes] = []
        self.held = 0
        self.stream = 0
        """Of the block that is not complete; 0 if there is none."""
        self.flags = 0
        """Of the HEADERS with which the last block of several frames began."""

    def begin(self, flags: int, stream: int, payload: bytes) -> bytes | None:
        """HEADERS: the block, None if it goes on. Raises ConnectionFault."""
        if not stream & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"HEADERS on the stream {stream}")
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & PRIORITY:
            if len(payload) < _PRIORITY_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without their priority")
            payload = payload[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            return payload
        self._parts = [payload]
        self.held = len(payload)
        self.stream = stream
        self.flags = flags
        return None

    def go_on(self, flags: int, payload: bytes) -> bytes | None:
        """CONTINUATION: the block, None if it goes on. Raises ConnectionFault."""
        if not self.stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._parts.append(payload)
        self.held += len(payload)
        limits = self._limits
        if self.held > limits.max_header_block or len(self._parts) > limits.max_continuations:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "headers are too large")
        if not flags & END_HEADERS:
            return None
        block = b"".join(self._parts)
        self.forget()
        return block

    def forget(self) -> None:
        self._parts = []
        self.held = 0
        self.stream = 0


def unpadded(payload: bytes) -> bytes:
    """Raises ConnectionFault."""
    if not payload:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without the length of its padding")
    rest = len(payload) - payload[0]
    if rest < 1:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
    return payload[1:rest]
