"""Frames: 24 bits of length, a type, flags, 31 bits of stream, then the payload."""

from enum import IntEnum
from struct import Struct
from typing import Final

from posthouse.protocols.grpc.http2.errors import ErrorCode

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD: Final = Struct(">HBBBI")
"""The length in two parts: there is no format for 24 bits."""
FRAME_HEAD_BYTES: Final = 9
DEFAULT_FRAME: Final = 16_384
"""Largest payload until SETTINGS say something else. What we receive never exceeds it."""
LARGEST_FRAME: Final = (1 << 24) - 1
DEFAULT_WINDOW: Final = 65_535
LARGEST_WINDOW: Final = (1 << 31) - 1
STREAM_BITS: Final = (1 << 31) - 1


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


ACK: Final = 0x01
END_STREAM: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
PRIORITY: Final = 0x20

_U32: Final = Struct(">I")
_GOAWAY: Final = Struct(">II")
_LONGEST_REASON: Final = 200


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return FRAME_HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def data_head(size: int, flags: int, stream: int) -> bytes:
    return FRAME_HEAD.pack(size >> 8, size & 0xFF, FrameType.DATA, flags, stream)


def window_update(stream: int, increment: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, 0, stream, _U32.pack(increment))


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    return frame(FrameType.RST_STREAM, 0, stream, _U32.pack(code))


def goaway(last_stream: int, code: ErrorCode, reason: str = "") -> bytes:
    text = reason.encode("ascii", "replace")[:_LONGEST_REASON]
    return frame(FrameType.GOAWAY, 0, 0, _GOAWAY.pack(last_stream, code) + text)
