"""Rates from samples of totals, with a clock of their own."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.protocols.admin.flow_rates import FlowRates


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rates(clock: ManualClock) -> FlowRates:
    return FlowRates(clock.monotonic)


def test_rates_and_the_time_to_drain(clock: ManualClock, rates: FlowRates) -> None:
    assert rates.of("q", entered=1000, backlog=500).in_rate is None
    clock.advance(2)
    flow = rates.of("q", entered=1020, backlog=480)  # 20 came, 40 left
    assert (flow.in_rate, flow.out_rate, flow.backlog, flow.drain_seconds) == (10, 20, 480, 48)


def test_a_backlog_that_grows_is_never_drained(clock: ManualClock, rates: FlowRates) -> None:
    rates.of("q", entered=0, backlog=0)
    clock.advance(1)
    flow = rates.of("q", entered=50, backlog=20)
    assert (flow.in_rate, flow.out_rate, flow.drain_seconds) == (50, 30, None)
    clock.advance(1)
    steady = rates.of("q", entered=100, backlog=20)
    clock.advance(5)
    assert steady.drain_seconds is None
    steady = rates.of("q", entered=350, backlog=20)
    assert (steady.in_rate, steady.out_rate, steady.drain_seconds) == (50, 50, None)


def test_an_empty_queue_is_drained(clock: ManualClock, rates: FlowRates) -> None:
    rates.of("q", entered=7, backlog=0)
    clock.advance(3)
    assert rates.of("q", entered=7, backlog=0).drain_seconds == 0


def test_rates_are_those_of_the_last_seconds(clock: ManualClock, rates: FlowRates) -> None:
    entered = 0
    for second in range(30):
        entered += 100 if second < 20 else 0
        flow = rates.of("q", entered=entered, backlog=0)
        clock.advance(1)
    assert flow.in_rate == 0


def test_requests_in_quick_succession_do_not_make_rates_jump(clock: ManualClock, rates: FlowRates) -> None:
    rates.of("q", entered=0, backlog=0)
    for step in range(1, 100):
        clock.advance(0.1)
        flow = rates.of("q", entered=step * 10, backlog=0)
        if step < 10:
            assert flow.in_rate is None
        if step > 10:
            assert flow.in_rate == pytest.approx(100, rel=0.01)


def test_old_samples_are_no_measure(clock: ManualClock, rates: FlowRates) -> None:
    rates.of("q", entered=0, backlog=0)
    clock.advance(121)
    assert rates.of("q", entered=1000, backlog=0).in_rate is None


def test_another_number_of_partitions_begins_anew(clock: ManualClock, rates: FlowRates) -> None:
    rates.of("g", entered=10, backlog=0, shape=1)
    clock.advance(2)
    assert rates.of("g", entered=1_000_000, backlog=0, shape=2).in_rate is None


def test_a_deleted_topic_is_no_negative_rate(clock: ManualClock, rates: FlowRates) -> None:
    rates.of("g", entered=10, backlog=5)
    clock.advance(2)
    flow = rates.of("g", entered=4, backlog=9)
    assert (flow.in_rate, flow.out_rate) == (0, 0)


def test_not_all_subscriptions_of_all_times_are_kept(clock: ManualClock, rates: FlowRates) -> None:
    for number in range(3000):
        rates.of(number, entered=0, backlog=0)
    assert len(rates._kept) == 1000
