"""SegmentManifest and RenewHold: bytes written by hand, and whatever else may arrive."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.kafka.codec.own.renew_hold import RenewHoldRequest, RenewHoldResponse
from posthouse.protocols.kafka.codec.own.segment_manifest import (
    AbortedTransactionPart,
    SegmentManifestAnswer,
    SegmentManifestRange,
    SegmentManifestRequest,
    SegmentManifestResponse,
    SegmentPart,
)
from posthouse.protocols.kafka.codec.primitives import DecodeError, Message, UnsupportedVersion
from posthouse.protocols.kafka.codec.registry import APIS, Api
from tests.protocols.kafka.codec.codec_cases import few

MANIFEST, RENEWAL = APIS[10_001], APIS[10_002]
INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
UUID = st.binary(min_size=16, max_size=16)
TEXT = st.text(max_size=300)

RANGES = st.builds(SegmentManifestRange, topic_id=UUID, partition=INT32, first=INT64, end=INT64)
SEGMENTS = st.builds(
    SegmentPart, address=TEXT, start=INT64, size=INT64, base=INT64, last=INT64, generation=INT32
)
ABORTED = st.builds(AbortedTransactionPart, producer_id=INT64, first=INT64, last=INT64)
ANSWERS = st.builds(
    SegmentManifestAnswer,
    error_code=INT16,
    next=INT64,
    aborted=st.lists(ABORTED, max_size=3),
    segments=st.lists(SEGMENTS, max_size=3),
)
REQUESTS = st.builds(
    SegmentManifestRequest,
    isolation_level=st.integers(-128, 127),
    is_signed=st.booleans(),
    hold=UUID,
    ranges=st.lists(RANGES, max_size=4),
).map(lambda request: (MANIFEST, request)) | st.builds(
    RenewHoldRequest, hold=UUID, is_released=st.booleans()
).map(lambda request: (RENEWAL, request))
RESPONSES = st.builds(
    SegmentManifestResponse,
    throttle_time_ms=INT32,
    error_code=INT16,
    error_message=st.none() | TEXT,
    hold=UUID,
    ranges=st.lists(ANSWERS, max_size=3),
).map(lambda response: (MANIFEST, response)) | st.builds(
    RenewHoldResponse,
    throttle_time_ms=INT32,
    error_code=INT16,
    error_message=st.none() | TEXT,
    is_held=st.booleans(),
).map(lambda response: (RENEWAL, response))
Sample = tuple[Api, Message]

HOLD, TOPIC = bytes(range(16)), bytes(range(16, 32))
REQUEST = SegmentManifestRequest(
    hold=HOLD, ranges=[SegmentManifestRange(topic_id=TOPIC, partition=3, first=5, end=9)]
)
REQUEST_BYTES = (
    b"\1\1" + HOLD + b"\2" + TOPIC + bytes.fromhex("00000003 0000000000000005 0000000000000009 00 00")
)
RESPONSE = SegmentManifestResponse(
    hold=HOLD,
    ranges=[
        SegmentManifestAnswer(
            error_code=1,
            next=9,
            aborted=[AbortedTransactionPart(producer_id=7, first=5, last=6)],
            segments=[SegmentPart(address="x/y", start=48, size=100, base=5, last=8, generation=2)],
        )
    ],
)
RESPONSE_BYTES = (
    bytes.fromhex("00000000 0000 00")
    + HOLD
    + bytes.fromhex("02 0001 0000000000000009")
    + bytes.fromhex("02 0000000000000007 0000000000000005 0000000000000006 00")
    + bytes.fromhex("02 04 782f79 0000000000000030 0000000000000064 0000000000000005 0000000000000008")
    + bytes.fromhex("00000002 00 00 00")
)


def request_bytes(sample: Sample) -> bytes:
    api, request = sample
    return b"".join(api.encode_request(request))


def response_bytes(sample: Sample) -> bytes:
    api, response = sample
    return b"".join(api.encode_response(0, response))


def decoded_request(api: Api, data: bytes) -> Any:
    return api.decode_request(0, memoryview(data), 0)


def decoded_response(api: Api, data: bytes) -> Any:
    return api.decode_response(memoryview(data), 0)


def test_the_bytes() -> None:
    assert request_bytes((MANIFEST, REQUEST)) == REQUEST_BYTES
    assert decoded_request(MANIFEST, REQUEST_BYTES) == REQUEST
    assert response_bytes((MANIFEST, RESPONSE)) == RESPONSE_BYTES
    assert decoded_response(MANIFEST, RESPONSE_BYTES) == RESPONSE
    assert request_bytes((RENEWAL, RenewHoldRequest(hold=HOLD, is_released=True))) == HOLD + b"\1\0"
    assert response_bytes((RENEWAL, RenewHoldResponse(is_held=True))) == bytes(7) + b"\1\0"


def test_an_address_is_not_shown() -> None:
    """It is a secret, and messages may be logged."""
    assert "x/y" not in repr(RESPONSE)


@given(REQUESTS)
def test_requests_come_back(sample: Sample) -> None:
    assert decoded_request(sample[0], request_bytes(sample)) == sample[1]


@given(RESPONSES)
def test_responses_come_back(sample: Sample) -> None:
    assert decoded_response(sample[0], response_bytes(sample)) == sample[1]


@few(60)
@given(
    REQUESTS.map(lambda sample: (decoded_request, sample[0], request_bytes(sample)))
    | RESPONSES.map(lambda sample: (decoded_response, sample[0], response_bytes(sample))),
    st.data(),
)
def test_truncated_damaged_or_followed_by_more(sample: Any, data: st.DataObject) -> None:
    decode, api, encoded = sample
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode(api, encoded[:end])
    with pytest.raises(DecodeError, match="behind the end"):
        decode(api, encoded + b"\0")
    at = data.draw(st.integers(0, len(encoded)))
    patch = data.draw(st.binary(min_size=1, max_size=5))
    with contextlib.suppress(DecodeError):
        decode(api, encoded[:at] + patch + encoded[at + len(patch) :])


@given(st.binary(max_size=120))
def test_arbitrary_bytes(noise: bytes) -> None:
    for api in (MANIFEST, RENEWAL):
        for decode in (decoded_request, decoded_response):
            with contextlib.suppress(DecodeError):
                decode(api, noise)


def test_a_list_that_cannot_be_there() -> None:
    with pytest.raises(DecodeError, match=r"ranges declares 4294967294 elements where 1 bytes"):
        decoded_request(MANIFEST, b"\1\1" + HOLD + b"\xff\xff\xff\xff\x0f\0")


def test_unknown_tags_are_skipped() -> None:
    tagged = REQUEST_BYTES[:-2] + b"\x01\x05\x02ab" + b"\x01\x09\x00"
    assert decoded_request(MANIFEST, tagged) == REQUEST
    assert decoded_response(MANIFEST, RESPONSE_BYTES[:-1] + b"\x01\x05\x01x") == RESPONSE


def test_there_is_one_version() -> None:
    for api, response in ((MANIFEST, RESPONSE), (RENEWAL, RenewHoldResponse())):
        assert api.is_flexible(0)
        for version in (-1, 1):
            with pytest.raises(UnsupportedVersion):
                api.decode_request(version, memoryview(REQUEST_BYTES), 0)
            with pytest.raises(UnsupportedVersion):
                api.encode_response(version, response)
