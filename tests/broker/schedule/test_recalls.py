"""Delayed messages that are recalled: they are never sent, or it is too late and they are."""

import asyncio
from collections.abc import Sequence

import pytest

from posthouse.broker.schedule import recalls
from posthouse.broker.schedule.buckets import Buckets
from posthouse.broker.schedule.logs import OF_ALL, ScheduleLogs
from posthouse.broker.schedule.recalls import Progress, Recalls
from posthouse.model.errors import DataDamaged, StorageFull, TooLate, Unavailable
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space
from tests.broker.schedule.office import DAY, HOUR, MINUTE, SECOND, YEAR, Office

SOON = 100


@pytest.mark.parametrize("delay", [SOON, 40 * SECOND, 3 * MINUTE, 2 * HOUR, 20 * DAY, 3 * YEAR])
async def test_a_message_is_recalled(office: Office, delay: int) -> None:
    bodies = await office.delay(delay, delay, delay + 1)
    assert await office.recall(bodies[1]) == [bodies[1]]
    assert office.schedule.waiting == 3, "it takes its place until its time"
    await office.advance(delay - 1)
    assert await office.sent() == []
    await office.advance(2 * SECOND)
    assert await office.sent() == [bodies[0], bodies[2]]
    assert office.schedule.waiting == 0
    await office.advance(HOUR)
    assert len(office.schedule._buckets) == 0


@pytest.mark.parametrize("at", [SOON, HOUR])
async def test_many_are_recalled(office: Office, at: int) -> None:
    """More than are decided, or loaded, at once."""
    bodies = await office.delay(*[at + number % 7 for number in range(3 * recalls.AT_ONCE)])
    assert await office.recall(*bodies[::2]) == bodies[::2]
    assert office.schedule.loaded <= office.window
    await office.advance(at + SECOND)
    assert sorted(filter(None, await office.sent())) == sorted(bodies[1::2])
    assert office.schedule.waiting == 0


async def test_all_are_recalled(office: Office) -> None:
    bodies = await office.delay(*[SOON] * 30)
    assert await office.recall(*bodies) == bodies
    await office.advance(2 * SECOND)
    assert office.sent_at_once == []
    assert office.schedule.waiting == 0
    assert len(office.schedule._buckets) == 0


async def test_a_message_is_recalled_again(office: Office) -> None:
    bodies = await office.delay(SOON, SOON)
    for _ in range(3):
        assert await office.recall(bodies[0], bodies[0]) == [bodies[0]] * 2
    assert office.schedule.waiting == 2
    await office.advance(SOON)
    assert await office.sent() == [bodies[1]]
    assert office.schedule.waiting == 0


async def test_when_it_is_too_late(office: Office) -> None:
    early, due, late = await office.delay(SOON, SOON + 1, SOON + 2)
    await office.advance(SOON)
    assert await office.recall(early) == [], "it was sent"
    office.clock.advance(0.001)
    assert await office.recall(due) == [], "it is due, and sent next"
    assert await office.recall(late) == [late]
    await office.advance(SECOND)
    assert await office.sent() == [early, due]
    assert await office.recall(early, due, late) == []


async def test_a_recall_of_nothing(office: Office) -> None:
    """That there is a message is for the caller to know."""
    [body] = await office.delay(SOON)
    due_ms, sequence = office.places[body]
    number = int.from_bytes(sequence, "big")
    for due, other in (
        (due_ms, number + 2),
        (due_ms + 1, number),
        (due_ms, number + 400),
        (due_ms + YEAR, number),
    ):
        office.places[b"nothing"] = due, other.to_bytes(8, "big")
        assert await office.recall(b"nothing") == [b"nothing"]
    office.places[b"nothing"] = due_ms, bytes(8)
    assert await office.recall(b"nothing") == []
    assert office.schedule.waiting == 1
    await office.advance(2 * YEAR)
    assert await office.sent() == [body]
    assert office.schedule.waiting == 0


@pytest.mark.parametrize("delay", [SOON, 2 * HOUR])
async def test_a_restart_and_a_crash(file_office: Office, delay: int) -> None:
    office = file_office
    one, other, third = await office.delay(delay, delay, delay)
    assert await office.recall(one) == [one]
    await office.close_and_open()
    assert await office.recall(other) == [other]
    await office.crash()
    assert office.schedule.waiting == 3
    await office.advance(delay + SECOND)
    assert await office.sent() == [third]
    assert office.schedule.waiting == 0


async def test_a_firing_that_ends_between_a_recall_and_its_message(file_office: Office) -> None:
    """What the recall says is carried over to the next firing, also by a crash."""
    office = file_office
    office.most_at_once = 1
    await office.close_and_open()
    one, other = await office.delay(SOON, SOON)
    assert await office.recall(one) == [one]
    office.clock.advance(1)
    assert office.schedule.waiting == 2
    while office.schedule._recalls.waiting:
        await office.schedule._step()
    assert office.schedule._recalls._progress.carried != bytes(16)
    assert office.schedule.waiting == 2, "only the recall was fired"
    await office.crash()
    assert office.schedule._recalls._progress.carried != bytes(16)
    await office.schedule.fire_due()
    assert await office.sent() == [other]
    assert office.schedule._recalls._progress.carried == bytes(16)
    assert office.schedule.waiting == 0


