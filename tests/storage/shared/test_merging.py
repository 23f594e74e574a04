"""Small segments become one: with the same batches, crash-safe at every step, readers miss nothing."""

import asyncio

import pytest

from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.merging.merging import Merging, MergingSettings
from posthouse.storage.shared.housekeeping.merging.tiers import FAN_IN
from tests.storage.batches import make_batch
from tests.storage.compacted import COMPACT
from tests.storage.shared.crashes import at_every_step
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation
from tests.storage.shared.test_garbage import garbage
from tests.storage.shared.test_reads_beside_upkeep import Reader
from tests.storage.shared.test_retention import removal

ALL = {"retention_ms": "-1", "segment_bytes": "1000000"}


def merging(
    logs: SharedLogs, settings: MergingSettings | None = None, metrics: HousekeepingMetrics | None = None
) -> Merging:
    return Merging(
        logs.connect,
        logs.objects,
        logs.names,
        logs.lease,
        logs.kept,
        lambda: logs.topics,
        metrics or HousekeepingMetrics(),
        settings,
    )


async def consolidated(logs: SharedLogs, *owners: int, count: int = FAN_IN) -> None:
    """Adds `count` segments to each log."""
    for number in range(count):
        for owner in owners:
            await logs.append(owner, make_batch(b"%d" % number, b"x"))
        await consolidation(logs).consolidate(owners)


async def test_the_batches_stay_the_same(logs: SharedLogs) -> None:
    [log, other] = await logs.create("orders", 2, **ALL)
    await consolidated(logs, log, other, count=FAN_IN + 2)
    before = [await logs.read(each) for each in (log, other)]
    metrics = HousekeepingMetrics()
    reads = logs.objects.reads
    await merging(logs, metrics=metrics).run_once()
    assert logs.objects.reads - reads == FAN_IN, "segments that lie in one object are read together"
    for each in (log, other):
        segments = await logs.segments(each)
        assert [(found.base, found.last, found.generation) for found in segments] == [
            (0, 2 * FAN_IN - 1, 1),
            (2 * FAN_IN, 2 * FAN_IN + 1, 0),
            (2 * FAN_IN + 2, 2 * FAN_IN + 3, 0),
        ]
    assert len({(await logs.segments(each))[0].key for each in (log, other)}) == 1
    assert [await logs.read(each) for each in (log, other)] == before
    assert metrics.merged_segments == 2 * FAN_IN
    [doomed] = await logs.one("SELECT count(*) FROM object WHERE doomed_at IS NOT NULL")
    assert doomed == FAN_IN, "the objects of old segments are released"
    await logs.check()
    await merging(logs, metrics=metrics).run_once()
    assert metrics.merged_segments == 2 * FAN_IN, "there is nothing left to do"


async def test_many_segments_become_few(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **ALL)
    work = merging(logs)
    for _ in range(12):
        await consolidated(logs, log)
        await work.run_once()
    before = await logs.read(log)
    await work.run_once()
    assert [segment.last + 1 - segment.base for segment in await logs.segments(log)] == [128, 16, 16, 16, 16]
    assert await logs.read(log) == before
    await garbage(logs).run_once()
    await logs.check()


async def test_compacted_and_deleted_topics_are_left_out(logs: SharedLogs) -> None:
    [compacted] = await logs.create("compacted", 1, **COMPACT | {"segment_bytes": "1000000"})
    [deleted] = await logs.create("deleted", 1, **ALL)
    await consolidated(logs, compacted, deleted)
    del logs.topics[(await logs.partition_of(deleted)).topic]
    await merging(logs).run_once()
    for each in (compacted, deleted):
        assert len(await logs.segments(each)) == FAN_IN


async def test_a_turn_has_limits(logs: SharedLogs) -> None:
    owners = await logs.create("orders", 5, **ALL)
    await consolidated(logs, *owners)
    work = merging(logs, MergingSettings(rows_at_once=2 * FAN_IN + 3, turn_bytes=1, mixed_bytes=100))
    left = []
    for _ in owners:
        await work.run_once()
        left.append(sum([len(await logs.segments(each)) for each in owners]))
    assert left == [33, 26, 19, 12, 5], "one log in each turn"
    await work.run_once()
    await logs.check()


