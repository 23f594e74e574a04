from collections.abc import Callable

import pytest

from posthouse.model.clock import ManualClock
from posthouse.protocols.rocketmq import queue_locks
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue
from posthouse.protocols.rocketmq.queue_locks import LOCK_SECONDS, QueueLocks

Q0, Q1, Q2 = (MessageQueue(topic="t", broker="b", queue=number) for number in range(3))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> QueueLocks:
    return QueueLocks(clock.monotonic)


def test_one_client_of_a_group_holds_a_queue(locks: QueueLocks) -> None:
    assert locks.lock("g", "one", [Q0, Q1]) == [Q0, Q1]
    assert locks.lock("g", "two", [Q1, Q2]) == [Q2]
    assert locks.lock("h", "two", [Q0]) == [Q0]
    locks.unlock("g", "two", [Q0, Q2])
    assert locks.lock("g", "three", [Q0, Q1, Q2]) == [Q2]


def test_a_lock_expires_unless_it_is_renewed(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "one", [Q0, Q1])
    clock.advance(LOCK_SECONDS - 1)
    assert locks.lock("g", "one", [Q0]) == [Q0]
    clock.advance(1)
    assert locks.lock("g", "two", [Q0, Q1]) == [Q1]
    clock.advance(LOCK_SECONDS - 1)
    assert locks.lock("g", "two", [Q0]) == [Q0]


@pytest.mark.parametrize("sweep", [True, False])
def test_nothing_is_left(locks: QueueLocks, clock: ManualClock, sweep: bool) -> None:
    locks.lock("g", "one", [Q0, Q1])
    locks.lock("h", "one", [])
    locks.unlock("none", "one", [Q0])
    clock.advance(LOCK_SECONDS / 2)
    locks.lock("g", "one", [Q1])
    if sweep:
        clock.advance(LOCK_SECONDS / 2)
        locks.forget_expired()
        assert locks._count == 1
        assert locks.lock("g", "two", [Q0, Q1]) == [Q0]
        clock.advance(LOCK_SECONDS)
        locks.forget_expired()
    else:
        locks.unlock("g", "one", [Q0, Q1])
    assert not locks._groups
    assert locks._count == 0


def test_groups_that_consume_in_order(locks: QueueLocks, clock: ManualClock) -> None:
    assert not locks.is_used_by("g")
    locks.lock("g", "one", [Q0, Q1])
    assert locks.is_used_by("g") and not locks.is_used_by("h")
    clock.advance(LOCK_SECONDS)
    assert not locks.is_used_by("g")
    locks.lock("g", "one", [Q1])
    assert locks.is_used_by("g")
    locks.unlock("g", "one", [Q1])
    assert not locks.is_used_by("g")


def test_there_are_not_more_than_a_limit(
    locks: QueueLocks, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_locks, "MOST_LOCKS", 2)
    lock: Callable[..., list[MessageQueue]] = locks.lock
    assert lock("g", "one", [Q0, Q1, Q2]) == [Q0, Q1]
    assert lock("h", "one", [Q0]) == []
    assert lock("g", "one", [Q0, Q1]) == [Q0, Q1]
    assert "h" not in locks._groups
    clock.advance(LOCK_SECONDS)
    assert lock("g", "two", [Q0]) == [Q0]
    assert locks._count == 2
    locks.unlock("g", "two", [Q0])
    assert lock("h", "one", [Q0]) == [Q0]
