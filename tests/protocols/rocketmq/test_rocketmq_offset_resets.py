"""Resets of groups whose consumers run: who is told, and which commits count."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId, TopicId
from posthouse.protocols.rocketmq.offset_resets import (
    LONGEST_WAIT_SECONDS,
    OVERDUE_SECONDS,
    TOLD_SECONDS,
    OffsetResets,
)

ZERO, ONE = (PartitionId(TopicId(bytes(16)), index) for index in range(2))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def resets(clock: ManualClock) -> OffsetResets:
    return OffsetResets(clock.monotonic)


def has_members(_: str) -> bool:
    return True


def test_nothing_is_reset(resets: OffsetResets) -> None:
    assert "g" not in resets
    assert resets.redirect("g", ZERO, 5) is None
    assert not resets.drops("g", ZERO, 5)
    assert resets.overdue() == {}


def test_a_consumer_is_told_once_and_begins_anew(resets: OffsetResets) -> None:
    resets.begin("g", {ZERO: 3})
    assert resets.redirect("g", ONE, 9) is None
    assert resets.drops("g", ZERO, 9)
    assert not resets.drops("g", ONE, 9)
    assert not resets.drops("h", ZERO, 9)
    assert resets.redirect("g", ZERO, 9) == 3
    assert resets.redirect("g", ZERO, 9) is None
    assert resets.drops("g", ZERO, 9)
    assert not resets.drops("g", ZERO, 3)
    assert not resets.drops("g", ZERO, 9)
    assert "g" not in resets


def test_an_old_commit_of_the_same_offset_tells_nothing(resets: OffsetResets) -> None:
    """The consumer has come there, and holds more: it has still to be told."""
    resets.begin("g", {ZERO: 3})
    assert resets.drops("g", ZERO, 3)
    assert resets.redirect("g", ZERO, 9) == 3


def test_a_consumer_that_begins_where_it_should(resets: OffsetResets) -> None:
    resets.begin("g", {ZERO: 3, ONE: 4})
    assert resets.redirect("g", ZERO, 3) is None
    assert not resets.drops("g", ZERO, 5)
    assert resets.redirect("g", ONE, 9) == 4
    assert resets.redirect("g", ONE, 4) is None
    assert not resets.drops("g", ONE, 5)


def test_a_second_reset_takes_the_place_of_the_first(resets: OffsetResets) -> None:
    take_back = resets.begin("g", {ZERO: 3})
    resets.begin("g", {ZERO: 7})
    take_back()
    assert resets.redirect("g", ZERO, 9) == 7


def test_a_reset_that_could_not_be_stored(resets: OffsetResets) -> None:
    take_back = resets.begin("g", {ZERO: 3, ONE: 4})
    assert resets.redirect("g", ONE, 9) == 4
    take_back()
    assert resets.redirect("g", ZERO, 9) is None
    assert not resets.drops("g", ZERO, 9)
    assert resets.drops("g", ONE, 9)


def test_consumers_that_do_not_pull(resets: OffsetResets, clock: ManualClock) -> None:
    resets.begin("g", {ZERO: 3})
    clock.advance(OVERDUE_SECONDS / 2)
    resets.begin("g", {ONE: 4})
    assert resets.overdue() == {}
    clock.advance(OVERDUE_SECONDS / 2)
    assert resets.overdue() == {"g": {ZERO: 3}}
    resets.told("g", ZERO)
    assert resets.overdue() == {}
    assert resets.redirect("g", ZERO, 9) is None
    assert resets.drops("g", ZERO, 9)


def test_resets_end(resets: OffsetResets, clock: ManualClock) -> None:
    resets.begin("g", {ZERO: 3, ONE: 4})
    assert resets.redirect("g", ZERO, 9) == 3
    clock.advance(TOLD_SECONDS - 1)
    resets.forget_expired(has_members)
    assert resets.drops("g", ZERO, 9)
    clock.advance(1)
    resets.forget_expired(has_members)
    assert not resets.drops("g", ZERO, 9)
    clock.advance(LONGEST_WAIT_SECONDS)
    resets.forget_expired(has_members)
    assert "g" not in resets
    resets.begin("g", {ZERO: 3})
    resets.forget_expired(lambda _: False)
    assert "g" not in resets
