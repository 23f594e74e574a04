"""What every storage promises of commits, reads and topics, whatever it keeps the records in."""

import asyncio
from dataclasses import replace

import pytest

from posthouse.model.errors import OffsetOutOfRange, StorageClosed, UnknownPartition
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.bounds import Bounds, TimestampedOffset
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.producers import AbortedTransaction
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.compacted import Writer, marker, put
from tests.storage.partitions import partition_in


async def test_a_new_partition_is_empty(storage: Storage) -> None:
    partition = await partition_in(storage)
    assert storage.bounds(partition) == Bounds(0, 0, 0)
    assert storage.size(partition) == 0
    assert not (await storage.read(partition, 0, 1000)).data
    assert await storage.find_timestamp(partition, 0) is None
    assert await storage.find_max_timestamp(partition) is None


async def test_offsets_follow_the_order_of_commits_that_nobody_waited_for(storage: Storage) -> None:
    partition = await partition_in(storage)
    commits = [storage.commit([append(partition, b"a%d" % i, b"b%d" % i)]) for i in range(40)]
    outcomes = [outcome for [outcome] in await asyncio.gather(*commits)]
    assert [outcome.base_offset for outcome in outcomes] == list(range(0, 80, 2))
    expected = {2 * i + j: b"ab"[j : j + 1] + b"%d" % i for i in range(40) for j in range(2)}
    assert await read_all(storage, partition) == expected


async def test_operations_of_one_commit_take_effect_in_order(storage: Storage) -> None:
    topic = make_topic(partitions=2)
    await storage.create_topics([topic])
    first, second = topic.partition_ids()
    outcomes = await storage.commit(
        [
            append(first, b"1"),
            append(second, b"2"),
            append(first, b"3", b"4"),
            Trim(first, 1),
            Trim(second, 9),
        ]
    )
    assert outcomes == [Outcome(0, 0), Outcome(0, 0), Outcome(1, 0), Outcome(1, 1), Outcome(1, 1)]
    assert await read_all(storage, first) == {1: b"3", 2: b"4"}
    assert storage.bounds(second) == Bounds(1, 1, 1)


async def test_a_commit_with_one_unknown_partition_does_nothing(storage: Storage) -> None:
    partition = await partition_in(storage)
    with pytest.raises(UnknownPartition):
        storage.commit([append(partition, b"1"), append(PartitionId(new_topic_id(), 0), b"2")])
    [outcome] = await storage.commit([append(partition, b"3")])
    assert outcome.base_offset == 0
    assert await read_all(storage, partition) == {0: b"3"}


async def test_an_empty_commit_succeeds(storage: Storage) -> None:
    assert await storage.commit([]) == []


async def test_what_was_committed_before_a_barrier_can_be_read_behind_it(storage: Storage) -> None:
    partition = await partition_in(storage)
    commits = [storage.commit([append(partition, b"%d" % number)]) for number in range(5)]
    await storage.barrier()
    assert all(commit.done() for commit in commits)
    assert await read_all(storage, partition) == {number: b"%d" % number for number in range(5)}
    await storage.barrier()


async def test_reads_start_with_the_batch_that_holds_the_offset(storage: Storage) -> None:
    partition = await partition_in(storage)
    for base in range(0, 30, 3):
        await storage.commit([append(partition, *(b"%d" % (base + i) for i in range(3)))])
    for offset in range(30):
        found = values_in((await storage.read(partition, offset, 1)).data)
        base = offset - offset % 3
        assert found == {base + i: b"%d" % (base + i) for i in range(3)}
    slice_at_end = await storage.read(partition, 30, 1000)
    assert not slice_at_end.data and slice_at_end.bounds == Bounds(0, 30, 30)


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 80, 150, 10_000])
async def test_a_slice_keeps_to_its_limit_but_for_the_first_batch(storage: Storage, max_bytes: int) -> None:
    partition = await partition_in(storage, segment_bytes="100000")
    for number in range(12):
        await storage.commit([append(partition, b"x" * number)])
    for offset in range(12):
        data = (await storage.read(partition, offset, max_bytes)).data
        found = values_in(data)
        assert min(found) == offset
        assert len(data) <= max_bytes or len(found) == 1
        data = (await storage.read(partition, offset, max_bytes, at_least_one=False)).data
        assert len(data) <= max_bytes


