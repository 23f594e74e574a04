"""What compaction keeps, when it runs, and what it leaves alone."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.compression import Codec
from posthouse.storage.bounds import TimestampedOffset
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation
from tests.storage.batches import make_topic
from tests.storage.compacted import Pair, Writer, batches, compacted_topic, marker, put, read_records, slices


async def make(storage: Storage, **overrides: str) -> PartitionId:
    """A compacted topic where every batch has its own segment, unless told otherwise."""
    topic = compacted_topic(**{"segment_bytes": "14", "delete_retention_ms": "60000"} | overrides)
    await storage.create_topics([topic])
    return topic.partition(0)


async def commit(storage: Storage, *operations: Operation) -> list[int]:
    return [(await storage.commit([each]))[0].base_offset for each in operations]


async def write(storage: Storage, partition: PartitionId, *pairs: Pair, timestamp: int = 1000) -> None:
    """A batch for each pair."""
    for pair in pairs:
        await commit(storage, put(partition, pair, timestamp=timestamp))


async def seen(storage: Storage, partition: PartitionId) -> dict[int, Pair]:
    return {
        offset: (each.key, each.value) for offset, each in (await read_records(storage, partition)).items()
    }


async def test_the_latest_of_each_key_stays_at_its_offset(storage: Storage) -> None:
    partition = await make(storage)
    await write(storage, partition, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"end", b""))
    await storage.compact()
    assert await seen(storage, partition) == {
        1: (b"b", b"2"),
        2: (b"a", b"3"),
        3: (b"c", b"4"),
        4: (b"end", b""),
    }
    assert storage.bounds(partition).end == 5


async def test_records_go_out_of_the_middle_of_a_batch(storage: Storage) -> None:
    partition = await make(storage)
    for codec in Codec:
        pairs = [(b"k%d" % number, codec.name.encode()) for number in range(6)]
        await commit(storage, put(partition, *pairs, codec=codec, timestamp=5000))
    await write(storage, partition, (b"k2", b"new"), (b"end", b""))
    before = await read_records(storage, partition)
    await storage.compact()
    after = await read_records(storage, partition)
    last = 6 * (len(Codec) - 1)
    assert sorted(after) == [last, last + 1, last + 3, last + 4, last + 5, last + 6, last + 7]
    assert all(before[offset] == record for offset, record in after.items())
    [kept] = [h for data in await slices(storage, partition) for _, h in batches(data) if h.count == 5]
    assert (kept.base_offset, kept.last_offset_delta, kept.codec) == (last, 5, Codec.ZSTD)


async def test_the_newest_segment_is_left_alone(storage: Storage) -> None:
    partition = await make(storage, segment_bytes="100000")
    await write(storage, partition, (b"a", b"1"))
    await storage.compact()
    assert await seen(storage, partition) == {0: (b"a", b"1")}


async def test_a_tombstone_stays_for_its_time(storage: Storage, clock: ManualClock) -> None:
    partition = await make(storage)
    await write(storage, partition, (b"a", b"1"), (b"a", None), (b"b", b"2"), (b"end", b""))
    await storage.compact()
    assert (await seen(storage, partition))[1] == (b"a", None)
    clock.advance(59.9)
    await write(storage, partition, (b"end", b""), (b"end", b""))
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [1, 2, 4, 5], "there was a pass"
    assert (await read_records(storage, partition))[1].timestamp == 1000, "records keep their times"
    clock.advance(0.2)
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [2, 4, 5]


async def test_nothing_behind_the_last_stable_offset_is_touched(storage: Storage) -> None:
    partition = await make(storage)
    await write(storage, partition, (b"a", b"1"), (b"a", b"2"))
    await commit(storage, put(partition, (b"a", b"undecided"), writer=Writer(7, 0)))
    await write(storage, partition, (b"a", b"4"), (b"a", b"5"), (b"end", b""))
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [1, 2, 3, 4, 5]
    assert storage.bounds(partition).stable == 2


async def test_an_aborted_record_supersedes_nothing(storage: Storage, clock: ManualClock) -> None:
    partition = await make(storage)
    await write(storage, partition, (b"a", b"1"))
    await commit(
        storage,
        put(partition, (b"a", b"aborted"), writer=Writer(7, 0)),
        marker(partition, 7, commit=False),
        put(partition, (b"x", b"also aborted"), writer=Writer(7, 1)),
        marker(partition, 7, commit=False),
    )
    await write(storage, partition, (b"end", b""))
    await storage.compact()
    assert await seen(storage, partition) == {0: (b"a", b"1"), 5: (b"end", b"")}
    assert [each.last_offset for each in storage.aborted(partition, 0, 6)] == [2, 4]


async def test_markers_of_transactions_that_left_nothing_go_in_time(
    storage: Storage, clock: ManualClock
) -> None:
    partition = await make(storage)
    for sequence, commits in enumerate([True, False, False]):
        await commit(
            storage,
            put(partition, (b"a", b"%d" % sequence), writer=Writer(7, sequence)),
            marker(partition, 7, commit=commits),
        )
    await write(storage, partition, (b"a", b"latest"), (b"end", b""))

    async def markers() -> list[int]:
        headers = [h for data in await slices(storage, partition) for _, h in batches(data)]
        return [header.base_offset for header in headers if header.is_control]

    await storage.compact()
    assert await markers() == [1, 3, 5]
    clock.advance(61)
    await storage.compact()  # of what is aborted the list goes first
    assert await markers() == [3, 5]
    await storage.compact()
    assert await markers() == [5], "the last of a producer has its epoch"
    assert [each.last_offset for each in storage.aborted(partition, 0, 8)] == [5]


async def test_a_marker_stays_with_its_records(storage: Storage, clock: ManualClock) -> None:
    """Without it, whoever reads only the log would take the transaction for an open one."""
    partition = await make(storage)
    await commit(
        storage,
        put(partition, (b"a", b"stays"), writer=Writer(7, 0)),
        marker(partition, 7, commit=True),
        put(partition, (b"b", b"goes"), writer=Writer(7, 1)),
        marker(partition, 7, commit=True),
    )
    for number in range(3):
        await write(storage, partition, (b"b", b"%d" % number), (b"end", b""))
        await storage.compact()
        clock.advance(61)
    headers = [header for data in await slices(storage, partition) for _, header in batches(data)]
    assert [header.base_offset for header in headers if header.is_control] == [1, 3]


async def test_the_last_batch_of_a_producer_stays_empty(storage: Storage) -> None:
    partition = await make(storage)
    writes = [put(partition, (b"a", b"%d" % n), writer=Writer(7, n, transactional=False)) for n in range(3)]
    assert await commit(storage, *writes) == [0, 1, 2]
    await write(storage, partition, (b"a", b"latest"), (b"end", b""))
    await storage.compact()
    headers = [header for data in await slices(storage, partition) for _, header in batches(data)]
    [last] = [header for header in headers if header.producer_id == 7]
    assert (last.base_offset, last.count, last.base_sequence, last.producer_epoch) == (2, 0, 2, 0)
    assert sorted(await seen(storage, partition)) == [3, 4]
    again = put(partition, (b"a", b"2"), writer=Writer(7, 2, transactional=False))
    assert await commit(storage, again) == [2]


async def test_the_dirty_ratio_decides(storage: Storage) -> None:
    partition = await make(storage, min_cleanable_dirty_ratio="0.5")
    await write(storage, partition, *[(b"%d" % n, b"") for n in range(10)])
    await storage.compact()
    await write(storage, partition, (b"0", b"new"), (b"0", b"newer"), (b"end", b""))
    await storage.compact()
    assert 0 in await seen(storage, partition), "two of eleven are not enough"
    await write(storage, partition, *[(b"0", b"%d" % n) for n in range(12)])
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [*range(1, 10), 12, 23, 24]


async def test_the_greatest_lag_decides_too(storage: Storage, clock: ManualClock) -> None:
    partition = await make(storage, min_cleanable_dirty_ratio="1", max_compaction_lag_ms="5000")
    await write(storage, partition, *[(b"%d" % n, b"") for n in range(10)])
    await storage.compact()
    await write(storage, partition, (b"0", b"new"), (b"end", b""))
    await storage.compact()
    assert 0 in await seen(storage, partition)
    clock.advance(5)
    await storage.compact()
    assert 0 not in await seen(storage, partition)


async def test_what_is_too_young_stays(storage: Storage, clock: ManualClock) -> None:
    partition = await make(storage, min_compaction_lag_ms="5000")
    await write(storage, partition, (b"a", b"1"), (b"a", b"2"), (b"end", b""), timestamp=clock.now_ms())
    clock.advance(4.9)
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [0, 1, 2]
    clock.advance(0.1)
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [1, 2]


@pytest.mark.parametrize(("policy", "kept"), [("compact", {1, 2}), ("compact,delete", {2})])
async def test_retention_is_for_those_that_also_delete(
    storage: Storage, clock: ManualClock, policy: str, kept: set[int]
) -> None:
    partition = await make(storage, cleanup_policy=policy, retention_ms="1000")
    await write(storage, partition, (b"a", b"1"), (b"a", b"2"), timestamp=clock.now_ms())
    await storage.compact()
    clock.advance(2)
    await write(storage, partition, (b"end", b""), timestamp=clock.now_ms())
    await storage.enforce_retention()
    await storage.compact()
    assert set(await seen(storage, partition)) == kept


async def test_records_without_a_key_go_when_a_topic_becomes_compacted(storage: Storage) -> None:
    topic = make_topic(segment_bytes="14")
    await storage.create_topics([topic])
    partition = topic.partition(0)
    await write(storage, partition, (None, b"1"), (b"a", b"2"), (b"end", b""))
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [0, 1, 2]
    overrides = {**topic.overrides, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    config = TopicConfig().with_overrides(overrides)
    await storage.update_topic(
        Topic(id=topic.id, name=topic.name, partitions=1, overrides=overrides, config=config)
    )
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [1, 2]


async def test_times_are_found_in_what_is_left(storage: Storage) -> None:
    partition = await make(storage)
    for number in range(8):
        await write(storage, partition, (b"%d" % (number % 3), b""), timestamp=1000 + 10 * number)
    await storage.compact()
    assert await storage.find_timestamp(partition, 1000) == TimestampedOffset(4, 1040)
    assert await storage.find_max_timestamp(partition) == TimestampedOffset(7, 1070)


async def test_what_is_needed_stays_as_it_is(storage: Storage) -> None:
    partition = await make(storage)
    await write(storage, partition, *((b"a", b"%d" % number) for number in range(6)), (b"end", b""))
    await storage.compact(lambda partition: 3)
    assert sorted(await seen(storage, partition)) == [2, 3, 4, 5, 6]
    await storage.compact(lambda partition: 0)
    assert sorted(await seen(storage, partition)) == [2, 3, 4, 5, 6]
    await storage.compact()
    assert sorted(await seen(storage, partition)) == [5, 6]
