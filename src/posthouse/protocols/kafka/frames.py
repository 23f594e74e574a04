"""Splits the byte stream of a connection into frames: a 4-byte length, then that many bytes.

Bytes are received into a buffer that all connections share, because a read and its parsing are one step of
the event loop. So an idle connection holds no memory. The bytes are copied once, and frames are views into
that copy. A large incomplete frame gets its own memory, into which the rest is received directly. That memory
grows with the bytes received, since a declared length proves nothing. This module never writes again to
memory of a returned frame.
"""

from struct import Struct

_LENGTH = Struct(">i")
_PREFIX = _LENGTH.size

RECEIVE_BUFFER = 64 * 1024
# Below this size, an incomplete frame waits for the next read of the shared buffer: copying it once more is
# cheaper than a system call that reads only its rest. The same applies while less than this of a frame has
# arrived.
_SMALL = 16 * 1024
# Memory for a large frame as a multiple of the bytes received: at first, and when that is full.
_FIRST_GROWTH = 16
_GROWTH = 4
# Only requests with records may be larger.
_LARGEST_WITHOUT_RECORDS = 16 * 1024 * 1024
_PRODUCE = b"\x00\x00"
_NOTHING = memoryview(b"")
_TLS_HANDSHAKE = b"\x16\x03"
_FIRST_BYTES = {b"AMQP": "AMQP", **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT "), "HTTP")}


class FrameError(ValueError):
    """A length that no request has. The rest of the stream cannot be parsed."""


class FrameReader:
    def __init__(self, shared: memoryview, max_frame: int) -> None:
        self._shared = shared
        self.max_frame = max_frame
        """May change at any time; applies from the next frame on."""
        self._rest = _NOTHING
        self._large: memoryview | None = None
        self._large_size = 0
        self._filled = 0

    @property
    def in_frame(self) -> bool:
        """Whether a frame is incomplete."""
        return self._large is not None or len(self._rest) > 0

    @property
    def held(self) -> int:
        """Bytes of memory for the incomplete frame."""
        return len(self._rest) if self._large is None else len(self._large)

    def forget(self) -> None:
        """Free the incomplete frame. Its owner may be garbage that is not collected soon."""
        self._large = None
        self._rest = _NOTHING

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; `received` must be called next."""
        if self._large is not None:
            return self._large[self._filled :]
        kept = len(self._rest)
        if not kept:
            return self._shared
        self._shared[:kept] = self._rest
        return self._shared[kept:]

    def received(self, size: int) -> list[memoryview]:
        """The frames that are complete after `size` bytes were received."""
        if self._large is not None:
            return self._received_large(size)
        size += len(self._rest)
        data = memoryview(bytearray(self._shared[:size]))
        frames = []
        pos = 0
        while size - pos >= _PREFIX:
            length = self._checked(_LENGTH.unpack_from(data, pos)[0])
            end = pos + _PREFIX + length
            if end > size:
                if length > _SMALL and size - pos > _SMALL:
                    self._start_large(data[pos + _PREFIX :], length)
                    pos = size
                break
            frames.append(data[pos + _PREFIX : end])
            pos = end
        # A copy, so that the start of a frame does not keep the earlier bytes alive.
        self._rest = memoryview(bytes(data[pos:])) if pos < size else _NOTHING
        return frames

    def _checked(self, length: int) -> int:
        if length < 0:
            raise FrameError(f"a request of {length} bytes")
        if length > self.max_frame:
            raise FrameError(
                f"a request of {length} bytes, where {self.max_frame} are allowed (max_request_bytes)"
                f"{_other_protocol(length)}"
            )
        return length

    def _start_large(self, begin: memoryview, length: int) -> None:
        if length > _LARGEST_WITHOUT_RECORDS and begin[:2] != _PRODUCE:
            key = int.from_bytes(begin[:2])
            raise FrameError(f"a request of {length} bytes with the API key {key}, which carries no records")
        self._large_size = length
        self._filled = len(begin)
        self._large = memoryview(bytearray(min(length, self._filled * _FIRST_GROWTH)))
        self._large[: self._filled] = begin

    def _received_large(self, size: int) -> list[memoryview]:
        assert self._large is not None
        self._filled += size
        if self._filled < len(self._large):
            return []
        if self._filled == self._large_size:
            frame, self._large = self._large, None
            return [frame]
        grown = memoryview(bytearray(min(self._large_size, len(self._large) * _GROWTH)))
        grown[: self._filled] = self._large
        self._large = grown
        return []


def _other_protocol(length: int) -> str:
    """What the first bytes of a client of another protocol are, which came as the length of a request."""
    first = length.to_bytes(4, "big")
    name = "TLS" if first[:2] == _TLS_HANDSHAKE else _FIRST_BYTES.get(first)
    return "" if name is None else f"; the client seems to speak {name}, which this listener does not"
