"""The task that fires by itself, on a real clock."""

import asyncio
from pathlib import Path

import pytest

from posthouse.broker.schedule import schedule as module
from posthouse.model.clock import ManualClock, SystemClock
from posthouse.model.errors import Unavailable
from tests.broker.schedule.office import HOUR, Office


class Now(SystemClock, ManualClock):
    """The time that it is."""


async def until_sent(office: Office, count: int) -> list[bytes | None]:
    async with asyncio.timeout(30):
        while len(sent := await office.sent()) < count:
            await asyncio.sleep(0.005)
    return sent


async def test_it_wakes_when_something_is_due(place: Path) -> None:
    office = await Office(Now(), place / "data").open()
    office.schedule.start()
    late = await office.delay(2000)
    soon = await office.delay(1000)
    sooner = await office.delay(20)
    assert await until_sent(office, 3) == [*sooner, *soon, *late]
    await office.delay(50, HOUR)
    await until_sent(office, 4)
    await office.close()
    assert office.schedule.waiting == 1


async def test_messages_come_in_time(place: Path) -> None:
    """Checked to be never early when they are sent; here, to be rarely late."""
    clock = Now()
    office = await Office(clock, place / "data", window=10_000, most_at_once=1000).open()
    office.schedule.start()
    lateness: list[int] = []
    send = office.send

    async def watched(entries: object, puts: object) -> None:
        lateness.extend(clock.now_ms() - entry.due_ms for entry in entries)  # type: ignore[attr-defined]
        await send(entries, puts)  # type: ignore[arg-type]

    office.schedule._firing._fire = watched
    for _ in range(20):
        await office.delay(*range(100, 1600, 50))
        await asyncio.sleep(0.05)
    await until_sent(office, 600)
    await office.close()
    # Ten times what a quiet machine needs: a busy one may be late, but not by the second.
    assert sorted(lateness)[len(lateness) // 2] < 1000


async def test_it_pauses_and_tries_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    office = await Office(Now(), place / "data").open()
    office.refuse_with = Unavailable("not now")
    office.schedule.start()
    first = await office.delay(1)
    await asyncio.sleep(0.1)
    second = await office.delay(1)
    await asyncio.sleep(0.02)
    assert await office.sent() == []
    office.refuse_with = None
    assert await until_sent(office, 2) == [*first, *second]
    await office.close()


async def test_a_mistake_does_not_end_it(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    office = await Office(Now(), place / "data").open()
    send, office.schedule._firing._fire = office.schedule._firing._fire, None  # type: ignore[assignment]
    office.schedule.start()
    body = await office.delay(1)
    async with asyncio.timeout(30):
        while "could not be sent" not in caplog.text:
            await asyncio.sleep(0.005)
    office.schedule._firing._fire = send
    assert await until_sent(office, 1) == body
    await office.close()


async def test_the_wall_clock_is_set_forward_while_it_sleeps(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_SLEEP", 0.02)
    office = await Office(clock).open()
    office.schedule.start()
    body = await office.delay(HOUR)
    await asyncio.sleep(0.05)
    clock.jump(HOUR)
    assert await until_sent(office, 1) == body
    await office.close()


async def test_it_sleeps_when_nothing_waits(place: Path) -> None:
    office = await Office(Now(), place / "data").open()
    office.schedule.start()
    steps = 0
    step = office.schedule._step

    async def counted() -> bool:
        nonlocal steps
        steps += 1
        return await step()

    office.schedule._step = counted  # type: ignore[method-assign]
    await office.delay(1)
    await until_sent(office, 1)
    async with asyncio.timeout(30):
        while len(office.schedule._buckets):  # until its log is dropped
            await asyncio.sleep(0.01)
        before = -1
        while before != steps:  # one that does not sleep takes steps in every interval
            before = steps
            await asyncio.sleep(0.3)
    assert steps < 30
    await office.close()


async def test_it_stops_in_the_middle_of_a_backlog(place: Path) -> None:
    clock = ManualClock()
    office = await Office(clock, place / "data").open()
    bodies = await office.delay(*range(1000))
    clock.advance(1)
    office.schedule.start()
    await until_sent(office, 1)
    await office.close_and_open()
    already = len(await office.sent())
    assert office.schedule.waiting == 1000 - already > 0
    await office.schedule.fire_due()
    assert await office.sent() == bodies
    await office.close()
