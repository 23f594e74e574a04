"""Runs become segments: with the same bytes, crash-safe at every step, for readers at no moment missing."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.records.references import NEVER, Reference
from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping.consolidation.consolidation import (
    Consolidation,
    ConsolidationSettings,
)
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from tests.storage.batches import make_batch
from tests.storage.shared.shared_logs import SharedLogs

DUE = ConsolidationSettings(due_bytes=0)


def consolidation(
    logs: SharedLogs, settings: ConsolidationSettings = DUE, metrics: HousekeepingMetrics | None = None
) -> Consolidation:
    return Consolidation(
        logs.connect,
        logs.objects,
        logs.names,
        logs.lease,
        logs.kept,
        lambda: logs.topics,
        logs.clock,
        metrics or HousekeepingMetrics(),
        settings,
    )


async def fill(logs: SharedLogs, log: int, count: int = 10) -> None:
    for number in range(count):
        await logs.append(log, make_batch(b"%d" % number, b"x" * 20), in_object=number % 3 == 0)


async def test_the_bytes_stay_the_same(logs: SharedLogs) -> None:
    [log] = await logs.create(segment_bytes="400")
    await fill(logs, log)
    await logs.refer(log, [Reference(PartitionId(new_topic_id(), 0), 5, 3, NEVER, 90)])
    before = await logs.read(log)
    metrics = HousekeepingMetrics()
    await consolidation(logs, metrics=metrics).run_once()
    assert await logs.read(log) == before
    segments = await logs.segments(log)
    assert len(segments) > 2
    assert segments[-1].last == 22
    tally = await logs.check()
    assert (tally.segments, tally.runs, tally.batches) == (len(segments), 0, 11)
    assert (metrics.consolidated_runs, metrics.segments_written) == (11, len(segments))
    [doomed] = await logs.one("SELECT count(*) FROM object WHERE doomed_at IS NOT NULL")
    assert doomed == 4
    await consolidation(logs).run_once()
    assert await logs.segments(log) == segments, "there is nothing left to do"
    await fill(logs, log)
    assert len(await logs.values(log)) == 41
    await consolidation(logs).run_once()
    assert len(await logs.values(log)) == 41
    await logs.check()


async def test_a_log_is_due_by_size_or_age(logs: SharedLogs, clock: ManualClock) -> None:
    [old, large, new] = await logs.create(partitions=3)
    settings = ConsolidationSettings(due_bytes=1000, due_ms=60_000)
    await fill(logs, old, 1)
    clock.advance(59)
    await fill(logs, large, 12)
    await fill(logs, new, 1)
    await consolidation(logs, settings).run_once()
    assert [bool(await logs.segments(each)) for each in (old, large, new)] == [False, True, False]
    clock.advance(2)
    metrics = HousekeepingMetrics()
    await consolidation(logs, settings, metrics).run_once()
    assert [bool(await logs.segments(each)) for each in (old, large, new)] == [True, True, False]
    assert metrics.consolidation_lag_seconds == 1


async def test_small_logs_share_an_object(logs: SharedLogs) -> None:
    many = await logs.create(partitions=10)
    for number in range(3):
        await logs.append_together(*((log, make_batch(b"%d" % number)) for log in many))
    reads = logs.objects.reads
    before = [await logs.read(log) for log in many]
    reads = logs.objects.reads
    await consolidation(logs).run_once()
    assert logs.objects.reads - reads == 3, "neighbours in an object are read together"
    assert len({segment.key for log in many for segment in await logs.segments(log)}) == 1
    assert [await logs.read(log) for log in many] == before
    await logs.check()


async def test_objects_have_a_limit(logs: SharedLogs) -> None:
    many = await logs.create(partitions=10, segment_bytes="100000")
    for log in many[:9]:
        await fill(logs, log, 2)
    await fill(logs, many[9], 30)
    before = [await logs.read(log) for log in many]
    settings = ConsolidationSettings(due_bytes=0, mixed_bytes=800, segment_bytes=1000, fetch_bytes=300)
    await consolidation(logs, settings).run_once()
    assert [await logs.read(log) for log in many] == before
    keys = {segment.key for log in many for segment in await logs.segments(log)}
    large = {segment.key for segment in await logs.segments(many[9])}
    assert len(large) == 3
    assert len(keys) - len(large) == 3
    assert all(len(logs.objects.stored[key][0]) <= 1100 for key in keys)
    await logs.check()


async def test_what_is_below_the_start_is_not_written(logs: SharedLogs) -> None:
    [log, trimmed] = await logs.create(partitions=2)
    await fill(logs, log)
    await fill(logs, trimmed, 4)
    await logs.trim(log, 5)
    await logs.trim(trimmed, 100)
    before = await logs.read(log)
    await consolidation(logs).run_once()
    assert await logs.read(log) == before
    assert (await logs.segments(log))[0].base == 4
    assert await logs.segments(trimmed) == []
    assert await logs.one("SELECT segments_to, bytes FROM log WHERE id = %s", trimmed) == (8, 0)
    await logs.check()


async def test_a_damaged_run_stops_only_its_log(logs: SharedLogs, caplog: pytest.LogCaptureFixture) -> None:
    [log, other] = await logs.create(partitions=2)
    await fill(logs, log, 6)
    await fill(logs, other, 6)
    await logs.connection.execute(
        "UPDATE inline_data SET data = set_byte(data, 80, 1) "
        "WHERE id = (SELECT inline FROM run WHERE log = %s AND base = 8)",
        [log],
    )
    metrics = HousekeepingMetrics()
    work = consolidation(logs, ConsolidationSettings(due_bytes=0, fetch_bytes=500), metrics)
    for _ in range(3):
        await work.run_once()
        assert (await logs.segments(log))[-1].last == 7
        assert (await logs.segments(other))[-1].last == 11
        assert metrics.damaged_logs == 1
    assert caplog.text.count("not consolidated from offset 8 on") == 1


async def test_logs_that_changed_meanwhile_are_left_out(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2)
    await fill(logs, log, 3)
    await fill(logs, other, 3)
    before = await logs.read(other)

    work = consolidation(logs)
    put = logs.objects.put

    async def slow_put(key: str, data: bytes | bytearray | memoryview) -> None:
        await put(key, data)
        await logs.connection.execute("UPDATE log SET segments_to = 2 WHERE id = %s", [log])

    logs.objects.put = slow_put  # type: ignore[method-assign]
    await work.run_once()
    await logs.connection.execute("UPDATE log SET segments_to = 0 WHERE id = %s", [log])
    assert await logs.segments(log) == []
    assert len(await logs.segments(other)) == 1
    await logs.check()
    assert await logs.read(other) == before

    logs.objects.put = put  # type: ignore[method-assign]
    await fill(logs, other, 1)
    await work.run_once()
    assert len(await logs.values(log)) == 6
    await logs.check()


async def test_a_start_that_moves_meanwhile(logs: SharedLogs) -> None:
    [log] = await logs.create(segment_bytes="400")
    await fill(logs, log)
    put = logs.objects.put

    async def slow_put(key: str, data: bytes | bytearray | memoryview) -> None:
        await put(key, data)
        await logs.trim(log, 9)

    logs.objects.put = slow_put  # type: ignore[method-assign]
    await consolidation(logs).run_once()
    await logs.check()
    assert min(await logs.values(log)) <= 9


async def test_a_broker_without_the_lease_changes_nothing(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 3)
    work = consolidation(logs)
    await logs.take_lease()
    with pytest.raises(LeaseLost):
        await work.run_once()
    assert await logs.segments(log) == []
    await logs.check()
    await consolidation(logs).run_once()
    assert len(await logs.segments(log)) == 1
