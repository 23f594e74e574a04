"""Which garbage is collected when, and what is left alone."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from posthouse.cli.collector import LEAST_SECONDS, LONG_SECONDS, MOST_SECONDS, SHARE, Collector


class Knot:
    """Refers to itself: nobody but the collector lets it go."""

    def __init__(self) -> None:
        self.itself = self


class Spent:
    """CPU time: each collection takes as much as is said."""

    def __init__(self) -> None:
        self.of_each = 0.0
        self._calls = 0
        self._total = 0.0

    def __call__(self) -> float:
        self._calls += 1
        if self._calls % 2 == 0:
            self._total += self.of_each
        return self._total


@pytest.fixture
def spent() -> Spent:
    return Spent()


@pytest.fixture
def collector(spent: Spent) -> Iterator[Collector]:
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(700, 10, 2**30)
    gc.unfreeze()
    yield Collector(spent)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def be_busy() -> None:
    """As many objects as make a collection due."""
    made: list[list[int]] = []
    while gc.get_count()[2] < 10:
        made.append([])


def knot() -> "weakref.ref[Knot]":
    """One that is garbage, and so old that collections of young objects pass it by."""
    tied = Knot()
    gc.collect(1)
    return weakref.ref(tied)


def test_nothing_is_looked_through_while_nothing_happens(collector: Collector) -> None:
    lost = knot()
    for second in range(100):
        collector.turn(float(second))
    assert lost() is not None


def test_garbage_goes_when_much_was_made(collector: Collector) -> None:
    lost = knot()
    be_busy()
    collector.turn(1.0)
    assert lost() is None
    assert gc.get_freeze_count() == 0


def test_what_survives_a_long_collection_is_put_aside(collector: Collector, spent: Spent) -> None:
    spent.of_each = 2 * LONG_SECONDS
    kept = Knot()
    be_busy()
    collector.turn(1.0)
    assert not any(each is kept for each in gc.get_objects())
    later = weakref.ref(kept)
    del kept
    spent.of_each = 0.0
    be_busy()
    collector.turn(2.0)
    assert later() is not None, "it was looked through again"


def test_what_was_put_aside_is_looked_through_after_a_while(collector: Collector, spent: Spent) -> None:
    spent.of_each = 2 * LONG_SECONDS
    kept = Knot()
    be_busy()
    collector.turn(1.0)
    later = weakref.ref(kept)
    del kept
    collector.turn(LEAST_SECONDS)
    assert later() is None


def test_looking_through_everything_takes_a_small_share_of_the_time(
    collector: Collector, spent: Spent
) -> None:
    took = 0.1
    spent.of_each = took
    kept = Knot()
    be_busy()
    collector.turn(1.0)
    later = weakref.ref(kept)
    del kept
    collector.turn(took / SHARE - 1)
    assert later() is not None
    collector.turn(took / SHARE)
    assert later() is None


def test_what_was_put_aside_is_looked_through_in_the_end_however_busy_it_is(
    collector: Collector, spent: Spent
) -> None:
    spent.of_each = 1.0
    kept = Knot()
    be_busy()
    collector.turn(1.0)
    later = weakref.ref(kept)
    del kept
    for second in range(2, int(MOST_SECONDS)):
        be_busy()
        collector.turn(float(second))
    assert later() is not None
    be_busy()
    collector.turn(MOST_SECONDS)
    assert later() is None


def test_a_broker_at_rest_is_left_at_rest(collector: Collector, spent: Spent) -> None:
    spent.of_each = 2 * LONG_SECONDS
    be_busy()
    collector.turn(1.0)
    collector.turn(100.0)
    kept = Knot()
    gc.freeze()
    later = weakref.ref(kept)
    del kept
    for second in range(100, 10_000):
        collector.turn(float(second))
    assert later() is not None


async def test_python_itself_leaves_old_objects_alone() -> None:
    thresholds = gc.get_threshold()
    collector = Collector()
    collector.start()
    try:
        lost = knot()
        made: list[list[int]] = []
        while gc.get_count()[2] < 20:
            made.append([])
        assert lost() is not None
    finally:
        collector.stop()
        gc.unfreeze()
    assert gc.get_threshold() == thresholds
