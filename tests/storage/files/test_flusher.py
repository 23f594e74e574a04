"""Group commit, and what happens when the disk does not keep its word."""

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from posthouse.model.errors import StorageFenced, StorageFull, Unavailable
from posthouse.storage.bounds import Bounds
from posthouse.storage.files.commits.flusher import PARALLEL_BYTES
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.operations import Put, Trim
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.faults import FaultyDisk
from tests.storage.stores import Ledger, file_storage, opened


async def until_sync(disk: FaultyDisk) -> None:
    """Wait until the flusher is inside a sync."""
    assert await asyncio.to_thread(disk.sync_began.wait, 10)


async def test_commits_that_arrive_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as storage:
        topic = make_topic(partitions=20, segment_bytes="100000")
        await storage.create_topics([topic])
        partitions = topic.partition_ids()
        for partition in partitions:
            await storage.commit([append(partition, b"first")])
        disk.sync_gate.clear()
        disk.sync_began.clear()
        first = storage.commit([append(partitions[0], b"held")])
        await until_sync(disk)
        disk.calls.clear()
        later = [storage.commit([append(p, b"later")]) for p in partitions for _ in range(5)]
        await asyncio.sleep(0)
        assert not first.done() and not any(commit.done() for commit in later)
        disk.sync_gate.set()
        await asyncio.gather(first, *later)
        assert disk.calls["sync"] == 2, "the one that was held, and one for the hundred that came meanwhile"
        assert disk.calls["write"] == len(partitions) + 1 + 2, (
            "one write for each segment, one frame, and the head of the journal once for each of the frames"
        )


async def test_nothing_is_visible_before_it_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as storage:
        topic = make_topic()
        await storage.create_topics([topic])
        partition = topic.partition(0)
        await storage.commit([append(partition, b"seen")])
        disk.sync_gate.clear()
        disk.sync_began.clear()
        commit = storage.commit([append(partition, b"unseen"), Trim(partition, 1)])
        await until_sync(disk)
        assert storage.bounds(partition) == Bounds(0, 1, 1)
        assert await read_all(storage, partition) == {0: b"seen"}
        assert await storage.find_timestamp(partition, 0) is not None
        size = storage.size(partition)
        disk.sync_gate.set()
        await commit
        assert storage.bounds(partition) == Bounds(1, 2, 2)
        assert storage.size(partition) > size
        assert await read_all(storage, partition) == {1: b"unseen"}


async def test_topics_that_trust_the_system_cost_no_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as storage:
        topic = make_topic(durability="os")
        await storage.create_topics([topic])
        disk.calls.clear()
        for _ in range(30):
            await storage.commit([append(topic.partition(0), b"value")])
        assert disk.calls["sync"] == disk.calls["sync_directory"] == 0
        await storage.commit([Put(Space.OFFSETS, b"key", b"value")])
        assert disk.calls["sync"] == 1
        assert len(await read_all(storage, topic.partition(0))) == 30


@pytest.mark.parametrize("failing", ["sync", "sync_directory"])
async def test_the_first_failed_sync_fences_the_store(tmp_path: Path, failing: str) -> None:
    disk = FaultyDisk()
    ledger = Ledger()
    storage = file_storage(tmp_path, disk=disk, journal_bytes=2000)
    await storage.open()
    topic = make_topic(partitions=2)
    await storage.create_topics([topic])
    one, two = topic.partition_ids()
    await ledger.produce_many(storage, one, two, count=10)
    disk.fail(failing)
    outstanding = []
    with pytest.raises(StorageFenced):
        for _ in range(100):
            outstanding = [storage.commit([append(one, b"no"), append(two, b"no")]) for _ in range(5)]
            await asyncio.sleep(0)
            outstanding += [storage.commit([append(two, b"no")]) for _ in range(5)]
            for commit in await asyncio.gather(*outstanding[:5]):
                ledger.acked[one][commit[0].base_offset] = b"no"
                ledger.acked[two][commit[1].base_offset] = b"no"
            for [outcome] in await asyncio.gather(*outstanding[5:]):
                ledger.acked[two][outcome.base_offset] = b"no"
    results = await asyncio.gather(*outstanding, return_exceptions=True)
    assert all(isinstance(result, StorageFenced) for result in results[1:])
    with pytest.raises(StorageFenced):
        storage.commit([append(one, b"later")])
    with pytest.raises(StorageFenced):
        await storage.create_topics([make_topic("later")])
    await ledger.check(storage)
    disk.calls.clear()
    await storage.close()
    assert disk.calls["sync"] == 0, "a sync that failed must not be asked for again"
    async with opened(tmp_path) as storage:
        for partition, expected in ledger.acked.items():
            assert expected.items() <= (await read_all(storage, partition)).items()
        await ledger.produce(storage, one, two)


async def test_a_failed_sync_of_a_segment_fences_and_keeps_the_journal(tmp_path: Path) -> None:
    disk = FaultyDisk()
    ledger = Ledger()
    storage = file_storage(tmp_path, disk=disk)
    await storage.open()
    topic = make_topic()
    await storage.create_topics([topic])
    await ledger.produce_many(storage, topic.partition(0), count=10)
    disk.fail("sync", "*.log")
    await storage.checkpoint()
    with pytest.raises(StorageFenced):
        await ledger.produce(storage, topic.partition(0))
    await ledger.check(storage)
    await storage.close()
    for path in tmp_path.rglob("*.log"):  # what the device lost with its failure
        path.write_bytes(b"")
    async with opened(tmp_path) as storage:
        await ledger.check(storage)


