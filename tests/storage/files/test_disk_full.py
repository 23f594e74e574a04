"""A full disk: a typed error, reads and deletes go on, and writing resumes by itself."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from posthouse.model.errors import StorageFull
from posthouse.model.ids import PartitionId
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.operations import Trim
from tests.storage.batches import append, make_topic
from tests.storage.faults import FaultyDisk
from tests.storage.stores import Ledger, crash_copy, file_storage, opened

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("write", "*.log"),
        ("create", "*.log"),
        ("write", "*.wal"),
        ("allocate", "*/spare"),
        ("create", "*/spare"),
        ("rename", "*/spare"),
    ],
)
async def test_a_full_disk_is_a_typed_error_until_there_is_space(
    tmp_path: Path, call: str, target: str
) -> None:
    disk = FaultyDisk()
    ledger = Ledger()
    directory = tmp_path / "data"
    async with opened(directory, disk=disk, journal_bytes=1000) as storage:
        kept, doomed = make_topic("kept", 2, segment_bytes="150"), make_topic("doomed")
        await storage.create_topics([kept, doomed])
        one, two = kept.partition_ids()
        await ledger.produce_many(storage, one, two, count=6)
        await storage.commit([append(doomed.partition(0), b"value")])
        disk.fail(call, target, errno.ENOSPC, for_ever=True)
        with pytest.raises(StorageFull):
            for _ in range(40):
                await ledger.produce(storage, one, two)
        # A checkpoint may end in between and hand a used journal on: then none has to be created.
        may_go_on = (call, target) == ("create", "*/spare")
        for _ in range(3):
            with suppress(StorageFull) if may_go_on else pytest.raises(StorageFull):
                await ledger.produce(storage, one, two, size=2000)
            await ledger.check(storage)
        await storage.delete_topics([doomed.id])
        assert not (directory / "topics" / doomed.id.hex()).exists()
        disk.heal()
        for _ in range(20):
            await ledger.produce(storage, one, two)
        await ledger.check(storage)
        assert sorted(ledger.acked[one]) == list(range(len(ledger.acked[one]))), "no offset is left out"
        copy = await crash_copy(storage, tmp_path / "copy")
    for place in (directory, copy):
        async with opened(place) as storage:
            await ledger.check(storage)


async def test_commits_behind_a_failed_one_fail_with_it_and_offsets_go_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    ledger = Ledger()
    async with opened(tmp_path, disk=disk) as storage:
        topic = make_topic(segment_bytes="150")
        await storage.create_topics([topic])
        partition = topic.partition(0)
        await ledger.produce(storage, partition)
        disk.fail("write", "*.log", errno.ENOSPC)
        for _ in range(5):
            with pytest.raises(StorageFull):
                await ledger.produce_at_once(storage, partition, count=20)
            disk.fail("write", "*.log", errno.ENOSPC)
        disk.heal()
        await ledger.produce_at_once(storage, partition, count=20)
        assert sorted(ledger.acked[partition]) == list(range(21))
        await ledger.check(storage)


async def test_a_delete_that_found_no_space_leaves_the_topic_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk()
    ledger = Ledger()
    async with opened(tmp_path, disk=disk) as storage:
        topic = make_topic()
        await storage.create_topics([topic])
        await ledger.produce_many(storage, topic.partition(0), count=5)

        def full(*_: object) -> None:
            raise StorageFull("no space left")

        disk.fail("write", "*.log", errno.ENOSPC)
        unlucky = storage.commit([append(topic.partition(0), b"no")])
        with monkeypatch.context() as patch:
            patch.setattr(storage._catalog, "put_topics", full)
            with pytest.raises(StorageFull):
                await storage.delete_topics([topic.id])
        with pytest.raises(StorageFull):
            await unlucky
        await ledger.produce_many(storage, topic.partition(0), count=5)
        await ledger.check(storage)


async def test_a_broker_starts_on_a_full_disk(tmp_path: Path) -> None:
    """After a crash the journal needs a new file. Without space for it, reads and deletes still work."""
    ledger = Ledger()
    directory = tmp_path / "data"
    async with opened(directory) as storage:
        topic = make_topic()
        await storage.create_topics([topic])
        await ledger.produce_many(storage, topic.partition(0), count=20)
        copy = await crash_copy(storage, tmp_path / "copy")
    disk = FaultyDisk()
    disk.fail("allocate", number=errno.ENOSPC, for_ever=True)
    async with opened(copy, disk=disk) as storage:
        await ledger.check(storage)
        with pytest.raises(StorageFull):
            await ledger.produce(storage, topic.partition(0))
        disk.heal()
        await ledger.produce(storage, topic.partition(0))
        await ledger.check(storage)


async def test_checkpoints_catch_up_when_there_is_space_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    ledger = Ledger()
    directory = tmp_path / "data"
    async with opened(directory, disk=disk) as storage:
        topic = make_topic()
        await storage.create_topics([topic])
        await ledger.produce_many(storage, topic.partition(0), count=10)
        await storage.checkpoint()
        await ledger.produce_many(storage, topic.partition(0), count=10)
        disk.fail("write", "*.index", errno.ENOSPC, for_ever=True)
        await storage.checkpoint()
        await ledger.produce_many(storage, topic.partition(0), count=10)
        await storage.checkpoint()
        disk.heal()
        await storage.checkpoint()
        assert not storage._checkpoints.changed
        await ledger.check(storage)
    async with opened(directory) as storage:
        await ledger.check(storage)


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def fill(storage: FileStorage, ledger: Ledger, partition: PartitionId) -> None:
    with pytest.raises(StorageFull):
        for _ in range(1000):
            await ledger.produce(storage, partition, size=50_000)


async def test_a_real_file_system_that_is_full(small_file_system: Path) -> None:
    ledger = Ledger()
    directory = small_file_system / "data"
    storage = file_storage(directory, journal_bytes=512 * 1024)
    await storage.open()
    kept = make_topic("kept", segment_bytes="200000")
    await storage.create_topics([kept])
    ballast = make_topic("ballast", segment_bytes="100000")
    await storage.create_topics([ballast])
    for _ in range(20):
        await storage.commit([append(ballast.partition(0), b"x" * 50_000)])
    partition = kept.partition(0)
    for _ in range(3):
        await fill(storage, ledger, partition)
        await ledger.check(storage)
    await storage.delete_topics([ballast.id])
    await ledger.produce(storage, partition)
    await ledger.check(storage)
    await fill(storage, ledger, partition)
    half = len(ledger.acked[partition]) // 2
    await storage.commit([Trim(partition, half)])
    ledger.acked[partition] = {o: v for o, v in ledger.acked[partition].items() if o >= half}
    await storage.checkpoint()
    await ledger.produce(storage, partition, size=50_000)
    await ledger.check(storage)
    await fill(storage, ledger, partition)
    await storage.close()
    storage = file_storage(directory, journal_bytes=512 * 1024)
    await storage.open()
    await ledger.check(storage)
    await storage.delete_topics([kept.id])
    await storage.close()
