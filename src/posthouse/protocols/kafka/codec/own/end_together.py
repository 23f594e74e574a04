"""EndTogether: commit or abort the transactions of several producers in one step, with a sequence number.

    request    action i8 | name | sequence i64, -1 for none |
               members, null for whatever is open: transactional id | producer id i64 | epoch i16 | tags
               | tags
    response   throttle time ms i32 | error i16 | error message, nullable | has ended now bool |
               sequence of the name i64, -1 for none | tags

Texts and lists are compact, as in all flexible versions.
"""

from struct import Struct
from struct import error as StructError

from posthouse.protocols.kafka.codec.own.fields import (
    nullable_text,
    read_count,
    read_end,
    read_nullable_text,
    read_text,
    text,
)
from posthouse.protocols.kafka.codec.primitives import (
    Buffer,
    Message,
    cut_short,
    skip_tags,
    unsupported_version,
    uvarint,
)

COMMIT = 0
ABORT = 1
QUERY = 2

NO_SEQUENCE = -1

_MEMBER = Struct(">qhB")
_SMALLEST_MEMBER = 1 + _MEMBER.size
_SEQUENCE = Struct(">q")
_RESPONSE_START = Struct(">ih")
_RESPONSE_END = Struct(">?qB")


class EndTogetherMember(Message):
    __slots__ = ("producer_epoch", "producer_id", "transactional_id")

    def __init__(self, *, transactional_id: str = "", producer_id: int = 0, producer_epoch: int = 0) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class EndTogetherRequest(Message):
    __slots__ = ("action", "members", "name", "sequence")

    def __init__(
        self,
        *,
        action: int = QUERY,
        name: str = "",
        sequence: int = NO_SEQUENCE,
        members: list[EndTogetherMember] | None = None,
    ) -> None:
        self.action = action
        self.name = name
        self.sequence = sequence
        self.members = members


class EndTogetherResponse(Message):
    __slots__ = ("error_code", "error_message", "has_ended", "sequence", "throttle_time_ms")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        has_ended: bool = False,
        sequence: int = NO_SEQUENCE,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.has_ended = has_ended
        self.sequence = sequence


def decode_end_together_request(version: int, buf: memoryview, pos: int) -> EndTogetherRequest:
    if version != 0:
        raise unsupported_version("EndTogetherRequest", version)
    size = len(buf)
    try:
        action = int.from_bytes(buf[pos : pos + 1], "big", signed=True)
        name, pos = read_text(buf, pos + 1, "EndTogetherRequest.name")
        [sequence] = _SEQUENCE.unpack_from(buf, pos)
        count, pos = read_count(buf, pos + _SEQUENCE.size, _SMALLEST_MEMBER, "EndTogetherRequest.members")
        members: list[EndTogetherMember] | None = None if count < 0 else []
        for _ in range(count):
            id, pos = read_text(buf, pos, "EndTogetherRequest.members.transactional_id")
            producer_id, epoch, tags = _MEMBER.unpack_from(buf, pos)
            pos += _MEMBER.size
            if tags:
                pos = skip_tags(buf, pos, tags, "EndTogetherRequest.members")
            assert members is not None
            members.append(
                EndTogetherMember(transactional_id=id, producer_id=producer_id, producer_epoch=epoch)
            )
        pos = read_end(buf, pos, "EndTogetherRequest")
    except (StructError, IndexError):
        raise cut_short("EndTogetherRequest", pos, size) from None
    return EndTogetherRequest(action=action, name=name, sequence=sequence, members=members)


def encode_end_together_response(version: int, response: EndTogetherResponse) -> list[Buffer]:
    if version != 0:
        raise unsupported_version("EndTogetherResponse", version)
    out = bytearray(_RESPONSE_START.pack(response.throttle_time_ms, response.error_code))
    out += nullable_text(response.error_message)
    out += _RESPONSE_END.pack(response.has_ended, response.sequence, 0)
    return [out]


def encode_end_together_request(request: EndTogetherRequest) -> list[Buffer]:
    out = bytearray(request.action.to_bytes(1, "big", signed=True))
    out += text(request.name)
    out += _SEQUENCE.pack(request.sequence)
    out += uvarint(0 if request.members is None else len(request.members) + 1)
    for member in request.members or ():
        out += text(member.transactional_id)
        out += _MEMBER.pack(member.producer_id, member.producer_epoch, 0)
    out.append(0)
    return [out]


def decode_end_together_response(buf: memoryview, pos: int) -> EndTogetherResponse:
    size = len(buf)
    response = EndTogetherResponse()
    try:
        response.throttle_time_ms, response.error_code = _RESPONSE_START.unpack_from(buf, pos)
        pos += _RESPONSE_START.size
        response.error_message, pos = read_nullable_text(buf, pos, "EndTogetherResponse.error_message")
        response.has_ended, response.sequence, _ = _RESPONSE_END.unpack_from(buf, pos)
        pos = read_end(buf, pos + _RESPONSE_END.size - 1, "EndTogetherResponse")
    except (StructError, IndexError):
        raise cut_short("EndTogetherResponse", pos, size) from None
    return response
