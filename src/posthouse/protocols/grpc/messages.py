"""Messages in the data of a stream: whether it is compressed (a byte), its length (four), the message."""

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

from posthouse.protocols.grpc.status import GrpcError, Status

_PREFIX: Final = Struct(">BI")
PREFIX_BYTES: Final = 5
_GZIP: Final = 16 + zlib.MAX_WBITS

Decompress = Callable[[bytes, int], bytes]
"""With the most bytes that may come out."""


def encode_message(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


def gunzip(data: bytes, most: int) -> bytes:
    """Raises GrpcError."""
    inflating = zlib.decompressobj(_GZIP)
    try:
        found = inflating.decompress(data, most + 1)
    except zlib.error as error:
        raise GrpcError(Status.INTERNAL, f"a message cannot be decompressed: {error}") from None
    if len(found) > most:
        raise _too_large(most)
    if not inflating.eof or inflating.unused_data:
        raise GrpcError(Status.INTERNAL, "a message cannot be decompressed: it does not end where gzip does")
    return found


def decompress_by(encoding: bytes | None) -> Decompress | None:
    """What grpc-encoding stands for; None if messages are not compressed. Raises GrpcError."""
    if encoding is None or encoding == b"identity":
        return None
    if encoding == b"gzip":
        return gunzip
    raise GrpcError(Status.UNIMPLEMENTED, f"the encoding {encoding[:50]!r} is not supported; use gzip")


class MessageReader:
    """Of one stream. It holds one incomplete message at most."""

    __slots__ = ("_buffer", "_decompress", "_is_compressed", "_limit", "_size")

    def __init__(self, limit: int, decompress: Decompress | None) -> None:
        self._limit = limit
        self._decompress = decompress
        self._buffer = bytearray()
        self._size = -1
        """Of the message in the buffer; below 0 before its prefix is complete."""
        self._is_compressed = False

    @property
    def held(self) -> int:
        return len(self._buffer)

    @property
    def missing(self) -> int:
        """Bytes that the message still needs; 0 as long as its length is unknown."""
        return self._size - len(self._buffer) if self._size >= 0 else 0

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Complete messages, each with the bytes that it had in the stream. Raises GrpcError."""
        buffer = self._buffer
        buffer += data
        messages: list[tuple[bytes, int]] = []
        at = 0
        while True:
            if self._size < 0:
                if len(buffer) - at < PREFIX_BYTES:
                    break
                self._begin(*_PREFIX.unpack_from(buffer, at))
                at += PREFIX_BYTES
            end = at + self._size
            if end > len(buffer):
                break
            message = bytes(memoryview(buffer)[at:end])
            messages.append((self._finished(message), PREFIX_BYTES + self._size))
            at = end
            self._size = -1
        del buffer[:at]
        return messages

    def _begin(self, flag: int, size: int) -> None:
        if flag > 1:
            raise GrpcError(Status.INTERNAL, f"a message begins with {flag}, which says nothing")
        if flag and self._decompress is None:
            raise GrpcError(Status.INTERNAL, "a message is compressed, and grpc-encoding does not say how")
        if size > self._limit:
            raise _too_large(self._limit)
        self._size = size
        self._is_compressed = flag == 1

    def _finished(self, message: bytes) -> bytes:
        if not self._is_compressed or self._decompress is None:
            return message
        return self._decompress(message, self._limit)

    def forget(self) -> None:
        self._buffer = bytearray()
        self._size = -1


def _too_large(limit: int) -> GrpcError:
    return GrpcError(Status.RESOURCE_EXHAUSTED, f"a message is larger than {limit} bytes")
