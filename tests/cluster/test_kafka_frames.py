"""Requests without responses, however the bytes of a connection are split."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.cluster.kafka_frames import OpenRequests

METADATA, PRODUCE, SASL_HANDSHAKE, INIT_PRODUCER_ID = 3, 0, 17, 22


def frame(key: int, size: int) -> bytes:
    body = key.to_bytes(2, "big") + bytes(size)
    return len(body).to_bytes(4, "big") + body


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


CUTS = st.lists(st.integers(0, 400), max_size=8)


@given(st.lists(st.integers(0, 50), max_size=8), st.data(), CUTS, CUTS)
def test_what_has_no_response_is_repeated(
    sizes: list[int], data: st.DataObject, cuts: list[int], other_cuts: list[int]
) -> None:
    answered = data.draw(st.integers(0, len(sizes)))
    frames = [frame(METADATA, size) for size in sizes]
    requests = OpenRequests()
    for part in pieces(b"".join(frames), cuts):
        requests.sent(part)
    for part in pieces(b"".join(frame(0, size) for size in sizes[:answered]), other_cuts):
        requests.received(part)
    assert requests.to_repeat() == b"".join(frames[answered:])


def test_what_must_not_happen_twice_is_not_repeated() -> None:
    requests = OpenRequests()
    requests.sent(frame(METADATA, 5))
    requests.sent(frame(INIT_PRODUCER_ID, 5))
    assert requests.to_repeat() is None
    requests.received(frame(0, 1))
    assert requests.to_repeat() is None
    requests.received(frame(0, 1))
    assert requests.to_repeat() == b""


@pytest.mark.parametrize("key", [PRODUCE, SASL_HANDSHAKE])
def test_a_login_and_a_produce_request_bind_a_connection_to_its_broker(key: int) -> None:
    requests = OpenRequests()
    requests.sent(frame(key, 5))
    requests.received(frame(0, 1))
    assert requests.to_repeat() is None


def test_half_a_frame_ends_the_connection() -> None:
    for half in (frame(METADATA, 20)[:-1], frame(METADATA, 20)[:3]):
        requests = OpenRequests()
        requests.sent(half)
        assert requests.to_repeat() is None
