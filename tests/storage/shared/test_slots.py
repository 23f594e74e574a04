"""Slots are used in turn, and truncated when all of their runs are in segments or of logs that are gone."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.slots import Slots, SlotSettings
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.storage.batches import append, make_batch
from tests.storage.shared.members import members
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill

ALWAYS = SlotSettings(open_seconds=0)


def slots(
    logs: SharedLogs,
    settings: SlotSettings = ALWAYS,
    metrics: HousekeepingMetrics | None = None,
) -> Slots:
    return Slots(logs.connect, logs.lease, metrics or HousekeepingMetrics(), settings)


async def states(logs: SharedLogs) -> list[str]:
    found = await logs.connection.execute("SELECT state FROM slot ORDER BY number")
    return [row[0] for row in await found.fetchall()]


async def test_a_slot_is_closed_by_age_or_size(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await slots(logs).run_once()
    assert await logs.open_slot() == 0, "an empty slot stays open"
    await fill(logs, log, 1)
    # Longer than any run of the tests: the first slot is as old as the database that all of them copy.
    await slots(logs, SlotSettings(open_seconds=10**6)).run_once()
    assert await logs.open_slot() == 0
    await slots(logs).run_once()
    assert await logs.open_slot() == 1
    await logs.append(log, make_batch(b"x" * 100_000))
    await slots(logs, SlotSettings(open_bytes=100_000)).run_once()
    assert await logs.open_slot() == 2
    assert (await states(logs))[:4] == ["closed", "closed", "open", "free"]
    assert len(await logs.values(log)) == 3
    await logs.check()


async def test_a_slot_is_truncated_when_all_its_runs_are_in_segments(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2)
    metrics = HousekeepingMetrics()
    await fill(logs, log, 3)
    await fill(logs, other, 3)
    await slots(logs, metrics=metrics).run_once()
    await consolidation(logs).consolidate([log])
    await slots(logs, metrics=metrics).run_once()
    assert (await states(logs))[0] == "closed"
    assert metrics.truncated_slots == 0
    await consolidation(logs).run_once()
    before = await logs.read(other)
    await slots(logs, metrics=metrics).run_once()
    assert (await states(logs))[0] == "free"
    assert (metrics.truncated_slots, metrics.free_slots) == (1, 15)
    assert await logs.one("SELECT count(*) FROM run") == (0,)
    assert await logs.one("SELECT count(*) FROM inline_data") == (0,)
    assert await logs.read(other) == before
    await logs.check()


async def test_slots_go_round_and_stay_when_none_is_free(logs: SharedLogs) -> None:
    [log] = await logs.create()
    opened: list[int] = []
    for _ in range(17):
        await fill(logs, log, 1)
        await slots(logs).run_once()
        opened.append(await logs.open_slot())
    assert opened == [*range(1, 16), 15, 15]
    await consolidation(logs).run_once()
    await slots(logs).run_once()
    assert (await states(logs)).count("free") == 14
    assert (await states(logs))[0] == "open", "the next one in the round"
    assert len(await logs.values(log)) == 34
    await logs.check()


async def test_a_reader_is_waited_for_briefly(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 3)
    await slots(logs).run_once()
    await consolidation(logs).run_once()
    async with logs.connection.transaction():
        await logs.connection.execute("SELECT * FROM run_0")
        await asyncio.wait_for(slots(logs).run_once(), 5)
        assert (await states(logs))[0] == "closed"
    await slots(logs).run_once()
    assert (await states(logs))[0] == "free"


async def test_a_late_commit_into_a_closed_slot_is_kept(logs: SharedLogs) -> None:
    """A commit chose the slot before it was closed, and arrives after it was truncated."""
    [log] = await logs.create()
    await fill(logs, log, 3)
    await slots(logs).run_once()
    await consolidation(logs).run_once()
    await slots(logs).run_once()
    assert (await states(logs))[0] == "free"
    await logs.append(log, make_batch(b"late"), slot=0)
    for _ in range(20):
        await slots(logs).run_once()
        await fill(logs, log, 1)
    assert (await logs.values(log))[6] == b"late"
    await logs.check()


async def test_a_slot_that_is_closed_and_emptied_during_a_commit(
    logs: SharedLogs, clock: ManualClock
) -> None:
    """The commit has read which slot is open, and waits for a log meanwhile."""
    [empty, log] = await logs.create(partitions=2)
    [topic] = logs.topics.values()
    await logs.connection.execute("INSERT INTO cluster (id, secret) VALUES ('test-cluster', 'secret')")
    await fill(logs, empty, 3)
    await consolidation(logs).run_once()
    holding = await logs.database.connect("tests")
    async with members(1, logs.database, MemoryObjectStore(clock), clock) as [member]:
        async with holding.transaction():
            await holding.execute("SELECT FROM log WHERE id = %s FOR UPDATE", [log])
            late = member.commit([append(topic.partition(1), b"late")])
            while (await logs.one("SELECT count(*) FROM pg_locks WHERE NOT granted")) == (0,):
                await asyncio.sleep(0.01)
            await slots(logs).run_once()
            await slots(logs).run_once()
            assert (await states(logs))[:2] == ["free", "open"]
        [outcome] = await late
        assert outcome.base_offset == 0
    await holding.close()
    assert await logs.one("SELECT slot FROM run WHERE log = %s", log) == (0,)
    for _ in range(20):
        await fill(logs, empty, 1)
        await consolidation(logs).consolidate([empty])
        await slots(logs).run_once()
    assert await logs.values(log) == {0: b"late"}
    await consolidation(logs).run_once()
    await slots(logs).run_once()
    assert await logs.values(log) == {0: b"late"}
    await logs.check()


async def test_a_broker_without_the_lease_changes_nothing(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 1)
    old = slots(logs)
    await old.run_once()
    await consolidation(logs).run_once()
    await logs.take_lease()
    with pytest.raises(LeaseLost):
        await old.run_once()
    assert (await states(logs))[:2] == ["closed", "open"]
