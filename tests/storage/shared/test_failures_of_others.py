"""Failures that other logs on object stores and databases had, each as a case of its own."""

import asyncio
from dataclasses import replace
from typing import LiteralString

import pytest

from posthouse.model.clock import ManualClock, SystemClock
from posthouse.model.errors import OffsetOutOfRange, StorageFenced, Unavailable
from posthouse.storage.operations import Trim
from posthouse.storage.shared import engine
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.slots import SlotSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from posthouse.storage.shared.objects.names import ObjectNames
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_member, make_shared, take_lease
from tests.storage.shared.several.brokers import until
from tests.storage.shared.test_commit_order import LostAnswer
from tests.storage.shared.test_committer import numbered, partitions_in

_SECONDS = 30
_DAY_MS = 24 * 3600 * 1000
_BUSY = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=500, due_ms=1, mixed_bytes=2000),
    slots=SlotSettings(open_seconds=0.05),
    consolidation_seconds=0.02,
    slot_seconds=0.02,
    removal_seconds=0.05,
    garbage_seconds=0.05,
)


@pytest.mark.parametrize("counts", [True, False])
async def test_an_offset_is_told_only_when_it_is_known(shared: SharedStorage, counts: bool) -> None:
    """Others answered 0 where the answer of the sequencer was lost, and consumers went to the start."""
    _, fast = await partitions_in(shared)
    await shared.commit([append(fast, b"before")])
    lost = LostAnswer(shared._committer._inline.call, counts=counts)
    waiting = shared.commit([numbered(fast, 0, required=False)])
    await asyncio.sleep(0.1)
    assert not waiting.done()
    lost.is_back = True
    [outcome] = await asyncio.wait_for(waiting, _SECONDS)
    assert (outcome.base_offset, outcome.refusal) == (1, None)
    [again] = await shared.commit([numbered(fast, 0, required=False)])
    assert again.base_offset == 1
    assert await read_all(shared, fast) == {0: b"before", 1: b"0"}


