"""Which period an entry waits in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.broker.schedule.entry import LATEST_MS
from posthouse.broker.schedule.periods import (
    COARSEST_BITS,
    FAN_OUT_BITS,
    MOST_PARTS,
    NEAR_PAST_MS,
    Period,
    period_for,
)
from tests.examples import examples

TIMES = st.integers(0, LATEST_MS)
DELAYS = st.integers(2, 47).flatmap(
    lambda bits: st.integers(0, 1 << bits) | st.integers(1 << bits, (1 << bits) + (1 << bits - 2))
)


@settings(max_examples=examples(1000))
@given(TIMES, DELAYS)
def test_a_period_holds_what_is_put_into_it(now: int, delay: int) -> None:
    period = period_for(now + delay, now)
    assert period.start_ms <= now + delay < period.end_ms
    assert period.is_finest or period.opens_ms > now, "it is opened later, so that nothing comes too late"
    assert period.bits <= COARSEST_BITS


@given(TIMES, TIMES)
def test_what_is_due_needs_few_periods(due: int, now: int) -> None:
    due, now = sorted((due, now))
    period = period_for(due, now)
    assert period.is_finest and period.opens_ms <= now
    if now - due <= NEAR_PAST_MS:
        assert period.start_ms <= due < period.end_ms
    else:
        assert period == period_for(now - NEAR_PAST_MS, now)


@given(TIMES, DELAYS)
def test_parts_lie_within(now: int, delay: int) -> None:
    period = period_for(now + delay, now)
    while not period.is_finest:
        part = period.part(now + delay)
        assert part.start_ms <= now + delay < part.end_ms
        assert period.start_ms <= part.start_ms and part.end_ms <= period.end_ms
        period = part


def test_few_periods_reach_far() -> None:
    now = 1_700_000_000_123
    for bits in range(10, COARSEST_BITS, FAN_OUT_BITS):
        width = 1 << bits
        dues = range(now, now + (width << FAN_OUT_BITS) + 2 * width, width // 4)
        periods = {period for period in (period_for(due, now) for due in dues) if period.bits == bits}
        assert len(periods) <= (1 << FAN_OUT_BITS) + 2


def test_a_period_has_as_many_parts_as_it_may() -> None:
    period = Period(16, 1 << 16)
    assert len({period.part(due) for due in range(period.start_ms, period.end_ms, 100)}) == MOST_PARTS - 1
