"""File storages to break, and the memory of what they acknowledged."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId
from posthouse.storage.contract import Storage
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.disk import Disk
from tests.storage.batches import append, read_all

JOURNAL_BYTES = 64 * 1024


def file_storage(
    directory: Path,
    *,
    disk: Disk | None = None,
    clock: ManualClock | None = None,
    journal_bytes: int = JOURNAL_BYTES,
    open_files: int = 8,
) -> FileStorage:
    return FileStorage(
        directory,
        clock=clock or ManualClock(),
        disk=disk,
        journal_bytes=journal_bytes,
        open_files=open_files,
        checkpoint_seconds=3600,
    )


@asynccontextmanager
async def opened(
    directory: Path,
    *,
    disk: Disk | None = None,
    journal_bytes: int = JOURNAL_BYTES,
    open_files: int = 8,
) -> AsyncIterator[FileStorage]:
    storage = file_storage(directory, disk=disk, journal_bytes=journal_bytes, open_files=open_files)
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


async def crash_copy(storage: FileStorage, target: Path) -> Path:
    """What a broker that was killed now would leave behind. Both of its threads stand still meanwhile."""

    def stop_both() -> None:
        copied = threading.Event()

        def copy() -> None:
            try:
                shutil.copytree(storage._directory, target)
            finally:
                copied.set()

        storage._flusher.run(copy)
        copied.wait()

    await storage._background.do(stop_both)
    return target


class Ledger:
    """Every record that was acknowledged."""

    def __init__(self) -> None:
        self.acked: dict[PartitionId, dict[int, bytes]] = {}
        self._counter = 0

    async def produce(self, storage: Storage, *partitions: PartitionId, size: int = 8) -> None:
        """One commit with a batch for each of the partitions; noted when acknowledged."""
        values = []
        for _ in partitions:
            self._counter += 1
            values.append(b"%08d" % self._counter + b"." * (size - 8))
        pairs = list(zip(partitions, values, strict=True))
        outcomes = await storage.commit([append(partition, value) for partition, value in pairs])
        for (partition, value), outcome in zip(pairs, outcomes, strict=True):
            known = self.acked.setdefault(partition, {})
            assert outcome.base_offset not in known, "an offset is given once"
            known[outcome.base_offset] = value

    async def produce_many(self, storage: Storage, *partitions: PartitionId, count: int) -> None:
        for number in range(count):
            await self.produce(storage, partitions[number % len(partitions)])

    async def produce_at_once(self, storage: Storage, *partitions: PartitionId, count: int) -> None:
        each = [self.produce(storage, partitions[number % len(partitions)]) for number in range(count)]
        await asyncio.gather(*each)

    async def check(self, storage: Storage) -> None:
        """Everything acknowledged is there, and nothing else."""
        for partition, expected in self.acked.items():
            assert await read_all(storage, partition) == expected

    async def lost(self, storage: Storage) -> dict[PartitionId, set[int]]:
        """The offsets that are not served. What is served must be what was acknowledged there."""
        missing: dict[PartitionId, set[int]] = {}
        for partition, expected in self.acked.items():
            found = await read_all(storage, partition)
            for offset, value in found.items():
                assert expected.get(offset) == value, f"{partition} has other data at {offset}"
            if gone := expected.keys() - found.keys():
                missing[partition] = gone
        return missing
