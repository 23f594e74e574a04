"""RenewHold: a client still reads the objects of its manifest, or has read them.

request    hold uuid | release bool | tags
response   throttle time ms i32 | error i16 | error message, nullable | is held bool | tags
"""

from struct import Struct
from struct import error as StructError

from posthouse.protocols.kafka.codec.own.fields import nullable_text, read_end, read_nullable_text
from posthouse.protocols.kafka.codec.primitives import (
    ZERO_UUID,
    Buffer,
    Message,
    cut_short,
    unsupported_version,
)

_REQUEST = Struct(">16s?")
_RESPONSE_START = Struct(">ih")
_HELD = Struct(">?")


class RenewHoldRequest(Message):
    __slots__ = ("hold", "is_released")

    def __init__(self, *, hold: bytes = ZERO_UUID, is_released: bool = False) -> None:
        self.hold = hold
        self.is_released = is_released


class RenewHoldResponse(Message):
    __slots__ = ("error_code", "error_message", "is_held", "throttle_time_ms")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        is_held: bool = False,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.is_held = is_held


def decode_renew_hold_request(version: int, buf: memoryview, pos: int) -> RenewHoldRequest:
    if version != 0:
        raise unsupported_version("RenewHoldRequest", version)
    try:
        hold, is_released = _REQUEST.unpack_from(buf, pos)
        pos = read_end(buf, pos + _REQUEST.size, "RenewHoldRequest")
    except (StructError, IndexError):
        raise cut_short("RenewHoldRequest", pos, len(buf)) from None
    return RenewHoldRequest(hold=hold, is_released=is_released)


def encode_renew_hold_response(version: int, response: RenewHoldResponse) -> list[Buffer]:
    if version != 0:
        raise unsupported_version("RenewHoldResponse", version)
    out = bytearray(_RESPONSE_START.pack(response.throttle_time_ms, response.error_code))
    out += nullable_text(response.error_message)
    out += _HELD.pack(response.is_held)
    out.append(0)
    return [out]


def encode_renew_hold_request(request: RenewHoldRequest) -> list[Buffer]:
    return [_REQUEST.pack(request.hold, request.is_released), b"\0"]


def decode_renew_hold_response(buf: memoryview, pos: int) -> RenewHoldResponse:
    response = RenewHoldResponse()
    try:
        response.throttle_time_ms, response.error_code = _RESPONSE_START.unpack_from(buf, pos)
        pos += _RESPONSE_START.size
        response.error_message, pos = read_nullable_text(buf, pos, "RenewHoldResponse.error_message")
        [response.is_held] = _HELD.unpack_from(buf, pos)
        pos = read_end(buf, pos + _HELD.size, "RenewHoldResponse")
    except (StructError, IndexError):
        raise cut_short("RenewHoldResponse", pos, len(buf)) from None
    return response
