"""Failures that other logs on object stores and databases had, each as a case of its own.

Jumps of the wall clock are a kind of fault of `make torture-cluster`.
"""

import asyncio

import pytest

from posthouse.model.clock import ManualClock, SystemClock
from posthouse.model.errors import OffsetOutOfRange, StorageFenced
from posthouse.storage.operations import Trim
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.slots import SlotSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_shared, take_lease
from tests.storage.shared.test_commit_order import LostAnswer
from tests.storage.shared.test_committer import numbered, partitions_in

_SECONDS = 30
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


async def test_two_readers_at_the_end_while_runs_become_segments(
    database: Database, objects: FaultyObjectStore
) -> None:
    """Others showed one of two consumers the records of a run twice, or not at all, when it was replaced."""
    shared = await make_shared(database, objects, SystemClock(), tail_bytes=0, upkeep=_BUSY)
    await shared.open()
    topic = make_topic()
    await shared.create_topics([topic])
    partition, count = topic.partition(0), 150

    async def follow(max_bytes: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < count:
            values = values_in((await shared.read(partition, len(found), max_bytes)).data)
            assert list(values) == list(range(len(found), len(found) + len(values)))
            found += values.values()
            await asyncio.sleep(0)
        return found

    readers = [asyncio.create_task(follow(max_bytes)) for max_bytes in (200, 2000)]
    expected = [b"%d" % number for number in range(count)]
    for value in expected:
        await shared.commit([append(partition, value)])
    async with asyncio.timeout(_SECONDS):
        assert await asyncio.gather(*readers) == [expected, expected]
        while not await _has_segments(database):
            await asyncio.sleep(0.02)
    assert await follow(500) == expected
    await shared.close()


async def _has_segments(database: Database) -> bool:
    connection = await database.connect("tests")
    try:
        found = await connection.execute("SELECT count(*) FROM log WHERE segments_to > 0")
        return await found.fetchone() != (0,)
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
