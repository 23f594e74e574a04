"""Leases and their deadlines, as queues and subscriptions have them."""

import math

from posthouse.broker.progress.deadlines import Deadlines
from posthouse.broker.progress.positions import LeaseTable
from posthouse.broker.progress.progress import Progress


class Holder:
    """Compared by identity."""


def leased(*positions: int) -> tuple[LeaseTable[Holder], Progress, Holder]:
    progress = Progress(bytes(16), 0)
    table: LeaseTable[Holder] = LeaseTable(progress)
    holder = Holder()
    table.holders |= dict.fromkeys(positions, holder)
    return table, progress, holder


def settled(progress: Progress, end: int) -> list[int]:
    return [position for position in range(end) if progress.is_settled(position)]


def test_a_holder_settles_once() -> None:
    table, progress, holder = leased(0, 1)
    assert table.settle(1, holder)
    assert not table.settle(1, holder)
    assert (list(table.holders), settled(progress, 3)) == ([0], [1])


def test_a_holder_that_lost_its_lease_settles_and_releases_nothing() -> None:
    table, progress, holder = leased(0)
    table.holders[0] = other = Holder()
    assert not table.settle(0, holder) and not table.release(0, holder)
    assert table.holders == {0: other} and not settled(progress, 1)


def test_what_is_released_is_neither_leased_nor_settled() -> None:
    table, progress, holder = leased(0)
    assert table.release(0, holder) and not table.release(0, holder)
    assert not table.holders and not settled(progress, 1)


def test_a_settlement_that_is_undone_is_a_lease_again() -> None:
    table, progress, holder = leased(0, 1)
    table.settle(0, holder)
    table.unsettle(0, holder)
    assert table.holders == {0: holder, 1: holder} and not settled(progress, 2)


def test_a_range_is_settled_with_its_leases() -> None:
    table, progress, _ = leased(1, 2, 3)
    table.settle_range(1, 3)
    assert (list(table.holders), settled(progress, 5)) == ([3], [1, 2])


def test_leases_stay_where_all_others_are_settled() -> None:
    table, progress, _ = leased(4, 1, 9)
    table.settle_unleased(0, 6)
    table.settle_unleased(6, 6)
    assert (sorted(table.holders), settled(progress, 10)) == ([1, 4, 9], [0, 2, 3, 5])


def test_leases_on_records_that_are_gone_end() -> None:
    table, progress, _ = leased(0, 1, 2)
    table.drop_below(2)
    assert list(table.holders) == [2] and not settled(progress, 3)


def test_deadlines_end_once_and_in_order() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next == math.inf and deadlines.overdue(100) == []
    deadlines.set("late", 3)
    deadlines.set("first", 1)
    deadlines.set("second", 1)
    assert deadlines.next == 1
    assert deadlines.overdue(0.5) == []
    assert deadlines.overdue(2) == ["first", "second"]
    assert deadlines.overdue(2) == []
    assert deadlines.overdue(3) == ["late"]


def test_deadlines_that_are_replaced_or_dropped() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for holder in ("extended", "shortened", "dropped"):
        deadlines.set(holder, 5)
    deadlines.set("extended", 10)
    deadlines.set("shortened", 1)
    deadlines.drop("dropped")
    deadlines.drop("unknown")
    assert deadlines.overdue(1) == ["shortened"]
    assert deadlines.overdue(5) == []
    assert deadlines.overdue(10) == ["extended"]
    deadlines.set("cleared", 11)
    deadlines.clear()
    assert deadlines.next == math.inf and deadlines.overdue(11) == []
