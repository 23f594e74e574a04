"""SETTINGS: what the client says of itself, and what we say."""

from enum import IntEnum
from struct import Struct
from typing import Final

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode
from posthouse.protocols.grpc.http2.frames import DEFAULT_FRAME, LARGEST_FRAME, LARGEST_WINDOW

_ENTRY: Final = Struct(">HI")


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    """In their order, unknown ones included. Raises ConnectionFault for values that RFC 9113 forbids."""
    if len(payload) % _ENTRY.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    found = list(_ENTRY.iter_unpack(payload))
    for name, value in found:
        if name == Setting.INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value} bytes")
        if name == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME <= value <= LARGEST_FRAME:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"frames of at most {value} bytes")
        if name == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"the setting ENABLE_PUSH is {value}")
    return found


def encode_settings(settings: dict[Setting, int]) -> bytes:
    return b"".join(_ENTRY.pack(name, value) for name, value in settings.items())
