"""Spans of messages that expire: the earliest time is known, and each position is due once its span is."""

from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.queues.expiries import SPAN, Expiries

times = st.integers(1, 50)


def test_nothing_is_due_where_nothing_expires() -> None:
    expiries = Expiries()
    assert expiries.earliest is None
    assert expiries.due(2**60) is None


def test_neighbours_share_a_span_with_the_earliest_of_their_times() -> None:
    expiries = Expiries()
    expiries.add(0, 1, 30)
    expiries.add(1, 2, 10)
    assert expiries.earliest == 10
    assert expiries.due(9) is None
    assert expiries.due(10) == (0, 2)
    assert expiries.earliest is None


@given(
    runs=st.lists(st.tuples(times, st.sampled_from([1, 7, SPAN - 1])), max_size=20),
    spans=st.lists(st.tuples(times, st.integers(0, 100)), max_size=10),
    now=times,
)
def test_what_is_due_was_added_and_what_is_left_is_later(
    runs: list[tuple[int, int]], spans: list[tuple[int, int]], now: int
) -> None:
    expiries = Expiries()
    at = 0
    positions: dict[int, int] = {}
    for expires_ms, count in runs:
        expiries.add(at, at + count, expires_ms)
        positions[at] = expires_ms
        at += count
    for expires_ms, first in spans:
        expiries.add_span(expires_ms, first, first + 1)
    earliest = min([*positions.values(), *(expires_ms for expires_ms, _ in spans)], default=None)
    assert expiries.earliest == earliest
    found = []
    while (span := expiries.due(now)) is not None:
        assert earliest is not None and earliest <= now
        found.append(span)
    for first, expires_ms in positions.items():
        if expires_ms <= now:
            assert any(begin <= first < end for begin, end in found)
    assert expiries.earliest is None or expiries.earliest > now
