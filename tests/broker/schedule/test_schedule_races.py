"""Publishers and the schedule at the same time."""

import asyncio
from collections.abc import Sequence

import pytest

from posthouse.broker.schedule.entry import Scheduled
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome
from tests.broker.schedule.office import HOUR, SECOND, Office, message

MANY = 30
"""More than are loaded without being moved to shorter periods first."""


def committed(office: Office, *entries: Scheduled) -> "asyncio.Future[list[Outcome]]":
    """Under way, and not durable yet."""
    return office.storage.commit(office.schedule.appends(entries))


async def test_a_message_on_its_way_into_a_log_that_is_let_go(office: Office) -> None:
    await office.delay(100)
    await office.advance(100)
    under_way = committed(office, message(office.clock.now_ms(), b"under way"))
    office.clock.advance(2)
    await office.schedule.fire_due()
    await under_way
    await office.schedule.fire_due()
    assert await office.sent() == [b"0", b"under way"]
    assert len(office.schedule._buckets) == 0


async def test_a_message_on_its_way_into_a_log_that_is_moved(office: Office) -> None:
    bodies = await office.delay(*[2 * HOUR] * MANY)
    [bucket] = office.schedule._buckets
    office.clock.jump(bucket.period.opens_ms - 1 - office.clock.now_ms())
    under_way = committed(office, message(bucket.period.end_ms - 1, b"under way"))
    assert len(office.schedule._buckets) == 1, "it goes to the same log"
    office.clock.advance(0.001)
    await office.schedule.fire_due()
    await under_way
    assert office.schedule.waiting == MANY + 1
    await office.advance(2 * HOUR)
    assert await office.sent() == [*bodies, b"under way"]


@pytest.mark.parametrize("delay", [100, 2 * HOUR])
async def test_a_message_for_a_log_that_is_being_closed(office: Office, delay: int) -> None:
    """It comes between the moment when nothing is under way any more and the removal."""
    bodies = await office.delay(*[delay] * MANY)
    [bucket] = office.schedule._buckets
    due = office.clock.now_ms() + delay
    commit = office.storage.commit
    late: list[asyncio.Future[list[Outcome]]] = []

    def publish(_: object) -> None:
        if not late:
            office.clock.jump(-HOUR)  # only then its time is not over
            late.append(commit(office.schedule.appends([message(due, b"late")])))

    def watched(operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        done = commit(operations)
        if not operations:
            done.add_done_callback(publish)
        return done

    office.storage.commit = watched  # type: ignore[method-assign]
    office.clock.jump(delay if bucket.period.is_finest else bucket.period.opens_ms - office.clock.now_ms())
    await office.schedule.fire_due()
    await office.advance(2 * SECOND)
    [under_way] = late
    await under_way
    await office.advance(4 * HOUR)
    assert await office.sent() == [*bodies, b"late"]


async def test_a_time_that_comes_between_the_last_step_and_the_plan(office: Office) -> None:
    await office.delay(2 * HOUR)
    [bucket] = office.schedule._buckets
    opens = bucket.period.opens_ms
    office.clock.jump(opens - 1 - office.clock.now_ms())
    await office.schedule.fire_due()
    office.clock.jump(1)
    assert office.schedule._next_ms() == opens, "nobody has looked into it yet"


async def test_everybody_at_once(office: Office) -> None:
    office.schedule.start()

    async def publisher(number: int) -> None:
        for turn in range(20):
            await office.delay(*[(number * 31 + turn * 17) % 200 for _ in range(5)])
            office.clock.advance(0.005)
            await asyncio.sleep(0)

    await asyncio.gather(*(publisher(number) for number in range(8)))
    async with asyncio.timeout(20):
        while office.schedule.waiting:
            office.clock.advance(0.05)
            await asyncio.sleep(0.01)
    sent = await office.sent()
    assert len(sent) == len(set(sent)) == 800