async def test_a_batch_larger_than_a_segment_and_a_journal_file_is_kept(storage: Storage) -> None:
    partition = await partition_in(storage, segment_bytes="200")
    values = [b"x" * 200_000, b"y", b"z" * 5_000]
    for value in values:
        await storage.commit([append(partition, value)])
    assert await read_all(storage, partition) == dict(enumerate(values))
    assert not (await storage.read(partition, 0, 1000, at_least_one=False)).data


async def test_offsets_outside_the_bounds_are_refused(storage: Storage) -> None:
    partition = await partition_in(storage)
    for _ in range(8):
        await storage.commit([append(partition, b"value")])
    await storage.commit([Trim(partition, 3)])
    for offset in (-1, 0, 2, 9, 2**62):
        with pytest.raises(OffsetOutOfRange):
            await storage.read(partition, offset, 1000)


async def test_a_partition_that_does_not_exist(storage: Storage) -> None:
    nowhere = PartitionId(new_topic_id(), 0)
    for call in (storage.bounds, storage.size):
        with pytest.raises(UnknownPartition):
            call(nowhere)
    with pytest.raises(UnknownPartition):
        await storage.read(nowhere, 0, 1)
    with pytest.raises(UnknownPartition):
        await storage.find_timestamp(nowhere, 0)
    with pytest.raises(UnknownPartition):
        await storage.find_max_timestamp(nowhere)


async def test_timestamps_find_the_first_record_at_or_after(storage: Storage) -> None:
    partition = await partition_in(storage)
    times = [10, 30, 20, 20, 50, 40, 40, 45, 50, 60, 5, 7]
    for first in range(0, 12, 2):
        await storage.commit([append(partition, b"a", b"b", timestamps=times[first : first + 2])])
    for wanted in range(65):
        expected = next((TimestampedOffset(o, t) for o, t in enumerate(times) if t >= wanted), None)
        assert await storage.find_timestamp(partition, wanted) == expected
    assert await storage.find_max_timestamp(partition) == TimestampedOffset(9, 60)


async def test_the_first_of_equal_highest_timestamps_is_found(storage: Storage) -> None:
    partition = await partition_in(storage)
    for times in ([1, 9], [9, 9], [9, 2], [9, 1], [3, 9], [9, 9]):
        await storage.commit([append(partition, b"a", b"b", timestamps=times)])
    assert await storage.find_max_timestamp(partition) == TimestampedOffset(1, 9)


async def test_timestamps_of_trimmed_records_are_forgotten(storage: Storage) -> None:
    partition = await partition_in(storage)
    times = [90, 10, 80, 20, 70, 30, 60, 40, 50, 50]
    for first in range(0, 10, 2):
        await storage.commit([append(partition, b"a", b"b", timestamps=times[first : first + 2])])
    for start in range(1, 10):
        await storage.commit([Trim(partition, start)])
        kept = list(enumerate(times))[start:]
        highest = max(time for _, time in kept)
        first_highest = next(offset for offset, time in kept if time == highest)
        assert await storage.find_max_timestamp(partition) == TimestampedOffset(first_highest, highest)
        for wanted in (0, 35, 55, 85):
            expected = next((TimestampedOffset(o, t) for o, t in kept if t >= wanted), None)
            assert await storage.find_timestamp(partition, wanted) == expected
    await storage.commit([Trim(partition, 10)])
    assert await storage.find_max_timestamp(partition) is None