class Commits:
    """Holds back the commits of a storage."""

    def __init__(self, office: Office) -> None:
        self.may_commit = asyncio.Event()
        self.has_come = asyncio.Event()
        self._commit = office.storage.commit
        office.storage.commit = self.commit  # type: ignore[method-assign]

    def commit(self, operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        self.has_come.set()
        return asyncio.ensure_future(self._later(operations))

    async def _later(self, operations: Sequence[Operation]) -> list[Outcome]:
        await self.may_commit.wait()
        return await self._commit(operations)


async def test_a_recall_while_the_message_is_being_sent(office: Office) -> None:
    [body] = await office.delay(SOON)
    commits = Commits(office)
    office.clock.advance(1)
    firing = asyncio.create_task(office.schedule.fire_due())
    await commits.has_come.wait()
    office.clock.jump(-SECOND)  # only then is it not due
    [asked] = office.ask_to_recall(body)
    commits.may_commit.set()
    await firing
    await office.schedule.fire_due()
    with pytest.raises(TooLate, match="the message was published, or is about to be"):
        await asked
    assert await office.sent() == [body]


async def test_a_message_that_becomes_due_while_it_is_recalled(office: Office) -> None:
    [body] = await office.delay(SOON)
    commits = Commits(office)
    [asked] = office.ask_to_recall(body)
    await asyncio.sleep(0)
    firing = asyncio.create_task(office.schedule.fire_due())
    await commits.has_come.wait()
    office.clock.advance(1)
    commits.may_commit.set()
    await firing
    await asked
    assert await office.sent() == []
    assert office.schedule.waiting == 0


async def test_a_recall_that_cannot_be_stored(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = await office.delay(SOON, SOON)
    await office.schedule.fire_due()

    async def full(operations: object) -> None:
        raise StorageFull("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(office.storage, "commit", full)
        asked = office.ask_to_recall(*bodies)
        await asyncio.sleep(0)
        await office.schedule.fire_due()
        for each in asked:
            with pytest.raises(StorageFull):
                await each
    assert await office.recall(bodies[0]) == [bodies[0]]
    await office.advance(SECOND)
    assert await office.sent() == [bodies[1]]


async def test_a_firing_that_fails_changes_nothing(office: Office) -> None:
    one, other = await office.delay(SOON, SOON)
    await office.recall(one)
    office.refuse_with = Unavailable("not now")
    with pytest.raises(Unavailable):
        await office.advance(SECOND)
    office.refuse_with = None
    assert office.schedule.waiting == 2
    await office.schedule.fire_due()
    assert await office.sent() == [other]


async def test_the_clock_is_set_back(file_office: Office) -> None:
    """What was sent stays sent, and what comes later can be recalled again when its time is ahead of that."""
    office = file_office
    [sent] = await office.delay(HOUR)
    await office.advance(HOUR + 3 * SECOND)
    office.clock.jump(-2 * HOUR)
    assert await office.recall(sent) == []
    await office.close_and_open()
    assert len(office.schedule._buckets) == 0, "nothing but the last time tells that it was sent"
    assert await office.recall(sent) == []
    [soon] = await office.delay(SOON)
    await office.advance(SOON)
    assert await office.recall(sent) == []
    before, after = await office.delay(HOUR, 3 * HOUR)
    assert await office.recall(before, after) == [after]
    await office.advance(4 * HOUR)
    assert await office.sent() == [sent, soon, before]


async def test_the_task_decides(office: Office) -> None:
    office.schedule.start()
    one, other = await office.delay(HOUR, SOON)
    async with asyncio.timeout(30):
        await office.schedule.recall(*office.places[one])
        office.clock.advance(1)
        with pytest.raises(TooLate):
            await office.schedule.recall(*office.places[other])
    await office.schedule.stop()
    with pytest.raises(Unavailable, match="stops here"):
        await office.schedule.recall(*office.places[one])


async def test_recalls_that_wait_when_the_schedule_stops(office: Office) -> None:
    [body] = await office.delay(HOUR)
    [asked] = office.ask_to_recall(body)
    await asyncio.sleep(0)
    await office.schedule.stop()
    with pytest.raises(Unavailable, match="stops here"):
        await asked


async def test_who_asks_may_be_gone(office: Office) -> None:
    one, other = await office.delay(HOUR, HOUR)
    gone, asked = office.ask_to_recall(one, other)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    await office.schedule.fire_due()
    await asked


@pytest.mark.parametrize("count", [3, 4, 12])
async def test_no_room_to_read_the_recall(office: Office, count: int) -> None:
    """Messages that are late when they come fill the window: nothing else is sent before all are read."""
    office.window = 4
    if office.directory is not None:
        await office.close_and_open()
    due = office.clock.now_ms() // 1024 * 1024 + 3000
    first = due - office.clock.now_ms()
    early, body = await office.delay(first, first + 1)
    await office.advance(first)
    assert await office.sent() == [early]
    late = await office.delay(*[-1] * count)  # all of one period
    [asked] = office.ask_to_recall(body)
    await asyncio.sleep(0)
    decided = await office.schedule._recalls.decide(office.clock.now_ms())
    assert decided
    await asked
    await office.advance(1)
    assert sorted(filter(None, await office.sent())) == sorted([early, *late])
    assert office.schedule.waiting == 0


@pytest.mark.parametrize("value", [b"", b"\x01", bytes(41), b"\x02" + bytes(40), b"\x01" + bytes(41)])
async def test_damaged(office: Office, value: bytes) -> None:
    logs = ScheduleLogs(office.storage, TopicConfig(), OF_ALL)
    made = Recalls(office.storage, Buckets(office.storage, logs), logs, b"\x05")
    with pytest.raises(DataDamaged, match="the recalls of the schedule"):
        made.load({b"\x05\xff\xff\xff\xff": value})
    stored = Progress(last=b"l" * 16, carried=b"c" * 16, waiting=7).put(b"\x05")
    assert stored.space is Space.SCHEDULE and stored.value is not None
    assert made.load({stored.key: stored.value, b"\x05\0\0\0\1": b"a bucket"}) == {
        b"\x05\0\0\0\1": b"a bucket"
    }
    assert made._progress == Progress(last=b"l" * 16, carried=b"c" * 16, waiting=7)
