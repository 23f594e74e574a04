"""Starting again: what is read, what is written, what is finished."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from posthouse.model.errors import StorageClosed, Unavailable
from posthouse.model.topics import Topic
from posthouse.records.batch import HEADER_SIZE
from posthouse.storage.bounds import Bounds
from posthouse.storage.files.catalog.rows import TopicRow
from posthouse.storage.files.journal.journal import OPERATION, RANGE, Journal
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.files.verify import Verification
from posthouse.storage.operations import Put, Trim
from posthouse.storage.spaces import Space
from tests.alarms import alarms
from tests.storage.batches import append, make_topic, read_all
from tests.storage.faults import FaultyDisk
from tests.storage.stores import JOURNAL_BYTES, Ledger, crash_copy, file_storage, opened


async def build(directory: Path, ledger: Ledger) -> Topic:
    topic = make_topic(partitions=4)
    async with opened(directory) as storage:
        await storage.create_topics([topic])
        await ledger.produce_many(storage, *topic.partition_ids(), count=100)
    return topic


async def test_a_clean_start_reads_no_records_and_no_journal(tmp_path: Path) -> None:
    ledger = Ledger()
    await build(tmp_path, ledger)
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as storage:
        assert all(size <= HEADER_SIZE for size in disk.bytes_read.values())  # which segment each file is
        await ledger.check(storage)


async def test_a_start_after_a_crash_reads_the_journal_and_touches_what_it_names(tmp_path: Path) -> None:
    ledger = Ledger()
    topic = await build(tmp_path / "data", ledger)
    named = topic.partition(1)
    async with opened(tmp_path / "data") as storage:
        await ledger.produce_many(storage, named, count=5)
        copy = await crash_copy(storage, tmp_path / "copy")
    disk = FaultyDisk()
    async with opened(copy, disk=disk) as storage:
        for path, size in disk.bytes_read.items():
            is_named = f"/{named.topic.hex()}/{named.index}-" in path  # opened once more, to be written to
            assert path.endswith((".wal", ".head")) or size <= HEADER_SIZE * (3 if is_named else 1), path
        touched = {path for path in disk.open_files if path.endswith(".log")}
        assert all(f"/{named.topic.hex()}/{named.index}-" in path for path in touched)
        await ledger.check(storage)


async def test_a_crash_during_recovery_is_harmless(tmp_path: Path) -> None:
    """Recovery is stopped at its first, second, … call of every kind; then it is run again."""
    ledger = Ledger()
    topic = await build(tmp_path / "data", ledger)
    async with opened(tmp_path / "data", journal_bytes=2000) as storage:
        await ledger.produce_many(storage, *topic.partition_ids(), count=30)
        await storage.commit([Trim(topic.partition(0), 20)])
        copy = await crash_copy(storage, tmp_path / "copy")
    ledger.acked[topic.partition(0)] = {
        offset: value for offset, value in ledger.acked[topic.partition(0)].items() if offset >= 20
    }
    stops = 0
    for call in ("write", "create", "truncate", "allocate", "sync", "sync_directory", "rename"):
        for after in range(0, 12, 3):
            disk = FaultyDisk()
            disk.fail(call, after=after, for_ever=True)
            storage = file_storage(copy, disk=disk, journal_bytes=2000)
            try:
                await storage.open()
            except Unavailable:
                stops += 1
            else:
                await storage.close()
    assert stops
    async with opened(copy) as storage:
        await ledger.check(storage)


async def test_a_failed_start_lets_go_of_the_directory(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("rename", number=errno.EACCES)
    with pytest.raises(Unavailable, match="cannot be opened"):
        await file_storage(tmp_path, disk=disk).open()
    assert not disk.open_files
    async with opened(tmp_path):
        pass


async def test_a_second_broker_on_the_same_directory_is_told_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        with pytest.raises(Unavailable, match="in use by another broker"):
            await file_storage(tmp_path).open()
        await storage.create_topics([make_topic()])
    async with opened(tmp_path):
        pass


async def test_a_half_deleted_topic_is_finished(tmp_path: Path) -> None:
    ledger = Ledger()
    topic = await build(tmp_path, ledger)
    storage = file_storage(tmp_path)
    await storage.open()
    storage._catalog.put_topics(
        [TopicRow(id=topic.id, name=topic.name, partitions=4, overrides={}, deleted=True)]
    )
    await storage.close()
    assert (tmp_path / "topics" / topic.id.hex()).exists()
    async with opened(tmp_path) as storage:
        assert not storage.topics
        assert not (tmp_path / "topics" / topic.id.hex()).exists()
    async with opened(tmp_path) as storage:
        assert not storage.topics


async def test_a_trim_of_its_own_group_is_replayed_as_it_was(tmp_path: Path) -> None:
    topic = make_topic(segment_bytes="100")
    partition = topic.partition(0)
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([topic])
        await storage.commit([append(partition, b"0"), append(partition, b"1"), Trim(partition, 2)])
        await storage.commit([Trim(partition, 10**12), append(partition, b"2")])
        assert storage.bounds(partition) == Bounds(2, 3, 3)
        copy = await crash_copy(storage, tmp_path / "copy")
    async with opened(copy) as storage:
        assert storage.bounds(partition) == Bounds(2, 3, 3)
        assert await read_all(storage, partition) == {2: b"2"}


async def test_an_emptied_partition_without_syncs_keeps_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its segments are gone when the journal is replayed: no loss, no alarm, no offset given twice."""
    topic = make_topic(segment_bytes="100", durability="os")
    partition = topic.partition(0)
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([topic])
        for _ in range(10):
            await storage.commit([append(partition, b"value")])
        await storage.commit([Trim(partition, 10)])
        copy = await crash_copy(storage, tmp_path / "copy")
    async with opened(copy) as storage:
        assert storage.bounds(partition) == Bounds(10, 10, 10)
    assert not alarms(caplog)


