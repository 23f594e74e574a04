"""Holds: what a client reads stays in the object store, whatever becomes of it, until the hold is over."""

from uuid import uuid4

import pytest

from posthouse.storage.retention import nothing_needed
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.merging.tiers import FAN_IN
from posthouse.storage.shared.manifests.holds import hold_objects
from tests.storage.compacted import COMPACT
from tests.storage.shared.manifests.clients import ManifestClient, manifest_client
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill
from tests.storage.shared.test_garbage import garbage
from tests.storage.shared.test_merging import ALL, consolidated, merging
from tests.storage.shared.test_retention import removal
from tests.storage.shared.test_segment_compaction import compaction, write


async def merge(logs: SharedLogs, log: int) -> None:
    await merging(logs).run_once()


async def compact(logs: SharedLogs, log: int) -> None:
    await (await compaction(logs)).run_once(nothing_needed)


async def trim(logs: SharedLogs, log: int) -> None:
    [end] = await logs.one("SELECT next FROM log WHERE id = %s", log)
    await logs.trim(log, end)
    await removal(logs).run_once()


async def delete(logs: SharedLogs, log: int) -> None:
    partition = await logs.partition_of(log)
    await logs.connection.execute("UPDATE log SET deleted = true")
    await logs.connection.execute("UPDATE topic SET deleted_at = now()")
    del logs.topics[partition.topic]
    await removal(logs).run_once()


async def collect(logs: SharedLogs) -> int:
    """Returns how many doomed objects are left."""
    metrics = HousekeepingMetrics()
    await garbage(logs, metrics=metrics).run_once()
    assert metrics.doomed_objects is not None
    return metrics.doomed_objects


async def expire(logs: SharedLogs) -> None:
    await logs.connection.execute("UPDATE hold SET until = now() - interval '1 second'")


@pytest.mark.parametrize("change", [merge, compact, trim, delete])
async def test_held_objects_outlive_their_use(logs: SharedLogs, change: object) -> None:
    assert callable(change)
    if change is compact:
        [log] = await logs.create("orders", 1, **COMPACT)
        for number in range(6):
            await write(logs, log, (b"key", b"%d" % number))
            await consolidation(logs).run_once()
    else:
        [log] = await logs.create("orders", 1, **ALL)
        await consolidated(logs, log, count=FAN_IN)
    await collect(logs)
    async with manifest_client(logs) as client:
        found = await client.range_of(log)
        before = await client.bytes_of(found)
        await change(logs, log)
        assert await collect(logs) > 0
        assert await client.bytes_of(found) == before
        assert client.hold is not None
        await client.manifests.release(client.hold)
        assert await collect(logs) == 0
        used = {each.key for each in await logs.segments(log)} if change is not delete else set()
        assert set(logs.objects.stored) == used


async def doomed(logs: SharedLogs, client: ManifestClient, log: int) -> int:
    """Holds an object that nothing else uses; returns how many there are."""
    [first] = await logs.one("SELECT next FROM log WHERE id = %s", log)
    await fill(logs, log, 1)
    await consolidation(logs).run_once()
    await client.range_of(log, first)
    await trim(logs, log)
    return await collect(logs)


async def test_a_hold_ends_unless_it_is_renewed(logs: SharedLogs) -> None:
    [log] = await logs.create()
    async with manifest_client(logs) as client:
        assert await doomed(logs, client, log) == 1
        assert client.hold is not None
        await logs.connection.execute("UPDATE hold SET until = now() + interval '1 second'")
        assert await client.manifests.renew(client.hold)
        [left] = await logs.one("SELECT extract(epoch FROM until - now()) FROM hold")
        assert 800 < left <= 900
        await expire(logs)
        assert not await client.manifests.renew(client.hold)
        assert await collect(logs) == 0
        assert await logs.one("SELECT count(*) FROM hold") == (0,)


async def test_a_hold_of_nothing(logs: SharedLogs) -> None:
    async with manifest_client(logs) as client:
        assert not await client.manifests.renew(uuid4())
        await client.manifests.release(uuid4())


async def test_one_hold_for_several_manifests(logs: SharedLogs) -> None:
    [log] = await logs.create()
    async with manifest_client(logs) as client:
        assert await doomed(logs, client, log) == 1
        hold = client.hold
        assert await doomed(logs, client, log) == 2
        assert client.hold == hold is not None
        await client.manifests.release(hold)
        assert await collect(logs) == 0


async def test_held_objects_do_not_keep_others_from_being_deleted(
    logs: SharedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.storage.shared.housekeeping.garbage._OBJECTS_AT_ONCE", 2)
    [log, other] = await logs.create(partitions=2)
    async with manifest_client(logs) as client:
        for _ in range(5):
            held = await doomed(logs, client, log)
        assert held == 5
        await fill(logs, other, 9)
        await consolidation(logs).run_once()
        assert await collect(logs) == 5


async def test_the_number_of_holds_is_limited(logs: SharedLogs) -> None:
    """Any reader can make them. Without one objects stay for the grace of garbage collection."""
    first = await hold_objects(logs.connection, None, [1], most_rows=2)
    assert first is not None
    assert await hold_objects(logs.connection, first, [2], most_rows=2) == first
    assert await hold_objects(logs.connection, None, [3], most_rows=2) is None
    assert await hold_objects(logs.connection, first, [3], most_rows=2) == first
    assert await logs.one("SELECT count(*) FROM hold") == (2,)
    await expire(logs)
    await collect(logs)
    assert await hold_objects(logs.connection, None, [3], most_rows=2) is not None
