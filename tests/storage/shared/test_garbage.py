"""Objects that nothing uses any more are deleted, and no others."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock, SystemClock
from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping.garbage import Garbage, GarbageSettings
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.names import ObjectNames, hour_prefix
from posthouse.storage.shared.objects.store import ObjectsAway
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill

HOUR_MS = 3600 * 1000
AT_ONCE = GarbageSettings(grace_seconds=0)


def garbage(
    logs: SharedLogs, settings: GarbageSettings = AT_ONCE, metrics: HousekeepingMetrics | None = None
) -> Garbage:
    return Garbage(logs.connect, logs.objects, logs.lease, metrics or HousekeepingMetrics(), settings)


async def known(logs: SharedLogs) -> set[str]:
    found = await logs.connection.execute("SELECT key FROM object")
    return {row[0] for row in await found.fetchall()}


async def test_doomed_objects_are_deleted_after_the_grace(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log)
    await consolidation(logs).run_once()
    metrics = HousekeepingMetrics()
    await garbage(logs, GarbageSettings(grace_seconds=100), metrics).run_once()
    assert (metrics.doomed_objects, metrics.deleted_objects) == (4, 0)
    assert len(logs.objects.stored) == 5
    await logs.connection.execute("UPDATE object SET doomed_at = doomed_at - interval '101 seconds'")
    await garbage(logs, GarbageSettings(grace_seconds=100), metrics).run_once()
    assert (metrics.doomed_objects, metrics.deleted_objects) == (0, 4)
    used = {segment.key for segment in await logs.segments(log)}
    assert set(logs.objects.stored) == await known(logs) == used
    await logs.check()


async def test_orphans_are_deleted_after_a_day(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 1)
    now = SystemClock().now_ms()
    old = [f"{hour_prefix(now - hours * HOUR_MS)}/orphan-{hours}" for hours in (0, 20, 23, 26, 30, 50)]
    for key in old:
        await logs.objects.put(key, b"?")
    await logs.connection.execute(
        "INSERT INTO cluster (id, secret, created_at) VALUES ('test', '', now() - interval '2 days')"
    )
    metrics = HousekeepingMetrics()
    await garbage(logs, metrics=metrics).run_once()
    assert set(logs.objects.stored) == await known(logs) | set(old[:3])
    assert metrics.deleted_orphans == 3
    reads = len(logs.objects.lists)
    await garbage(logs).run_once()
    assert len(logs.objects.lists) <= reads + 1, "an hour is searched once"
    await logs.connection.execute("UPDATE sweep SET done_to = done_to - interval '9 days'")
    await logs.objects.put(f"{hour_prefix(now - 200 * HOUR_MS)}/orphan", b"?")
    for _ in range(5):
        await garbage(logs, metrics=metrics).run_once()
    assert metrics.deleted_orphans == 4, "a long absence is made up for"
    await logs.check()


async def test_known_objects_of_old_hours_stay(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 1)
    await logs.connection.execute(
        "INSERT INTO sweep VALUES ('orphans', date_trunc('hour', now(), 'UTC') - interval '30 hours')"
    )
    [(key, content)] = logs.objects.stored.items()
    old = f"{hour_prefix(SystemClock().now_ms() - 28 * HOUR_MS)}/{key.rpartition('/')[2]}"
    logs.objects.stored[old] = logs.objects.stored.pop(key)
    await logs.connection.execute("UPDATE object SET key = %s", [old])
    await garbage(logs).run_once()
    assert logs.objects.stored == {old: content}
    await logs.check()


async def test_a_row_for_an_object_of_long_ago_is_refused(logs: SharedLogs) -> None:
    """It may have been deleted as an orphan."""
    clock = ManualClock(SystemClock().now_ms())
    names = ObjectNames(logs.lease.incarnation, clock)
    young = names.new()
    clock.advance(-14 * 3600)
    insert = "INSERT INTO object (key, size, live) VALUES (%s, 1, 1)"
    await logs.connection.execute(insert, [young])
    with pytest.raises(Exception, match="uploaded too long ago"):
        await logs.connection.execute(insert, [names.new()])


async def sweep_from(logs: SharedLogs, hours: int) -> str:
    """Search for orphans from so many hours ago on; returns the prefix of the keys of that hour."""
    await logs.connection.execute(
        "INSERT INTO sweep VALUES ('orphans', date_trunc('hour', now(), 'UTC') - make_interval(hours => %s))",
        [hours],
    )
    return hour_prefix(SystemClock().now_ms() - hours * HOUR_MS)


def faulty_garbage(logs: SharedLogs, objects: FaultyObjectStore) -> Garbage:
    return Garbage(logs.connect, objects, logs.lease, HousekeepingMetrics(), AT_ONCE)


async def test_commits_go_on_during_a_slow_listing(logs: SharedLogs) -> None:
    [log] = await logs.create()
    old = await sweep_from(logs, 26)
    objects = FaultyObjectStore(MemoryObjectStore(SystemClock()))
    orphans = [f"{old}/{number}" for number in range(5)]
    for key in orphans:
        await objects.put(key, b"?")
    objects.fail(Fault.SLOW_LIST, "list", for_ever=True)
    objects.gate.clear()
    collecting = asyncio.create_task(faulty_garbage(logs, objects).run_once())
    while not objects.calls["list"]:
        await asyncio.sleep(0.01)
    await fill(logs, log, 3)
    assert not collecting.done()
    objects.gate.set()
    await collecting
    assert [each async for each in objects.list("")] == []
    await logs.check()


async def test_a_listing_that_fails_is_repeated(logs: SharedLogs) -> None:
    old = await sweep_from(logs, 26)
    objects = FaultyObjectStore(MemoryObjectStore(SystemClock()))
    await objects.put(f"{old}/orphan", b"?")
    objects.fail(Fault.FAIL, "list")
    with pytest.raises(ObjectsAway):
        await faulty_garbage(logs, objects).run_once()
    assert len([each async for each in objects.list("")]) == 1
    await faulty_garbage(logs, objects).run_once()
    assert [each async for each in objects.list("")] == []


async def test_a_broker_without_the_lease_forgets_nothing(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 4)
    await consolidation(logs).run_once()
    old = garbage(logs)
    await logs.take_lease()
    with pytest.raises(LeaseLost):
        await old.run_once()
    await logs.check()
    await garbage(logs).run_once()
    assert set(logs.objects.stored) == await known(logs)