async def test_a_lost_file_of_an_older_version_is_created_again_with_a_header(tmp_path: Path) -> None:
    """Older versions wrote the first batch at byte 0. The power cut left the frame, but not the file."""
    topic = make_topic(durability="os")
    partition = topic.partition(0)
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([topic])
        copy = await crash_copy(storage, tmp_path / "copy")
    journal = Journal(OsDisk(), str(copy / "journal"), JOURNAL_BYTES, os.urandom)
    journal.start(1)
    operation = OPERATION.pack(RANGE, topic.id, 0, 0, 0, 0, 1, 80)
    journal.write([operation], len(operation), sync=True)
    journal.acknowledge()
    journal.close(everything_checkpointed=False)
    values = {offset: b"%d" % offset for offset in range(3)}
    async with opened(copy) as storage:
        for value in values.values():
            await storage.commit([append(partition, value)])
        assert await read_all(storage, partition) == values
        again = await crash_copy(storage, tmp_path / "again")
    for data in (copy, again):
        async with opened(data) as storage:
            assert await read_all(storage, partition) == values
        assert not list(Verification(data).findings())


async def test_part_of_a_commit_does_not_appear_without_the_rest(tmp_path: Path) -> None:
    """The crash came between the segments and the journal frame."""
    disk = FaultyDisk()
    ledger = Ledger()
    topic = make_topic(partitions=3)
    async with opened(tmp_path / "data", disk=disk) as storage:
        await storage.create_topics([topic])
        await ledger.produce(storage, *topic.partition_ids())
        disk.fail("write", "*/2-*.log")
        disk.fail("truncate", "*.log", for_ever=True)
        with pytest.raises(Unavailable):
            await storage.commit(
                [append(partition, b"half a commit") for partition in topic.partition_ids()]
                + [Put(Space.OFFSETS, b"key", b"value")]
            )
        copy = await crash_copy(storage, tmp_path / "copy")
        disk.heal()
    async with opened(copy) as storage:
        await ledger.check(storage)
        await ledger.produce(storage, *topic.partition_ids())
        await ledger.check(storage)


