"""How much waits for the disk: counted from the commit until it is durable, or given up."""

import errno
from pathlib import Path

import pytest

from posthouse.model.errors import StorageFull
from tests.storage.batches import append, make_topic
from tests.storage.faults import FaultyDisk
from tests.storage.stores import opened


async def test_what_is_committed_waits_until_it_is_durable(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as storage:
        topic = make_topic("topic")
        await storage.create_topics([topic])
        assert storage.unwritten_bytes == 0
        appends = [append(topic.partition(0), b"value" * number) for number in range(1, 4)]
        commits = [storage.commit([each]) for each in appends]
        assert storage.unwritten_bytes == sum(each.header.length for each in appends)
        for commit in commits:
            await commit
        assert storage.unwritten_bytes == 0


async def test_storage_is_behind_while_much_is_unwritten(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as storage:
        topic = make_topic("topic")
        await storage.create_topics([topic])
        commits = [storage.commit([append(topic.partition(0), bytes(2**20))]) for _ in range(3)]
        assert not storage.is_behind
        commits += [storage.commit([append(topic.partition(0), bytes(2**20))]) for _ in range(2)]
        assert storage.is_behind
        for commit in commits:
            await commit
        assert not storage.is_behind


async def test_what_could_not_be_written_waits_no_more(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path / "data", disk=disk) as storage:
        topic = make_topic("topic")
        await storage.create_topics([topic])
        await storage.commit([append(topic.partition(0), b"value")])
        disk.fail("write", "*.log", errno.ENOSPC)
        failing = storage.commit([append(topic.partition(0), b"lost")])
        with pytest.raises(StorageFull):
            await failing
        assert storage.unwritten_bytes == 0
        await storage.commit([append(topic.partition(0), b"kept")])
        assert storage.unwritten_bytes == 0
