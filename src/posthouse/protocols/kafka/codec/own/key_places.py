"""KeyPlaces: where the records of a key or message id may be, for clients that read them by themselves.

request    topic id uuid | kind i8, 0 a key and 1 a message id | name bytes | gap i64 |
           ranges: partition i32 | first i64 | end i64 | tags
           | tags
response   throttle time ms i32 | error i16 | error message, nullable |
           ranges, in the order of the request:
               error i16 | next i64 |
               spans: first i64 | end i64 | tags
               | tags
           | tags

Bytes, texts and lists are compact, as in all flexible versions. `broker/key_index/offset_spans.py` says what
the fields mean.
"""

from struct import Struct
from struct import error as StructError

from posthouse.protocols.kafka.codec.own.fields import (
    nullable_text,
    read_bytes,
    read_count,
    read_end,
    read_nullable_text,
    sized_bytes,
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

KEY = 0
MESSAGE_ID = 1

_REQUEST_START = Struct(">16sb")
_GAP = Struct(">q")
_RANGE = Struct(">iqqB")
_RESPONSE_START = Struct(">ih")
_ANSWER_START = Struct(">hq")
_SPAN = Struct(">qqB")
_SMALLEST_ANSWER = _ANSWER_START.size + 2


class KeyPlacesRange(Message):
    __slots__ = ("end", "first", "partition")

    def __init__(self, *, partition: int = 0, first: int = 0, end: int = 0) -> None:
        self.partition = partition
        self.first = first
        self.end = end


class KeyPlacesRequest(Message):
    __slots__ = ("gap", "kind", "name", "ranges", "topic_id")

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        kind: int = KEY,
        name: bytes = b"",
        gap: int = 0,
        ranges: list[KeyPlacesRange] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.kind = kind
        self.name = name
        self.gap = gap
        self.ranges = ranges or []


class KeyPlacesSpan(Message):
    __slots__ = ("end", "first")

    def __init__(self, *, first: int = 0, end: int = 0) -> None:
        self.first = first
        self.end = end


class KeyPlacesAnswer(Message):
    __slots__ = ("error_code", "next", "spans")

    def __init__(
        self, *, error_code: int = 0, next: int = 0, spans: list[KeyPlacesSpan] | None = None
    ) -> None:
        self.error_code = error_code
        self.next = next
        self.spans = spans or []


class KeyPlacesResponse(Message):
    __slots__ = ("error_code", "error_message", "ranges", "throttle_time_ms")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        ranges: list[KeyPlacesAnswer] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.ranges = ranges or []


def decode_key_places_request(version: int, buf: memoryview, pos: int) -> KeyPlacesRequest:
    if version != 0:
        raise unsupported_version("KeyPlacesRequest", version)
    request = KeyPlacesRequest()
    try:
        request.topic_id, request.kind = _REQUEST_START.unpack_from(buf, pos)
        request.name, pos = read_bytes(buf, pos + _REQUEST_START.size, "KeyPlacesRequest.name")
        [request.gap] = _GAP.unpack_from(buf, pos)
        count, pos = read_count(buf, pos + _GAP.size, _RANGE.size, "KeyPlacesRequest.ranges")
        for _ in range(count):
            partition, first, end, tags = _RANGE.unpack_from(buf, pos)
            pos = _behind_tags(buf, pos + _RANGE.size, tags, "KeyPlacesRequest.ranges")
            request.ranges.append(KeyPlacesRange(partition=partition, first=first, end=end))
        pos = read_end(buf, pos, "KeyPlacesRequest")
    except (StructError, IndexError):
        raise cut_short("KeyPlacesRequest", pos, len(buf)) from None
    return request


def encode_key_places_response(version: int, response: KeyPlacesResponse) -> list[Buffer]:
    if version != 0:
        raise unsupported_version("KeyPlacesResponse", version)
    out = bytearray(_RESPONSE_START.pack(response.throttle_time_ms, response.error_code))
    out += nullable_text(response.error_message)
    out += uvarint(len(response.ranges) + 1)
    for answer in response.ranges:
        out += _ANSWER_START.pack(answer.error_code, answer.next)
        out += uvarint(len(answer.spans) + 1)
        for each in answer.spans:
            out += _SPAN.pack(each.first, each.end, 0)
        out.append(0)
    out.append(0)
    return [out]


def encode_key_places_request(request: KeyPlacesRequest) -> list[Buffer]:
    out = bytearray(_REQUEST_START.pack(request.topic_id, request.kind))
    out += sized_bytes(request.name)
    out += _GAP.pack(request.gap)
    out += uvarint(len(request.ranges) + 1)
    for each in request.ranges:
        out += _RANGE.pack(each.partition, each.first, each.end, 0)
    out.append(0)
    return [out]


def decode_key_places_response(buf: memoryview, pos: int) -> KeyPlacesResponse:
    response = KeyPlacesResponse()
    try:
        response.throttle_time_ms, response.error_code = _RESPONSE_START.unpack_from(buf, pos)
        pos += _RESPONSE_START.size
        response.error_message, pos = read_nullable_text(buf, pos, "KeyPlacesResponse.error_message")
        count, pos = read_count(buf, pos, _SMALLEST_ANSWER, "KeyPlacesResponse.ranges")
        for _ in range(count):
            answer, pos = _read_answer(buf, pos)
            response.ranges.append(answer)
        pos = read_end(buf, pos, "KeyPlacesResponse")
    except (StructError, IndexError):
        raise cut_short("KeyPlacesResponse", pos, len(buf)) from None
    return response


def _read_answer(buf: memoryview, pos: int) -> tuple[KeyPlacesAnswer, int]:
    answer = KeyPlacesAnswer()
    answer.error_code, answer.next = _ANSWER_START.unpack_from(buf, pos)
    count, pos = read_count(buf, pos + _ANSWER_START.size, _SPAN.size, "KeyPlacesResponse.ranges.spans")
    for _ in range(count):
        first, end, tags = _SPAN.unpack_from(buf, pos)
        pos = _behind_tags(buf, pos + _SPAN.size, tags, "KeyPlacesResponse.ranges.spans")
        answer.spans.append(KeyPlacesSpan(first=first, end=end))
    tags = buf[pos]
    return answer, _behind_tags(buf, pos + 1, tags, "KeyPlacesResponse.ranges")


def _behind_tags(buf: memoryview, pos: int, tags: int, path: str) -> int:
    return skip_tags(buf, pos, tags, path) if tags else pos
