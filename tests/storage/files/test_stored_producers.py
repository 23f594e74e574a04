"""What partitions remember of their producers, in the catalog: a checkpoint writes only what changed."""

import sqlite3
from contextlib import closing
from pathlib import Path

from posthouse.model.ids import PartitionId
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.files.catalog.catalog import BACKUP
from posthouse.storage.files.system.data_directory import CATALOG
from posthouse.storage.operations import Append
from posthouse.storage.spaces import Space
from tests.storage.batches import make_topic
from tests.storage.faults import FaultyDisk
from tests.storage.stores import crash_copy, opened

TOPIC = make_topic(segment_bytes="100000")
[PARTITION] = TOPIC.partition_ids()


def batch(partition: PartitionId, producer: int, sequence: int) -> Append:
    builder = BatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=sequence)
    builder.add(None, b"x", timestamp=1000)
    data = builder.build()
    return Append(partition, memoryview(data), parse_header(data))


def stored(directory: Path, name: str = CATALOG) -> dict[bytes, bytes]:
    with closing(sqlite3.connect(directory / name)) as connection:
        found = connection.execute("SELECT key, value FROM state WHERE space = ?", (int(Space.PRODUCERS),))
        return dict(found.fetchall())


async def test_a_checkpoint_writes_the_producers_that_changed(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([TOPIC])
        await storage.commit([batch(PARTITION, producer, 0) for producer in range(300)])
        await storage.checkpoint()
        before = stored(tmp_path / "data")
        await storage.commit([batch(PARTITION, 7, 1)])
        table = storage._logs[PARTITION].producers
        changes = table.take_changes()
        assert len(changes.buckets) == 1, "the others are not even encoded"
        table.put_back(changes)
        await storage.checkpoint()
        after = stored(tmp_path / "data")
        assert sum(before[key] != after[key] for key in before) == 1
        assert stored(tmp_path / "data", BACKUP) == after
        await storage.commit([batch(PARTITION, 299, 1)])
        expected = storage.producers(PARTITION)
        copy = await crash_copy(storage, tmp_path / "copy")
    for directory in (tmp_path / "data", copy):
        async with opened(directory) as storage:
            assert storage.producers(PARTITION) == expected


async def test_a_checkpoint_that_failed_is_made_up_for(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as storage:
        await storage.create_topics([TOPIC])
        await storage.commit([batch(PARTITION, 1, 0)])
        disk.fail("open", "*.log")
        storage._files.drop(storage._logs[PARTITION].segments[0].path)
        await storage.checkpoint()
        assert not stored(tmp_path), "the checkpoint was to fail"
        await storage.commit([batch(PARTITION, 100, 0)])
        await storage.checkpoint()
        assert len(stored(tmp_path)) == 2


async def test_what_belongs_to_a_deleted_topic_goes(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([TOPIC])
        await storage.commit([batch(PARTITION, producer, 0) for producer in range(300)])
        await storage.checkpoint()
        await storage.delete_topics([TOPIC.id])
        copy = await crash_copy(storage, tmp_path / "copy")
    assert not stored(tmp_path / "data")
    async with opened(copy):
        pass
    assert not stored(copy), "killed before the checkpoint that takes them out"
