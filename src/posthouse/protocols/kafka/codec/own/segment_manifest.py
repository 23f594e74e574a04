"""SegmentManifest: where in the object store the records of ranges are, for clients that read by themselves.

    request    isolation i8 | signed addresses bool | hold uuid, zero for a new one |
               ranges: topic id uuid | partition i32 | first i64 | end i64 | tags
               | tags
    response   throttle time ms i32 | error i16 | error message, nullable | hold uuid, zero for none |
               ranges, in the order of the request:
                   error i16 | next i64 |
                   aborted transactions: producer id i64 | first i64 | last i64 | tags
                   segments: address | start i64 | size i64 | base i64 | last i64 | generation i32 | tags
                   | tags
               | tags

Texts and lists are compact, as in all flexible versions. `storage/segment_objects.py` says what the fields
mean.
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
    ZERO_UUID,
    Buffer,
    Message,
    cut_short,
    skip_tags,
    unsupported_version,
    uvarint,
)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_REQUEST_START = Struct(">b?16s")
_RANGE = Struct(">16siqqB")
_RESPONSE_START = Struct(">ih")
_ANSWER_START = Struct(">hq")
_ABORTED = Struct(">qqqB")
_SEGMENT = Struct(">qqqqiB")
_SMALLEST_SEGMENT = 1 + _SEGMENT.size
_SMALLEST_ANSWER = _ANSWER_START.size + 3


class SegmentManifestRange(Message):
    __slots__ = ("end", "first", "partition", "topic_id")

    def __init__(
        self, *, topic_id: bytes = ZERO_UUID, partition: int = 0, first: int = 0, end: int = 0
    ) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.first = first
        self.end = end


class SegmentManifestRequest(Message):
    __slots__ = ("hold", "is_signed", "isolation_level", "ranges")

    def __init__(
        self,
        *,
        isolation_level: int = READ_COMMITTED,
        is_signed: bool = True,
        hold: bytes = ZERO_UUID,
        ranges: list[SegmentManifestRange] | None = None,
    ) -> None:
        self.isolation_level = isolation_level
        self.is_signed = is_signed
        self.hold = hold
        self.ranges = ranges or []


class AbortedTransactionPart(Message):
    __slots__ = ("first", "last", "producer_id")

    def __init__(self, *, producer_id: int = 0, first: int = 0, last: int = 0) -> None:
        self.producer_id = producer_id
        self.first = first
        self.last = last


class SegmentPart(Message):
    __slots__ = ("address", "base", "generation", "last", "size", "start")

    def __init__(
        self,
        *,
        address: str = "",
        start: int = 0,
        size: int = 0,
        base: int = 0,
        last: int = 0,
        generation: int = 0,
    ) -> None:
        self.address = address
        self.start = start
        self.size = size
        self.base = base
        self.last = last
        self.generation = generation

    def __repr__(self) -> str:
        """Without the address, which is a secret."""
        return f"SegmentPart(base={self.base}, last={self.last}, start={self.start}, size={self.size})"


class SegmentManifestAnswer(Message):
    __slots__ = ("aborted", "error_code", "next", "segments")

    def __init__(
        self,
        *,
        error_code: int = 0,
        next: int = 0,
        aborted: list[AbortedTransactionPart] | None = None,
        segments: list[SegmentPart] | None = None,
    ) -> None:
        self.error_code = error_code
        self.next = next
        self.aborted = aborted or []
        self.segments = segments or []


class SegmentManifestResponse(Message):
    __slots__ = ("error_code", "error_message", "hold", "ranges", "throttle_time_ms")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        hold: bytes = ZERO_UUID,
        ranges: list[SegmentManifestAnswer] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.hold = hold
        self.ranges = ranges or []


def decode_segment_manifest_request(version: int, buf: memoryview, pos: int) -> SegmentManifestRequest:
    if version != 0:
        raise unsupported_version("SegmentManifestRequest", version)
    request = SegmentManifestRequest()
    try:
        request.isolation_level, request.is_signed, request.hold = _REQUEST_START.unpack_from(buf, pos)
        pos += _REQUEST_START.size
        count, pos = read_count(buf, pos, _RANGE.size, "SegmentManifestRequest.ranges")
        for _ in range(count):
            topic_id, partition, first, end, tags = _RANGE.unpack_from(buf, pos)
            pos = _behind_tags(buf, pos + _RANGE.size, tags, "SegmentManifestRequest.ranges")
            request.ranges.append(
                SegmentManifestRange(topic_id=topic_id, partition=partition, first=first, end=end)
            )
        pos = read_end(buf, pos, "SegmentManifestRequest")
    except (StructError, IndexError):
        raise cut_short("SegmentManifestRequest", pos, len(buf)) from None
    return request


def encode_segment_manifest_response(version: int, response: SegmentManifestResponse) -> list[Buffer]:
    if version != 0:
        raise unsupported_version("SegmentManifestResponse", version)
    out = bytearray(_RESPONSE_START.pack(response.throttle_time_ms, response.error_code))
    out += nullable_text(response.error_message)
    out += response.hold
    out += uvarint(len(response.ranges) + 1)
    for answer in response.ranges:
        out += _ANSWER_START.pack(answer.error_code, answer.next)
        out += uvarint(len(answer.aborted) + 1)
        for each in answer.aborted:
            out += _ABORTED.pack(each.producer_id, each.first, each.last, 0)
        out += uvarint(len(answer.segments) + 1)
        for part in answer.segments:
            out += text(part.address)
            out += _SEGMENT.pack(part.start, part.size, part.base, part.last, part.generation, 0)
        out.append(0)
    out.append(0)
    return [out]


def encode_segment_manifest_request(request: SegmentManifestRequest) -> list[Buffer]:
    out = bytearray(_REQUEST_START.pack(request.isolation_level, request.is_signed, request.hold))
    out += uvarint(len(request.ranges) + 1)
    for each in request.ranges:
        out += _RANGE.pack(each.topic_id, each.partition, each.first, each.end, 0)
    out.append(0)
    return [out]


def decode_segment_manifest_response(buf: memoryview, pos: int) -> SegmentManifestResponse:
    response = SegmentManifestResponse()
    try:
        response.throttle_time_ms, response.error_code = _RESPONSE_START.unpack_from(buf, pos)
        pos += _RESPONSE_START.size
        response.error_message, pos = read_nullable_text(buf, pos, "SegmentManifestResponse.error_message")
        response.hold = bytes(buf[pos : pos + len(ZERO_UUID)])
        pos += len(ZERO_UUID)
        count, pos = read_count(buf, pos, _SMALLEST_ANSWER, "SegmentManifestResponse.ranges")
        for _ in range(count):
            answer, pos = _read_answer(buf, pos)
            response.ranges.append(answer)
        pos = read_end(buf, pos, "SegmentManifestResponse")
    except (StructError, IndexError):
        raise cut_short("SegmentManifestResponse", pos, len(buf)) from None
    return response


def _read_answer(buf: memoryview, pos: int) -> tuple[SegmentManifestAnswer, int]:
    answer = SegmentManifestAnswer()
    answer.error_code, answer.next = _ANSWER_START.unpack_from(buf, pos)
    count, pos = read_count(
        buf, pos + _ANSWER_START.size, _ABORTED.size, "SegmentManifestResponse.ranges.aborted"
    )
    for _ in range(count):
        producer_id, first, last, tags = _ABORTED.unpack_from(buf, pos)
        pos = _behind_tags(buf, pos + _ABORTED.size, tags, "SegmentManifestResponse.ranges.aborted")
        answer.aborted.append(AbortedTransactionPart(producer_id=producer_id, first=first, last=last))
    count, pos = read_count(buf, pos, _SMALLEST_SEGMENT, "SegmentManifestResponse.ranges.segments")
    for _ in range(count):
        address, pos = read_text(buf, pos, "SegmentManifestResponse.ranges.segments.address")
        start, size, base, last, generation, tags = _SEGMENT.unpack_from(buf, pos)
        pos = _behind_tags(buf, pos + _SEGMENT.size, tags, "SegmentManifestResponse.ranges.segments")
        answer.segments.append(
            SegmentPart(address=address, start=start, size=size, base=base, last=last, generation=generation)
        )
    tags = buf[pos]
    return answer, _behind_tags(buf, pos + 1, tags, "SegmentManifestResponse.ranges")


def _behind_tags(buf: memoryview, pos: int, tags: int, path: str) -> int:
    return skip_tags(buf, pos, tags, path) if tags else pos