@pytest.mark.parametrize("of_members", [False, True], ids=["holder", "members"])
async def test_two_readers_at_the_end_while_runs_become_segments(
    database: Database, objects: FaultyObjectStore, of_members: bool
) -> None:
    """Others showed one of two consumers the records of a run twice, or not at all, when it was replaced."""
    shared = await make_shared(database, objects, SystemClock(), tail_bytes=0, upkeep=_BUSY)
    await shared.open()
    topic = make_topic()
    await shared.create_topics([topic])
    partition, count = topic.partition(0), 150
    members = [await make_member(database, objects, SystemClock(), tail_bytes=0) for _ in range(2)]
    for each in members:
        await each.open()

    async def follow(reader: SharedStorage, max_bytes: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < count:
            values = values_in((await reader.read(partition, len(found), max_bytes)).data)
            assert list(values) == list(range(len(found), len(found) + len(values)))
            found += values.values()
            await asyncio.sleep(0)
        return found

    used = members if of_members else [shared, shared]
    readers = [
        asyncio.create_task(follow(reader, max_bytes))
        for reader, max_bytes in zip(used, (200, 2000), strict=True)
    ]
    expected = [b"%d" % number for number in range(count)]
    for value in expected:
        await shared.commit([append(partition, value)])
    async with asyncio.timeout(_SECONDS):
        assert await asyncio.gather(*readers) == [expected, expected]
        while not await _has_segments(database):
            await asyncio.sleep(0.02)
    assert await follow(used[0], 500) == expected
    for each in (*members, shared):
        await each.close()


async def _has_segments(database: Database) -> bool:
    return await _logs_where(database, "segments_to > 0") > 0


async def _logs_where(database: Database, condition: LiteralString) -> int:
    connection = await database.connect("tests")
    try:
        found = await connection.execute(f"SELECT count(*) FROM log WHERE {condition}")
        [(count,)] = await found.fetchall()
        return int(count)
    finally:
        await connection.close()


async def test_the_start_of_a_log_moves_during_a_read(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Others returned records from a later offset as if they were those that were asked for."""
    shared = await make_shared(database, objects, clock, tail_bytes=0)
    await shared.open()
    slow, _ = await partitions_in(shared)
    for number in range(5):
        await shared.commit([append(slow, b"%d" % number)])
    objects.gate.clear()
    reading = asyncio.create_task(shared.read(slow, 1, 1000))
    await asyncio.sleep(0.1)  # it has found the objects, and waits for the first
    await shared.commit([Trim(slow, 3)])
    objects.gate.set()
    with pytest.raises(OffsetOutOfRange):
        await asyncio.wait_for(reading, _SECONDS)
    assert await read_all(shared, slow, 3) == {3: b"3", 4: b"4"}
    await shared.close()


async def test_the_start_of_a_log_moves_during_a_read_of_another_broker(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """It may still give what was there when it was asked, or say that this is gone; nothing else."""
    shared = await make_shared(database, objects, clock, tail_bytes=0)
    await shared.open()
    slow, _ = await partitions_in(shared)
    for number in range(5):
        await shared.commit([append(slow, b"%d" % number)])
    member = await make_member(database, objects, clock, tail_bytes=0)
    await member.open()
    objects.gate.clear()
    reading = asyncio.create_task(member.read(slow, 1, 1000))
    await until(lambda: objects.calls["read"] > 0)
    await shared.commit([Trim(slow, 3)])
    objects.gate.set()
    try:
        found = values_in((await asyncio.wait_for(reading, _SECONDS)).data)
        assert dict(list(found.items())[:1]) == {1: b"1"}
    except OffsetOutOfRange:
        pass
    await member.refresh([slow])
    with pytest.raises(OffsetOutOfRange):
        await member.read(slow, 1, 1000)
    assert await read_all(member, slow, 3) == {3: b"3", 4: b"4"}
    await member.close()
    await shared.close()


async def test_a_broker_is_fenced_between_an_upload_and_its_commit(
    shared: SharedStorage, objects: FaultyObjectStore, database: Database, clock: ManualClock
) -> None:
    """Others let the old owner register what it had uploaded before it lost its place."""
    slow, _ = await partitions_in(shared)
    objects.gate.clear()
    waiting = shared.commit([append(slow, b"old")])
    while not objects.calls["put"]:
        await asyncio.sleep(0.01)
    await take_lease(database)
    objects.gate.set()
    with pytest.raises(StorageFenced):
        await asyncio.wait_for(waiting, _SECONDS)
    successor = await make_shared(database, objects, clock)
    await successor.open()
    await successor.commit([append(slow, b"new")])
    assert await read_all(successor, slow) == {0: b"new"}
    await successor.close()


@pytest.mark.parametrize("days", [40, -40], ids=["ahead", "back"])
async def test_the_clock_of_a_broker_jumps(
    database: Database, objects: FaultyObjectStore, clock: ManualClock, days: int
) -> None:
    """Others lost what seemed to be old, or did not consolidate it for as long as the clock was behind."""
    due_by_age = ConsolidationSettings(due_bytes=10**9, due_ms=1000, mixed_bytes=2000)
    upkeep = replace(_BUSY, consolidation=due_by_age)
    shared = await make_shared(database, objects, clock, tail_bytes=0, upkeep=upkeep)
    await shared.open()
    slow, fast = await partitions_in(shared)
    topic = make_topic("quiet")
    await shared.create_topics([topic])
    await shared.commit([append(topic.partition(0), b"before")])
    count = 5

    async def write(begin: int) -> None:
        for number in range(begin, begin + count):
            await shared.commit([append(slow, b"%d" % number), append(fast, b"%d" % number)])

    await write(0)
    clock.jump(days * _DAY_MS)
    await write(count)
    async with asyncio.timeout(_SECONDS):
        while await _has_runs(database):
            clock.advance(0.2)
            await asyncio.sleep(0.02)
    expected = {number: b"%d" % number for number in range(2 * count)}
    for partition in (slow, fast):
        assert await read_all(shared, partition) == expected
    assert await read_all(shared, topic.partition(0)) == {0: b"before"}
    clock.jump(-days * _DAY_MS)
    successor = await make_shared(database, objects, clock)
    await successor.open()
    for partition in (slow, fast):
        assert successor.bounds(partition).start == 0
        assert await read_all(successor, partition) == expected
    await successor.close()
    await shared.close()


async def _has_runs(database: Database) -> bool:
    return await _logs_where(database, "segments_to < next") > 0


async def test_a_broker_whose_clock_is_a_day_behind_uploads_in_vain(
    database: Database, objects: FaultyObjectStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its objects have names of hours that were searched for orphans. Others deleted what was just stored."""
    wrong = ManualClock(SystemClock().now_ms() - _DAY_MS)
    monkeypatch.setattr(engine, "ObjectNames", lambda incarnation: ObjectNames(incarnation, wrong))
    shared = await make_shared(database, objects, clock, tail_bytes=0)
    await shared.open()
    slow, fast = await partitions_in(shared)
    with pytest.raises(Unavailable, match="the clock of its broker is wrong"):
        await shared.commit([append(slow, b"refused")])
    await shared.commit([append(fast, b"in the database")])
    wrong.jump(_DAY_MS)
    await shared.commit([append(slow, b"stored")])
    assert await read_all(shared, slow) == {0: b"stored"}
    assert await read_all(shared, fast) == {0: b"in the database"}
    await shared.close()