async def test_a_log_that_is_larger_than_a_page(logs: SharedLogs) -> None:
    [small, large] = await logs.create("orders", 2, **ALL)
    await consolidated(logs, large, count=30)
    await consolidated(logs, small)
    before = await logs.read(large)
    work = merging(logs, MergingSettings(rows_at_once=FAN_IN + 1))
    for _ in range(12):
        await work.run_once()
    assert len(await logs.segments(large)) < 12
    assert len(await logs.segments(small)) == 1
    assert await logs.read(large) == before
    await logs.check()


async def test_segments_below_the_start_are_left_to_removal(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **ALL)
    await consolidated(logs, log, count=FAN_IN + 3)
    await logs.trim(log, 7)
    await merging(logs).run_once()
    await logs.check()
    await removal(logs).run_once()
    assert [each.base for each in await logs.segments(log)] == [6]
    await logs.check()


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_start_that_moves_meanwhile(logs: SharedLogs, is_removed: bool) -> None:
    [log, other] = await logs.create("orders", 2, **ALL)
    await consolidated(logs, log, other)
    put = logs.objects.put

    async def slow_put(key: str, data: bytes | bytearray | memoryview) -> None:
        await put(key, data)
        logs.objects.put = put  # type: ignore[method-assign]
        await logs.trim(log, 5)
        if is_removed:
            await removal(logs).run_once()

    logs.objects.put = slow_put  # type: ignore[method-assign]
    await merging(logs).run_once()
    assert len(await logs.segments(log)) == FAN_IN - 2, "it has changed, so nothing counts"
    assert len(await logs.segments(other)) == 1
    await removal(logs).run_once()
    await logs.check()


async def test_a_damaged_segment_stays_as_it_is(logs: SharedLogs, caplog: pytest.LogCaptureFixture) -> None:
    [log, other] = await logs.create("orders", 2, **ALL)
    await consolidated(logs, log, other)
    damaged = (await logs.segments(log))[3]
    data, modified = logs.objects.stored[damaged.key]
    at = damaged.pos + damaged.size - 3
    logs.objects.stored[damaged.key] = (data[:at] + b"?" + data[at + 1 :], modified)
    work = merging(logs)
    for _ in range(3):
        await work.run_once()
    assert len(await logs.segments(log)) == FAN_IN
    assert len(await logs.segments(other)) == 1
    assert caplog.text.count("segments from offset 0 on are not merged") == 1


async def test_an_object_that_is_missing(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **ALL)
    await consolidated(logs, log)
    del logs.objects.stored[(await logs.segments(log))[3].key]
    await merging(logs).run_once()
    assert len(await logs.segments(log)) == FAN_IN


async def test_a_broker_without_the_lease_changes_nothing(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **ALL)
    await consolidated(logs, log)
    work = merging(logs)
    await logs.take_lease()
    with pytest.raises(LeaseLost):
        await work.run_once()
    assert len(await logs.segments(log)) == FAN_IN
    await logs.check()


async def test_a_crash_at_any_step(logs: SharedLogs) -> None:
    [log, other] = await logs.create("orders", 2, **ALL)

    async def prepare() -> None:
        await consolidated(logs, log, other)

    assert await at_every_step(logs, prepare, lambda: merging(logs).run_once()) >= 6


async def test_readers_miss_nothing(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **ALL)
    connections = [await logs.connect() for _ in range(2)]
    readers = [
        Reader(logs, connection, log, pause) for connection, pause in zip(connections, (0.01, 0), strict=True)
    ]
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    try:
        for _ in range(5):
            await consolidated(logs, log)
            await merging(logs).run_once()
            for task in tasks:
                if task.done():
                    await task
    finally:
        for reader in readers:
            reader.is_stopped = True
        await asyncio.gather(*tasks)
        for connection in connections:
            await connection.close()
    assert all(reader.rounds for reader in readers)
    await logs.check()
