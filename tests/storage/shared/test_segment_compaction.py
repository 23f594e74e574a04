"""Compaction of segments in objects. What it keeps is shown by the tests of all storages."""

from collections.abc import Sequence

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.retention import nothing_needed
from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping.compaction.compaction import Compaction, CompactionSettings
from posthouse.storage.shared.housekeeping.compaction.swap import CompactionSwap
from tests.storage.compacted import COMPACT, Pair, put
from tests.storage.shared.partition_view import View
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation


class Effects:
    def __init__(self) -> None:
        self.growth = 0
        self.to = 0
        self.forgotten: list[int] = []

    def compacted(self, partition: PartitionId, *, to: int, growth: int) -> None:
        self.growth += growth
        self.to = to

    def aborted_forgotten(self, partition: PartitionId, markers: Sequence[int]) -> None:
        self.forgotten += markers


async def compaction(
    logs: SharedLogs,
    effects: Effects | None = None,
    settings: CompactionSettings | None = None,
    metrics: StorageMetrics | None = None,
) -> Compaction:
    view = View(logs)
    await view.refresh()
    return Compaction(
        logs.connect,
        logs.objects,
        CompactionSwap(logs.objects, logs.names, logs.lease, effects or Effects()),
        consolidation(logs),
        logs.kept,
        view,
        logs.clock,
        metrics or StorageMetrics(),
        settings,
    )


async def write(logs: SharedLogs, log: int, *pairs: Pair) -> None:
    partition = await logs.partition_of(log)
    for number, pair in enumerate(pairs):
        await logs.append(log, bytearray(put(partition, pair).batch), in_object=number % 4 == 3)


async def records(logs: SharedLogs, log: int) -> dict[int, Pair]:
    data = await logs.read(log)
    return {
        record.offset: (record.key, record.value)
        for position, header in iter_headers(data)
        for record in iter_records(data[position : position + header.length])
    }


async def latest(logs: SharedLogs) -> dict[int, dict[bytes | None, bytes | None]]:
    """The last value of every key of every log."""
    found = await logs.connection.execute("SELECT id FROM log ORDER BY id")
    return {
        id: {key: value for _, (key, value) in sorted((await records(logs, id)).items())}
        for [id] in await found.fetchall()
    }


async def test_the_latest_of_each_key_stays(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "300"})
    await write(logs, log, *((b"%d" % (number % 3), b"%d" % number) for number in range(20)))
    [before] = await logs.one("SELECT bytes FROM log")
    effects = Effects()
    metrics = StorageMetrics()
    await (await compaction(logs, effects, metrics=metrics)).run_once(nothing_needed)
    segments = await logs.segments(log)
    active = segments[-1].base
    kept = [number for number in range(20) if number >= active or number + 3 >= active]
    assert await records(logs, log) == {n: (b"%d" % (n % 3), b"%d" % n) for n in kept}
    assert segments[0].generation == 1
    assert segments[-1].generation == 0, "the last record is left alone"
    [after] = await logs.one("SELECT bytes FROM log")
    assert after - before == effects.growth < 0
    assert effects.to == active
    assert metrics.compacted_partitions == 1
    await logs.check()
    await (await compaction(logs, metrics=metrics)).run_once(nothing_needed)
    assert metrics.compacted_partitions == 1, "there is nothing left to do"
    await write(logs, log, *((b"%d" % (number % 3), b"x") for number in range(20)))
    await (await compaction(logs, metrics=metrics)).run_once(nothing_needed)
    assert metrics.compacted_partitions == 2
    assert (await logs.segments(log))[0].generation == 2
    await logs.check()


async def test_memory_for_few_keys_takes_several_passes(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "300"})
    await write(logs, log, *((b"%d" % (number % 10), b"%d" % number) for number in range(40)))
    metrics = StorageMetrics()
    settings = CompactionSettings(map_bytes=1000)
    await (await compaction(logs, settings=settings, metrics=metrics)).run_once(nothing_needed)
    assert metrics.compacted_partitions > 2
    assert len(await records(logs, log)) <= 14
    await logs.check()


async def test_what_is_needed_stays(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "14"})
    await write(logs, log, *((b"a", b"%d" % number) for number in range(6)))
    await (await compaction(logs)).run_once(lambda partition: 3)
    assert sorted(await records(logs, log)) == [2, 3, 4, 5]


async def test_it_waits_until_enough_is_dirty(logs: SharedLogs, clock: ManualClock) -> None:
    limits = {"min_cleanable_dirty_ratio": "0.5", "segment_bytes": "14", "max_compaction_lag_ms": "60000"}
    [log] = await logs.create("orders", 1, **COMPACT | limits)
    await write(logs, log, *((b"%d" % number, b"") for number in range(8)))
    metrics = StorageMetrics()
    await (await compaction(logs, metrics=metrics)).run_once(nothing_needed)
    assert metrics.compacted_partitions == 1
    await write(logs, log, (b"0", b"1"), (b"0", b"2"))
    await (await compaction(logs, metrics=metrics)).run_once(nothing_needed)
    assert metrics.compacted_partitions == 1
    assert len(await logs.segments(log)) == 8, "nor are its runs consolidated"
    clock.advance(61)
    await (await compaction(logs, metrics=metrics)).run_once(nothing_needed)
    assert metrics.compacted_partitions == 2
    await logs.check()


async def test_a_damaged_segment_stays_as_it_is(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "14"})
    await write(logs, log, *((b"a", b"%d" % number) for number in range(5)))
    await consolidation(logs).run_once()
    damaged = (await logs.segments(log))[1]
    data, modified = logs.objects.stored[damaged.key]
    at = damaged.pos + damaged.size - 3
    logs.objects.stored[damaged.key] = (data[:at] + b"?" + data[at + 1 :], modified)
    await (await compaction(logs)).run_once(nothing_needed)
    segments = await logs.segments(log)
    assert [segment.generation for segment in segments] == [1, 0, 1, 0, 0]


async def test_segments_that_went_meanwhile_begin_another_pass(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "14"})
    await write(logs, log, *((b"a", b"%d" % number) for number in range(6)))
    await consolidation(logs).run_once()
    original = logs.objects.put

    async def slow_put(key: str, data: bytes | bytearray | memoryview) -> None:
        await original(key, data)
        logs.objects.put = original  # type: ignore[method-assign]
        await logs.trim(log, 2)
        await logs.connection.execute(
            "WITH gone AS (DELETE FROM segment WHERE log = %s AND base < 2 RETURNING object) "
            "SELECT release_objects(array_agg(object), array_agg(1)) FROM gone",
            [log],
        )

    logs.objects.put = slow_put  # type: ignore[method-assign]
    metrics = StorageMetrics()
    await (await compaction(logs, metrics=metrics)).run_once(nothing_needed)
    assert metrics.compacted_partitions == 2
    assert sorted(await records(logs, log)) == [4, 5]
    await logs.check()


async def test_a_broker_without_the_lease_changes_nothing(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "14"})
    await write(logs, log, *((b"a", b"%d" % number) for number in range(6)))
    await consolidation(logs).run_once()
    old = await compaction(logs)
    await logs.take_lease()
    with pytest.raises(LeaseLost):
        await old.run_once(nothing_needed)
    assert len(await records(logs, log)) == 6
    await logs.check()
