"""Whatever arrives, a decoder returns a value or raises DecodeError, and costs no more than it was sent."""

import contextlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.kafka.codec import registry
from posthouse.protocols.kafka.codec.primitives import DecodeError, Message, UnsupportedVersion
from tests.protocols.kafka.codec.codec_cases import NEWEST, REQUESTS, Case, few, kio_bytes

DECODED = [
    # One function decodes all versions of a request: those between oldest and newest show little else.
    case if case.is_edge else pytest.param(case, marks=pytest.mark.long)
    for case in REQUESTS
] + [case for case in NEWEST if case.side == "response"]
LIES = [
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\xff\x7f",
]


def decoder(case: Case) -> Callable[[bytes], Message]:
    if case.side == "request":
        return lambda encoded: case.api.decode_request(case.version, memoryview(encoded), 0)
    return lambda encoded: case.api.decode_response(memoryview(encoded), 0)


def samples(case: Case, largest: int) -> st.SearchStrategy[bytes]:
    encoded = case.plain_values.map(lambda plain: kio_bytes(case.to_kio(plain)))
    return encoded.filter(lambda sample: len(sample) <= largest)


@pytest.mark.parametrize("case", DECODED, ids=str)
def test_every_truncation_and_any_excess_is_refused(case: Case) -> None:
    decode = decoder(case)

    @few(3)
    @given(samples(case, 600))
    def check(sample: bytes) -> None:
        for end in range(len(sample)):
            with pytest.raises(DecodeError):
                decode(sample[:end])
        with pytest.raises(DecodeError, match="behind the end"):
            decode(sample + b"\0")

    check()


@pytest.mark.parametrize("case", DECODED, ids=str)
def test_arbitrary_bytes(case: Case) -> None:
    decode = decoder(case)

    @few(25)
    @given(st.binary(max_size=80))
    def check(noise: bytes) -> None:
        with contextlib.suppress(DecodeError):
            decode(noise)

    check()


@pytest.mark.parametrize("case", DECODED, ids=str)
def test_damaged_messages(case: Case) -> None:
    decode = decoder(case)

    @few(15)
    @given(samples(case, 2000), st.data())
    def check(sample: bytes, data: Any) -> None:
        at = data.draw(st.integers(0, len(sample)))
        patch = data.draw(st.binary(min_size=1, max_size=5))
        for damaged in (sample[:at] + patch + sample[at:], sample[:at] + patch + sample[at + len(patch) :]):
            with contextlib.suppress(DecodeError):
                decode(damaged)

    check()


@pytest.mark.parametrize("case", DECODED, ids=str)
def test_lying_lengths_cost_nothing(case: Case) -> None:
    decode = decoder(case)

    @few(2)
    @given(samples(case, 200))
    def check(sample: bytes) -> None:
        damaged = [sample[:at] + lie + sample[at + len(lie) :] for at in range(len(sample)) for lie in LIES]
        # Not while samples are made, which takes most of the time and would take several times as long.
        tracemalloc.start()
        try:
            for one in damaged:
                with contextlib.suppress(DecodeError):
                    decode(one)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200_000

    check()


@pytest.mark.parametrize(
    ("version", "body", "complaint"),
    [
        (0, b"\xff\xff", r"FindCoordinatorRequest\.key must not be null"),
        (0, b"\xff\xfe", r"FindCoordinatorRequest\.key declares -2 bytes"),
        (0, b"\0\x05abc", r"FindCoordinatorRequest\.key declares 5 bytes where 3 remain"),
        (0, b"\0\x02\xc3\x28", r"FindCoordinatorRequest\.key is not UTF-8"),
        (3, b"\0\0\0", r"FindCoordinatorRequest\.key must not be null"),
        (3, b"\x02a\0\x41", r"FindCoordinatorRequest has more than 64 tagged fields"),
        (3, b"\x02a\0\xff\xff\xff\xff\x0f", r"FindCoordinatorRequest has more than 64 tagged fields"),
        (3, b"\x02a\0\x01\x05\x03ab", r"FindCoordinatorRequest tag 5 declares 3 bytes where 2 remain"),
        (3, b"\x80\x80\x80\x80\x10a\0\0", "varint of more than 32 bits"),
        (3, b"\x81\x80\x80\x80\x80\x00a\0\0", "varint of more than 32 bits"),
        (3, b"\x02a\0\0\0", "1 bytes behind the end of FindCoordinatorRequest"),
        (4, b"\0\0\0", r"FindCoordinatorRequest\.coordinator_keys must not be null"),
        (4, b"\0\x05\x02a\0", r"FindCoordinatorRequest\.coordinator_keys declares 4 elements where 3 bytes"),
        (4, b"\0", "FindCoordinatorRequest is cut short: a field at byte 0 goes beyond the end at 1"),
    ],
)
def test_the_complaint_names_the_field(version: int, body: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        registry.decode_request(10, version, memoryview(body), 0)


def test_unknown_tags_are_skipped() -> None:
    body = b"\x02a\0\x02\x05\x02ab\xff\x01\x00"
    request = registry.decode_request(10, 3, memoryview(body), 0)
    assert request == registry.decode_request(10, 3, memoryview(b"\x02a\0\0"), 0)


def test_a_known_tag_must_have_the_length_that_it_declares() -> None:
    """Tag 3 of ApiVersionsResponse is a boolean."""
    good = b"\0\0\x01\0\0\0\0\x01\x03\x01\x01"
    response: Any = registry.APIS[18].decode_response(memoryview(good), 0)
    assert response.zk_migration_ready
    with pytest.raises(DecodeError, match="tag 3 does not have the length"):
        registry.APIS[18].decode_response(memoryview(good[:-2] + b"\x02\x01\x01"), 0)


@pytest.mark.parametrize(("api_key", "version"), [(0, 2), (0, 14), (0, -1), (999, 0), (-1, 0)])
def test_unknown_api_or_version(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        registry.decode_request(api_key, version, memoryview(b""), 0)
    with pytest.raises(UnsupportedVersion):
        registry.encode_response(api_key, version, Message())
