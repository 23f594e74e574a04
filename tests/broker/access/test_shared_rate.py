"""A rate that brokers grant together: who gets which share, and that all of them get about the rate."""

import math
from collections.abc import Sequence
from functools import partial
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.access.shared_rate import SharedRate, fair_share
from posthouse.broker.cluster_usage import ClusterUsage
from posthouse.model.clock import ManualClock
from posthouse.model.usage import Limited

RATE = 1000.0
STEP_SECONDS = 0.05
REPORT_STEPS = 10
"""Half a second between reports."""


@pytest.mark.parametrize(
    ("others", "share"),
    [
        ([], 1000),
        ([0], 1000),
        ([300], 700),
        ([700], 500),
        ([math.inf], 500),
        ([math.inf, 0], 500),
        ([math.inf, 200], 400),
        ([200, 300, math.inf], 800 / 3),
        ([math.inf, math.inf, math.inf], 250),
    ],
)
def test_shares(others: list[float], share: float) -> None:
    assert fair_share(RATE, others) == pytest.approx(share)


@given(st.lists(st.floats(0, 2000) | st.just(math.inf), max_size=8))
def test_shares_that_are_taken_are_the_rate_in_all(needs: list[float]) -> None:
    """Each broker computes its own share, from what the others need."""
    shares = [
        min(need, fair_share(RATE, needs[:number] + needs[number + 1 :])) for number, need in enumerate(needs)
    ]
    assert sum(shares) == pytest.approx(min(RATE, sum(needs)))


class Brokers:
    """With one client each, which takes as much in a second as it wants and is let."""

    def __init__(self, wanted: Sequence[float]) -> None:
        self.clock = ManualClock()
        self.wanted = list(wanted)
        self.taken = [0.0 for _ in wanted]
        self._ids = [uuid4() for _ in wanted]
        self._usages = [ClusterUsage(b"secret", self.clock, partial(self._others, own)) for own in self._ids]
        for usage in self._usages:
            for each in self._ids:
                usage.told(each, [])
        self._rates = [SharedRate(RATE, 0.0, usage, Limited.WRITTEN, "ann") for usage in self._usages]
        self._waits_until = [0.0 for _ in wanted]
        self._steps = 0

    def _others(self, own: UUID) -> list[UUID]:
        return [each for each in self._ids if each != own]

    def go_on(self, seconds: float) -> list[float]:
        """The rates that the clients got."""
        before = list(self.taken)
        for _ in range(round(seconds / STEP_SECONDS)):
            self._step()
        return [(after - earlier) / seconds for after, earlier in zip(self.taken, before, strict=True)]

    def _step(self) -> None:
        now = self.clock.monotonic()
        for number, rate in enumerate(self._rates):
            if self._waits_until[number] <= now:
                amount = min(self.wanted[number], 5 * RATE) * STEP_SECONDS
                self.taken[number] += amount
                self._waits_until[number] = now + rate.take(amount, now)
            # Brokers report at different moments.
            if self._steps % REPORT_STEPS == number % REPORT_STEPS:
                usage = self._usages[number]
                use = rate.use(now, usage.least_told)
                report = usage.report([] if use is None else [use])
                for other in self._usages:
                    other.told(self._ids[number], report)
        self._steps += 1
        self.clock.advance(STEP_SECONDS)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ([math.inf], [1000]),
        ([math.inf, 0], [1000, 0]),
        ([math.inf, math.inf], [500, 500]),
        ([math.inf, 200], [800, 200]),
        ([400, 400], [400, 400]),
        ([math.inf, math.inf, 0], [500, 500, 0]),
        ([math.inf, math.inf, 100], [450, 450, 100]),
        ([math.inf] * 6 + [0] * 4, [1000 / 6] * 6 + [0] * 4),
    ],
)
def test_each_gets_what_it_needs_and_all_of_them_the_rate(wanted: list[float], got: list[float]) -> None:
    brokers = Brokers(wanted)
    brokers.go_on(20)
    found = brokers.go_on(20)
    assert sum(found) == pytest.approx(sum(got), rel=0.1)
    assert found == pytest.approx(got, rel=0.15, abs=1)


def test_a_client_that_moves_to_another_broker_takes_its_rate_with_it() -> None:
    brokers = Brokers([math.inf, 0])
    brokers.go_on(10)
    brokers.wanted.reverse()
    brokers.go_on(10)
    assert brokers.go_on(10) == pytest.approx([0, RATE], rel=0.1)


@pytest.mark.parametrize("count", [2, 5])
def test_clients_that_begin_together_get_too_much_for_some_seconds_only(count: int) -> None:
    """At first each broker believes that it is the only one that is used."""
    brokers = Brokers([math.inf] * count)
    brokers.go_on(1)
    assert sum(brokers.taken) > 1.5 * RATE
    brokers.go_on(19)
    assert sum(brokers.taken) < RATE * 20 + 2 * count * RATE


def test_a_broker_that_tells_nothing_is_left_its_equal_share() -> None:
    clock = ManualClock()
    usage = ClusterUsage(b"secret", clock, lambda: [uuid4()])
    rate = SharedRate(RATE, 0.0, usage, Limited.WRITTEN, "ann")
    assert rate.take(RATE, 0.0) == 1.0


def test_debts_stay_when_the_share_changes() -> None:
    clock, other = ManualClock(), uuid4()
    live: list[UUID] = []
    rate = SharedRate(RATE, 0.0, ClusterUsage(b"secret", clock, lambda: live), Limited.READ, "ann")
    assert rate.take(5 * RATE, 0.0) == 4.0
    live.append(other)
    assert rate.take(0.0, 1.0) == pytest.approx(3.5 / 0.5), "half a second at half of the rate was counted"
