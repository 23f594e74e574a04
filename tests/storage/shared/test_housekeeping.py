"""Parts run when they are due; failures are tried again, and a lost lease ends it all."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping.housekeeping import Housekeeping, HousekeepingPart


class Part:
    def __init__(self) -> None:
        self.turns = 0
        self.failure: Exception | None = None

    async def run_once(self) -> None:
        self.turns += 1
        if self.failure is not None:
            raise self.failure


def made(clock: ManualClock, lost: list[LeaseLost], **parts: tuple[Part, float]) -> Housekeeping:
    return Housekeeping(
        [
            HousekeepingPart(name=name, run_once=part.run_once, seconds=seconds)
            for name, (part, seconds) in parts.items()
        ],
        clock,
        lost.append,
    )


async def test_each_part_has_its_interval(clock: ManualClock) -> None:
    often, seldom = Part(), Part()
    work = made(clock, [], often=(often, 10), seldom=(seldom, 30))
    for _ in range(6):
        clock.advance(10)
        await work.run_due()
    assert (often.turns, seldom.turns) == (6, 2)


async def test_a_failure_is_logged_once_and_tried_again(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    part, other = Part(), Part()
    work = made(clock, [], part=(part, 10), other=(other, 10))
    part.failure = Unavailable("PostgreSQL is away")
    for _ in range(3):
        clock.advance(10)
        await work.run_due()
    assert (part.turns, other.turns) == (3, 3)
    assert caplog.text.count("PostgreSQL is away") == 1
    part.failure = ValueError("a bug")
    clock.advance(10)
    await work.run_due()
    assert "a bug" in caplog.text
    part.failure = None
    clock.advance(10)
    await work.run_due()
    assert "part: possible again" in caplog.text


async def test_a_lost_lease_ends_it(clock: ManualClock) -> None:
    lost: list[LeaseLost] = []
    part = Part()
    part.failure = LeaseLost("another broker has it")
    work = made(clock, lost, part=(part, 0))
    work.start()
    deadline = asyncio.get_running_loop().time() + 30
    while not lost:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    await work.stop()
    assert lost == [part.failure]
    assert part.turns == 1