async def test_a_write_error_fails_its_group_and_nothing_else(tmp_path: Path) -> None:
    disk = FaultyDisk()
    ledger = Ledger()
    async with opened(tmp_path, disk=disk) as storage:
        topic = make_topic(partitions=2)
        await storage.create_topics([topic])
        one, two = topic.partition_ids()
        await ledger.produce_many(storage, one, two, count=10)
        for target in ("*.log", "*.wal"):
            disk.fail("write", target)
            doomed = storage.commit([append(one, b"no"), append(two, b"no")])
            await asyncio.sleep(0)
            also_doomed = storage.commit([append(two, b"placed behind it")])
            results = await asyncio.gather(doomed, also_doomed, return_exceptions=True)
            assert isinstance(results[0], Unavailable)
            if isinstance(results[1], list):
                [outcome] = results[1]
                ledger.acked[two][outcome.base_offset] = b"placed behind it"
            await ledger.check(storage)
            await ledger.produce(storage, one, two)
            await ledger.check(storage)
    async with opened(tmp_path) as storage:
        await ledger.check(storage)


async def test_a_mistake_on_the_flusher_thread_is_answered(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(storage.commit([Put(Space.OFFSETS, b"k" * 70_000, b"value")]), 10)


async def test_a_segment_that_was_taken_away_does_not_stop_writing(tmp_path: Path) -> None:
    async with opened(tmp_path, open_files=1) as storage:
        topic = make_topic(partitions=2, segment_bytes="10000")
        await storage.create_topics([topic])
        one, two = topic.partition_ids()
        await storage.commit([append(one, b"lost")])
        await storage.commit([append(two, b"kept")])
        [segment] = (tmp_path / "topics" / topic.id.hex()).glob("0-*.log")
        segment.unlink()
        await storage.commit([append(one, b"next"), append(two, b"next")])
        assert await read_all(storage, two) == {0: b"kept", 1: b"next"}
        assert await read_all(storage, one) == {1: b"next"}


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
async def test_a_segment_that_cannot_be_read_is_a_typed_error(tmp_path: Path, number: int) -> None:
    ledger = Ledger()
    async with opened(tmp_path) as storage:
        topic = make_topic()
        await storage.create_topics([topic])
        await ledger.produce_many(storage, topic.partition(0), count=10)
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as storage:
        disk.fail("open" if number == errno.EMFILE else "read", "*.log", number, for_ever=True)
        with pytest.raises(Unavailable):
            await read_all(storage, topic.partition(0))
        disk.heal()
        await ledger.check(storage)


async def test_the_journal_is_given_back_after_checkpoints(tmp_path: Path) -> None:
    ledger = Ledger()
    async with opened(tmp_path, journal_bytes=2000) as storage:
        topic = make_topic()
        await storage.create_topics([topic])
        for _ in range(10):
            await ledger.produce_at_once(storage, topic.partition(0), count=30)
        await storage.checkpoint()
        assert len(list((tmp_path / "journal").iterdir())) <= 3
        await ledger.check(storage)


async def test_deleting_a_topic_does_not_stop_checkpoints(tmp_path: Path) -> None:
    """Neither its fresh directories nor a snapshot that was taken before may stand in the way."""
    async with opened(tmp_path) as storage:
        doomed, kept = make_topic("doomed"), make_topic("kept")
        await storage.create_topics([doomed, kept])
        for topic in (doomed, kept):
            await storage.commit([append(topic.partition(0), b"value")])
        await asyncio.gather(storage.delete_topics([doomed.id]), storage.checkpoint())
        await storage.commit([append(kept.partition(0), b"value")])
        await storage.checkpoint()
        assert is_checkpointed(storage)
        another = make_topic("another")
        await storage.create_topics([another])
        await storage.commit([append(another.partition(0), b"value")])
        await storage.commit([append(kept.partition(0), b"value")])
        await storage.delete_topics([another.id])
        await storage.checkpoint()
        assert is_checkpointed(storage)
        await storage.commit([append(kept.partition(0), b"value")])


async def test_trimming_during_a_checkpoint_leaves_no_files(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        topic = make_topic(segment_bytes="100")
        await storage.create_topics([topic])
        partition = topic.partition(0)
        for _ in range(20):
            await storage.commit([append(partition, b"value")])
        await asyncio.gather(storage.commit([Trim(partition, 20)]), storage.checkpoint())
        await storage.checkpoint()
    assert not list((tmp_path / "topics").rglob("*.*"))


def is_checkpointed(storage: FileStorage) -> bool:
    return not storage._checkpoints.changed


async def test_a_large_group_that_finds_no_space_for_its_segment_is_taken_back(tmp_path: Path) -> None:
    """Large groups write segments and journal at once: the frame must not count when the segment fails."""
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk, journal_bytes=8 * 1024 * 1024) as storage:
        topic = make_topic(partitions=1, max_message_bytes="5000000")
        await storage.create_topics([topic])
        [partition] = topic.partition_ids()
        await storage.commit([append(partition, b"first")])
        disk.fail("write", "*.log", errno.ENOSPC)
        with pytest.raises(StorageFull):
            await storage.commit([append(partition, b"x" * (2 * PARALLEL_BYTES))])
        disk.heal()
        await storage.commit([append(partition, b"second")])
        assert await read_all(storage, partition) == {0: b"first", 1: b"second"}
        copy = shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    async with opened(copy) as storage:
        assert await read_all(storage, partition) == {0: b"first", 1: b"second"}
