"""Retention of runs and segments, by the rules of every storage; and what is removed behind it."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.retention import nothing_elsewhere, nothing_needed
from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping import retention as retention_module
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.removal import Removal
from posthouse.storage.shared.housekeeping.retention import Retention
from tests.storage.batches import make_batch
from tests.storage.shared.partition_view import View
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill

DAY_MS = 24 * 3600 * 1000


async def retention(logs: SharedLogs, metrics: StorageMetrics | None = None) -> Retention:
    view = View(logs)
    await view.refresh()
    return Retention(
        logs.connect,
        logs.lease,
        logs.kept,
        view,
        view.commit,
        logs.clock,
        metrics or StorageMetrics(),
        producer_expiry_ms=DAY_MS,
    )


def removal(logs: SharedLogs, metrics: HousekeepingMetrics | None = None, rows_at_once: int = 3) -> Removal:
    return Removal(logs.connect, logs.lease, metrics or HousekeepingMetrics(), rows_at_once=rows_at_once)


async def start_of(logs: SharedLogs, log: int) -> int:
    [start] = await logs.one("SELECT start FROM log WHERE id = %s", log)
    return int(start)


async def timed(logs: SharedLogs, log: int, clock: ManualClock, count: int = 10) -> None:
    """A batch every ten seconds, with its time."""
    for number in range(count):
        await logs.append(log, make_batch(b"%d" % number, timestamps=[clock.now_ms()]))
        clock.advance(10)


@pytest.mark.parametrize("consolidated", [0, 5, 10])
async def test_by_time(logs: SharedLogs, clock: ManualClock, consolidated: int) -> None:
    [log, forever] = await logs.create(partitions=2, retention_ms="60000", segment_bytes="14")
    [other] = await logs.create("other", retention_ms="-1")
    await timed(logs, log, clock, consolidated)
    await consolidation(logs).run_once()
    await timed(logs, log, clock, 10 - consolidated)
    await fill(logs, other, 1)
    metrics = StorageMetrics()
    assert await (await retention(logs, metrics)).enforce(nothing_elsewhere, nothing_needed) == {}
    assert await start_of(logs, log) == 4
    assert (metrics.retention_runs, metrics.retention_records) == (1, 4)
    assert await start_of(logs, other) == 0
    clock.advance(3600)
    await (await retention(logs)).enforce(nothing_elsewhere, nothing_needed)
    assert await start_of(logs, log) == 10
    assert await logs.values(log) == {}
    assert await start_of(logs, forever) == 0
    await logs.check()


async def test_more_pieces_than_are_read_at_once(
    logs: SharedLogs, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "_PIECES_AT_ONCE", 2)
    monkeypatch.setattr(retention_module, "_LOGS_AT_ONCE", 2)
    many = await logs.create(partitions=5, retention_ms="60000")
    for log in many:
        await timed(logs, log, clock, 5)
    clock.advance(3600)
    await (await retention(logs)).enforce(nothing_elsewhere, nothing_needed)
    assert [await start_of(logs, log) for log in many] == [5] * 5


@pytest.mark.parametrize("is_consolidated", [False, True])
async def test_by_size(logs: SharedLogs, is_consolidated: bool) -> None:
    [log] = await logs.create(retention_ms="-1", retention_bytes="500", segment_bytes="14")
    size = len(make_batch(b"0"))
    for number in range(10):
        await logs.append(log, make_batch(b"%d" % number))
    if is_consolidated:
        await consolidation(logs).run_once()
    await (await retention(logs)).enforce(nothing_elsewhere, nothing_needed)
    kept = -(-500 // size)
    assert await start_of(logs, log) == 10 - kept
    await logs.check()


async def test_what_is_needed_stays(logs: SharedLogs, clock: ManualClock) -> None:
    [log] = await logs.create(retention_ms="60000")
    partition = await logs.partition_of(log)
    await timed(logs, log, clock)
    for needed, start in ((0, 0), (2, 2), (1, 2)):
        work = await retention(logs)
        assert await work.enforce(nothing_elsewhere, {partition: needed}.get) == {partition: 4}
        assert await start_of(logs, log) == start
    assert await (await retention(logs)).enforce(nothing_elsewhere, nothing_needed) == {}
    assert await start_of(logs, log) == 4


async def test_what_is_archived_goes_earlier(logs: SharedLogs, clock: ManualClock) -> None:
    [log] = await logs.create(retention_ms="-1", retention_local_ms="1000")
    partition = await logs.partition_of(log)
    await timed(logs, log, clock)
    for archived, start in ((0, 0), (4, 4), (2, 4), (11, 4), (10, 9)):
        await (await retention(logs)).enforce({partition: archived}.__getitem__, nothing_needed)
        assert await start_of(logs, log) == start


async def test_producers_expire(logs: SharedLogs, clock: ManualClock) -> None:
    [log] = await logs.create()
    now = clock.now_ms()
    await logs.connection.execute(
        "INSERT INTO producer SELECT %s, n, 0, '{}', %s + n, CASE n WHEN 2 THEN 7 ELSE -1 END "
        "FROM generate_series(1, 5) AS n",
        [log, now - DAY_MS - 4],
    )
    await (await retention(logs)).enforce(nothing_elsewhere, nothing_needed)
    found = await logs.connection.execute("SELECT id FROM producer ORDER BY id")
    assert [row[0] for row in await found.fetchall()] == [2, 4, 5], "one has an open transaction"


async def test_segments_below_the_start_are_removed(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2, segment_bytes="14")
    await fill(logs, log)
    await fill(logs, other, 2)
    await consolidation(logs).run_once()
    await logs.trim(log, 11)
    before = await logs.read(log)
    metrics = HousekeepingMetrics()
    await removal(logs, metrics).run_once()
    assert metrics.removed_segments == 5
    assert await logs.one("SELECT count(*), min(base) FROM segment WHERE log = %s", log) == (5, 10)
    assert await logs.read(log) == before
    await logs.check()
    await logs.trim(log, 1000)
    await logs.trim(other, 1000)
    await removal(logs).run_once()
    assert await logs.one("SELECT count(*) FROM segment") == (0,)
    assert await logs.one("SELECT count(*) FROM object WHERE doomed_at IS NULL") == (0,)
    await logs.check()


async def test_deleted_topics_leave_nothing(logs: SharedLogs) -> None:
    gone = await logs.create("gone", partitions=7, segment_bytes="14")
    [log] = await logs.create("stays")
    for each in (*gone, log):
        await fill(logs, each, 3)
    await logs.append_together(*((each, make_batch(b"together")) for each in (*gone, log)))
    await consolidation(logs).consolidate(gone[:3])
    await logs.connection.execute("INSERT INTO producer SELECT id, 7, 0, '{}', 0, -1 FROM log")
    await logs.connection.execute("INSERT INTO aborted SELECT id, 5, 4, 7 FROM log")
    before = await logs.read(log)
    await logs.connection.execute("UPDATE topic SET deleted_at = now() WHERE name = 'gone'")
    await logs.create("gone")
    await removal(logs).run_once()
    assert await logs.one("SELECT count(*) FROM topic") == (2,)
    assert await logs.one("SELECT count(*), min(log) FROM producer") == (1, log)
    assert await logs.one("SELECT count(*), min(log) FROM aborted") == (1, log)
    assert await logs.one("SELECT count(*) FROM segment") == (0,)
    assert await logs.read(log) == before
    await consolidation(logs).run_once()
    assert await logs.one("SELECT count(*) FROM object WHERE doomed_at IS NULL") == (1,)
    await logs.check()


async def test_a_broker_without_the_lease_removes_nothing(logs: SharedLogs) -> None:
    [log] = await logs.create(segment_bytes="14")
    await fill(logs, log, 3)
    await consolidation(logs).run_once()
    await logs.trim(log, 2)
    old = removal(logs)
    await logs.take_lease()
    with pytest.raises(LeaseLost):
        await old.run_once()
    assert len(await logs.segments(log)) == 2
    assert await logs.one("SELECT count(*) FROM segment") == (3,)
    await logs.connection.execute("UPDATE topic SET deleted_at = now()")
    await logs.connection.execute("UPDATE log SET start = 0")
    with pytest.raises(LeaseLost):
        await old.run_once()
    assert await logs.one("SELECT count(*) FROM segment") == (3,)
