"""KeyPlaces: bytes written by hand, and whatever else may arrive."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.kafka.codec.own.key_places import (
    MESSAGE_ID,
    KeyPlacesAnswer,
    KeyPlacesRange,
    KeyPlacesRequest,
    KeyPlacesResponse,
    KeyPlacesSpan,
)
from posthouse.protocols.kafka.codec.primitives import DecodeError, UnsupportedVersion
from posthouse.protocols.kafka.codec.registry import APIS
from tests.protocols.kafka.codec.codec_cases import few

API = APIS[10_003]
INT8, INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (7, 15, 31, 63))

REQUESTS = st.builds(
    KeyPlacesRequest,
    topic_id=st.binary(min_size=16, max_size=16),
    kind=INT8,
    name=st.binary(max_size=300),
    gap=INT64,
    ranges=st.lists(st.builds(KeyPlacesRange, partition=INT32, first=INT64, end=INT64), max_size=3),
)
SPANS = st.builds(KeyPlacesSpan, first=INT64, end=INT64)
ANSWERS = st.builds(KeyPlacesAnswer, error_code=INT16, next=INT64, spans=st.lists(SPANS, max_size=3))
RESPONSES = st.builds(
    KeyPlacesResponse,
    throttle_time_ms=INT32,
    error_code=INT16,
    error_message=st.none() | st.text(max_size=300),
    ranges=st.lists(ANSWERS, max_size=3),
)

TOPIC = bytes(range(16))
REQUEST = KeyPlacesRequest(
    topic_id=TOPIC,
    kind=MESSAGE_ID,
    name=b"\xff1",
    gap=7,
    ranges=[KeyPlacesRange(partition=3, first=5, end=9)],
)
REQUEST_BYTES = TOPIC + bytes.fromhex(
    "01 03 ff31 0000000000000007 02 00000003 0000000000000005 0000000000000009 00 00"
)
RESPONSE = KeyPlacesResponse(
    ranges=[KeyPlacesAnswer(error_code=1, next=9, spans=[KeyPlacesSpan(first=5, end=6)])]
)
RESPONSE_BYTES = bytes.fromhex(
    "00000000 0000 00 02 0001 0000000000000009 02 0000000000000005 0000000000000006 00 00 00"
)


def request_bytes(request: KeyPlacesRequest) -> bytes:
    return b"".join(API.encode_request(request))


def response_bytes(response: KeyPlacesResponse) -> bytes:
    return b"".join(API.encode_response(0, response))


def decoded_request(data: bytes) -> Any:
    return API.decode_request(0, memoryview(data), 0)


def decoded_response(data: bytes) -> Any:
    return API.decode_response(memoryview(data), 0)


def test_the_bytes() -> None:
    assert request_bytes(REQUEST) == REQUEST_BYTES
    assert decoded_request(REQUEST_BYTES) == REQUEST
    assert response_bytes(RESPONSE) == RESPONSE_BYTES
    assert decoded_response(RESPONSE_BYTES) == RESPONSE


@few(25)
@given(
    REQUESTS.map(lambda each: (decoded_request, each, request_bytes(each)))
    | RESPONSES.map(lambda each: (decoded_response, each, response_bytes(each))),
    st.data(),
)
def test_whole_truncated_damaged_or_followed_by_more(sample: Any, data: st.DataObject) -> None:
    decode, message, encoded = sample
    assert decode(encoded) == message
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode(encoded[:end])
    with pytest.raises(DecodeError, match="behind the end"):
        decode(encoded + b"\0")
    at = data.draw(st.integers(0, len(encoded)))
    patch = data.draw(st.binary(min_size=1, max_size=5))
    with contextlib.suppress(DecodeError):
        decode(encoded[:at] + patch + encoded[at + len(patch) :])


@given(st.binary(max_size=120))
def test_arbitrary_bytes(noise: bytes) -> None:
    for decode in (decoded_request, decoded_response):
        with contextlib.suppress(DecodeError):
            decode(noise)


def test_what_cannot_be_there() -> None:
    with pytest.raises(DecodeError, match="name"):
        decoded_request(TOPIC + b"\0\xff\xff\xff\xff\x0f" + bytes(20))
    with pytest.raises(DecodeError, match="name"):
        decoded_request(TOPIC + b"\0\0" + bytes(20))
    with pytest.raises(DecodeError, match="ranges"):
        decoded_request(TOPIC + b"\0\1" + bytes(8) + b"\xff\xff\xff\xff\x0f\0")


def test_unknown_tags_are_skipped() -> None:
    tagged = REQUEST_BYTES[:-2] + b"\x01\x05\x02ab" + b"\x01\x09\x00"
    assert decoded_request(tagged) == REQUEST
    assert decoded_response(RESPONSE_BYTES[:-1] + b"\x01\x05\x01x") == RESPONSE


def test_there_is_one_version() -> None:
    assert API.is_flexible(0)
    for version in (-1, 1):
        with pytest.raises(UnsupportedVersion):
            API.decode_request(version, memoryview(REQUEST_BYTES), 0)
        with pytest.raises(UnsupportedVersion):
            API.encode_response(version, RESPONSE)