async def test_what_a_crash_left_in_a_new_segment_is_not_found_later(tmp_path: Path) -> None:
    """Unacknowledged batches lie in files that the log reaches again: they must not become part of it."""
    ledger = Ledger()
    topic = make_topic(segment_bytes="100")
    partition = topic.partition(0)
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([topic])
        await ledger.produce(storage, partition, size=60)
        copy = await crash_copy(storage, tmp_path / "copy")
        await storage.commit([append(partition, b"stale " * 10), append(partition, b"stale " * 10)])
    for path in (tmp_path / "data" / "topics").rglob("*.log"):
        (copy / path.relative_to(tmp_path / "data")).write_bytes(path.read_bytes() * 2)
    async with opened(copy) as storage:
        await ledger.produce(storage, partition, size=30)
        again = await crash_copy(storage, tmp_path / "again")
    async with opened(again) as storage:
        await ledger.check(storage)


async def test_topics_and_their_settings_come_back(tmp_path: Path) -> None:
    topic = make_topic("configured", 3, retention_ms="12345")
    async with opened(tmp_path) as storage:
        cluster_id = storage.cluster_id
        await storage.create_topics([topic, make_topic("other")])
        await storage.update_topic(make_topic("configured", 5, id=topic.id, retention_ms="54321"))
    async with opened(tmp_path) as storage:
        assert storage.cluster_id == cluster_id
        found = storage.topics[topic.id]
        assert (found.name, found.partitions, found.config.retention_ms) == ("configured", 5, 54321)
        assert storage.bounds(topic.partition(4)) == Bounds(0, 0, 0)


async def test_a_first_start_that_was_interrupted_is_repeated(tmp_path: Path) -> None:
    for names in (["catalog.sqlite"], ["catalog.sqlite", "catalog.backup.sqlite"]):
        place = tmp_path / str(len(names))
        place.mkdir()
        for name in names:
            (place / name).write_bytes(b"")
        async with opened(place) as storage:
            assert storage.cluster_id


async def test_state_comes_back_after_any_end(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as storage:
        await storage.commit([Put(Space.OFFSETS, b"a", b"1"), Put(Space.GROUPS, b"a", b"group")])
        await storage.checkpoint()
        await storage.commit([Put(Space.OFFSETS, b"a", b"2"), Put(Space.OFFSETS, b"b", b"")])
        await storage.commit([Put(Space.GROUPS, b"a", None)])
        copy = await crash_copy(storage, tmp_path / "copy")
    for place in (tmp_path / "data", copy):
        for _ in range(2):
            async with opened(place) as storage:
                assert storage.take_state(Space.OFFSETS) == {b"a": b"2", b"b": b""}
                assert storage.take_state(Space.GROUPS) == {}
                assert storage.take_state(Space.OFFSETS) == {}


async def test_an_abandoned_creation_is_known_here_and_in_the_catalog(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        creating = asyncio.create_task(storage.create_topics([make_topic()]))
        for _ in range(3):
            await asyncio.sleep(0)
        creating.cancel()
        await asyncio.wait([creating])
        known = set(storage.topics)
    async with opened(tmp_path) as storage:
        assert set(storage.topics) == known
        assert known


async def test_reads_under_way_when_the_storage_closes_leave_nothing_open(tmp_path: Path) -> None:
    ledger = Ledger()
    topic = await build(tmp_path, ledger)
    disk = FaultyDisk()
    storage = file_storage(tmp_path, disk=disk)
    await storage.open()
    reads = [asyncio.create_task(read_all(storage, partition)) for partition in topic.partition_ids()]
    await asyncio.sleep(0)
    await storage.close()
    for result in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(result, dict | StorageClosed)
    assert not disk.open_files


class DiskThatLosesIndexes(FaultyDisk):
    """An index is gone just when it is to be opened, as when its segment is let go meanwhile."""

    def open(self, path: str, *, create: bool = False) -> int:
        if path.endswith(".index") and not create:
            self.remove(path)
        return super().open(path, create=create)


async def test_an_index_that_is_gone_when_it_is_opened(tmp_path: Path) -> None:
    ledger = Ledger()
    await build(tmp_path, ledger)
    assert list(tmp_path.glob("topics/*/*.index"))
    async with opened(tmp_path, disk=DiskThatLosesIndexes()) as storage:
        await ledger.check(storage)
