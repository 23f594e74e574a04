"""The messages that Kafka does not have: there is nothing to compare them with but bytes written by hand."""

import contextlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.kafka.codec import registry
from posthouse.protocols.kafka.codec.own.end_together import (
    ABORT,
    COMMIT,
    QUERY,
    EndTogetherMember,
    EndTogetherRequest,
    EndTogetherResponse,
)
from posthouse.protocols.kafka.codec.primitives import DecodeError, UnsupportedVersion
from tests.protocols.kafka.codec.codec_cases import few

API = registry.APIS[10_000]
INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))

MEMBERS = st.builds(
    EndTogetherMember, transactional_id=st.text(max_size=200), producer_id=INT64, producer_epoch=INT16
)
REQUESTS = st.builds(
    EndTogetherRequest,
    action=st.integers(-128, 127),
    name=st.text(max_size=300),
    sequence=INT64,
    members=st.none() | st.lists(MEMBERS, max_size=5),
)
RESPONSES = st.builds(
    EndTogetherResponse,
    throttle_time_ms=INT32,
    error_code=INT16,
    error_message=st.none() | st.text(max_size=300),
    has_ended=st.booleans(),
    sequence=INT64,
)
REQUEST = EndTogetherRequest(
    action=COMMIT,
    name="q",
    sequence=5,
    members=[EndTogetherMember(transactional_id="q/1", producer_id=7, producer_epoch=2)],
)
REQUEST_BYTES = bytes.fromhex("00 02 71 0000000000000005 02 04 712f31 0000000000000007 0002 00 00")
RESPONSE = EndTogetherResponse(error_code=47, error_message="no", sequence=3)
RESPONSE_BYTES = bytes.fromhex("00000000 002f 03 6e6f 00 0000000000000003 00")


def request_bytes(request: EndTogetherRequest) -> bytes:
    return b"".join(API.encode_request(request))


def response_bytes(response: EndTogetherResponse) -> bytes:
    return b"".join(API.encode_response(0, response))


def decode_request(data: bytes) -> Any:
    return API.decode_request(0, memoryview(data), 0)


def decode_response(data: bytes) -> Any:
    return API.decode_response(memoryview(data), 0)


def test_the_bytes() -> None:
    assert request_bytes(REQUEST) == REQUEST_BYTES
    assert decode_request(REQUEST_BYTES) == REQUEST
    assert response_bytes(RESPONSE) == RESPONSE_BYTES
    assert decode_response(RESPONSE_BYTES) == RESPONSE
    assert request_bytes(EndTogetherRequest(action=ABORT, name="")) == b"\x01\x01" + b"\xff" * 8 + b"\0\0"
    assert decode_request(b"\x02\x01" + b"\xff" * 8 + b"\x01\0") == EndTogetherRequest(
        action=QUERY, members=[]
    )


@given(REQUESTS)
def test_requests_come_back(request: EndTogetherRequest) -> None:
    assert decode_request(request_bytes(request)) == request


@given(RESPONSES)
def test_responses_come_back(response: EndTogetherResponse) -> None:
    assert decode_response(response_bytes(response)) == response


@few(60)
@given(
    REQUESTS.map(lambda request: (decode_request, request_bytes(request)))
    | RESPONSES.map(lambda response: (decode_response, response_bytes(response))),
    st.data(),
)
def test_truncated_damaged_or_followed_by_more(sample: Any, data: Any) -> None:
    decode, encoded = sample
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode(encoded[:end])
    with pytest.raises(DecodeError, match="behind the end"):
        decode(encoded + b"\0")
    at = data.draw(st.integers(0, len(encoded)))
    patch = data.draw(st.binary(min_size=1, max_size=5))
    with contextlib.suppress(DecodeError):
        decode(encoded[:at] + patch + encoded[at + len(patch) :])


@given(st.binary(max_size=80))
def test_arbitrary_bytes(noise: bytes) -> None:
    for decode in (decode_request, decode_response):
        with contextlib.suppress(DecodeError):
            decode(noise)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"\0\0" + bytes(9), r"EndTogetherRequest\.name must not be null"),
        (b"\0\x05ab", r"EndTogetherRequest\.name declares 4 bytes where 2 remain"),
        (b"\0\x03\xc3\x28" + bytes(10), r"EndTogetherRequest\.name is not UTF-8"),
        (
            b"\0\x01" + bytes(8) + b"\xff\xff\xff\xff\x0f\0",
            r"members declares 4294967294 elements where 1 bytes",
        ),
        (b"\0\x01" + bytes(8) + b"\x03" + bytes(23), r"members declares 2 elements where 23 bytes remain"),
        (b"\0\x01" + bytes(8) + b"\x02\0" + bytes(12), r"transactional_id must not be null"),
        (b"\0\x01" + bytes(9) + b"\x41", "EndTogetherRequest has more than 64 tagged fields"),
        (b"", "EndTogetherRequest is cut short"),
    ],
)
def test_the_complaint_names_the_field(body: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        decode_request(body)


def test_lying_lengths_cost_nothing() -> None:
    lies = [b"\xff\xff\xff\xff\x0f", b"\xff\x7f", b"\x7f\xff\xff\xff"]
    damaged = [
        REQUEST_BYTES[:at] + lie + REQUEST_BYTES[at + len(lie) :]
        for at in range(len(REQUEST_BYTES))
        for lie in lies
    ]
    tracemalloc.start()
    try:
        for one in damaged:
            with contextlib.suppress(DecodeError):
                decode_request(one)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_unknown_tags_are_skipped() -> None:
    tagged = REQUEST_BYTES[:-2] + b"\x01\x05\x02ab" + b"\x01\x09\x00"
    assert decode_request(tagged) == REQUEST
    assert decode_response(RESPONSE_BYTES[:-1] + b"\x01\x05\x01x") == RESPONSE


def test_there_is_one_version() -> None:
    for version in (-1, 1):
        with pytest.raises(UnsupportedVersion):
            API.decode_request(version, memoryview(REQUEST_BYTES), 0)
        with pytest.raises(UnsupportedVersion):
            API.encode_response(version, RESPONSE)
    assert API.is_flexible(0)