async def test_a_slice_of_stable_records_brings_its_aborted_transactions(storage: Storage) -> None:
    partition = await partition_in(storage)
    for operation in (
        append(partition, b"0"),
        put(partition, (None, b"1"), writer=Writer(1, 0)),
        marker(partition, 1, commit=False),
        put(partition, (None, b"3"), writer=Writer(1, 1)),
        marker(partition, 1, commit=True),
        put(partition, (None, b"5"), writer=Writer(1, 2)),
    ):
        await storage.commit([operation])
    assert storage.bounds(partition) == Bounds(0, 6, 5)
    read = await storage.read(partition, 0, 10_000, stable_only=True)
    assert values_in(read.data).keys() == {0, 1, 2, 3, 4}
    assert list(read.aborted) == [AbortedTransaction(1, 1, 2)]
    assert not (await storage.read(partition, 3, 10_000, stable_only=True)).aborted
    assert not (await storage.read(partition, 0, 10_000)).aborted, "a reader of all records needs none"
    await storage.refresh([partition], with_producers=True)
    await storage.refresh_definitions()
    assert storage.producers(partition)[1].open_since == 5


async def test_a_deleted_topic_is_gone(storage: Storage) -> None:
    doomed, kept = make_topic("doomed", 2), make_topic("kept")
    await storage.create_topics([doomed, kept])
    for partition in (*doomed.partition_ids(), kept.partition(0)):
        await storage.commit([append(partition, b"value")])
    await storage.delete_topics([doomed.id])
    assert list(storage.topics) == [kept.id]
    with pytest.raises(UnknownPartition):
        storage.bounds(doomed.partition(0))
    with pytest.raises(UnknownPartition):
        storage.commit([append(doomed.partition(1), b"late")])
    assert await read_all(storage, kept.partition(0)) == {0: b"value"}
    await storage.delete_topics([doomed.id])


async def test_a_topic_of_the_same_name_starts_from_nothing(storage: Storage) -> None:
    for _ in range(3):
        topic = make_topic("again")
        await storage.create_topics([topic])
        [outcome] = await storage.commit([append(topic.partition(0), b"value")])
        assert outcome.base_offset == 0
        await storage.delete_topics([topic.id])


async def test_a_topic_can_grow_and_change(storage: Storage) -> None:
    topic = make_topic(partitions=1)
    await storage.create_topics([topic])
    await storage.commit([append(topic.partition(0), b"before")])
    grown = make_topic(partitions=3, id=topic.id, segment_bytes="100")
    await storage.update_topic(grown)
    assert storage.topics[topic.id] == grown
    await storage.commit([append(partition, b"after") for partition in grown.partition_ids()])
    assert await read_all(storage, grown.partition(0)) == {0: b"before", 1: b"after"}
    assert await read_all(storage, grown.partition(2)) == {0: b"after"}


async def test_other_effective_settings_are_adopted_and_not_stored(storage: Storage) -> None:
    topic = make_topic(partitions=1)
    await storage.create_topics([topic])
    await storage.commit([append(topic.partition(0), b"before")])
    small = replace(topic, config=TopicConfig(segment_bytes=100))
    storage.adopt_topics([small])
    assert storage.topics[topic.id] == small
    await storage.commit([append(topic.partition(0), b"after")])
    assert await read_all(storage, topic.partition(0)) == {0: b"before", 1: b"after"}


async def test_a_closed_storage_says_so(storage: Storage) -> None:
    topic = make_topic()
    await storage.create_topics([topic])
    partition = topic.partition(0)
    await storage.commit([append(partition, b"value")])
    await storage.close()
    with pytest.raises(StorageClosed):
        storage.commit([append(partition, b"late")])
    with pytest.raises(StorageClosed):
        await storage.barrier()
    with pytest.raises(StorageClosed):
        await storage.read(partition, 0, 1000)
    with pytest.raises(StorageClosed):
        await storage.find_timestamp(partition, 0)
    with pytest.raises(StorageClosed):
        await storage.find_max_timestamp(partition)
    with pytest.raises(StorageClosed):
        await storage.create_topics([make_topic("late")])
    with pytest.raises(StorageClosed):
        await storage.update_topic(topic)
    with pytest.raises(StorageClosed):
        await storage.delete_topics([topic.id])
    with pytest.raises(StorageClosed):
        await storage.enforce_retention()
    await storage.close()
