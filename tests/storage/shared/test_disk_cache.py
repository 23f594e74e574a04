"""Blocks on a local disk: bounded, verified, and never needed."""

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.reads import disk_cache
from posthouse.storage.shared.reads.block_cache import BlockCache
from posthouse.storage.shared.reads.block_files import HEADER_BYTES, BlockFiles
from posthouse.storage.shared.reads.disk_cache import DiskCache
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore

BLOCK = 1000
ROOM = 5 * (BLOCK + HEADER_BYTES)


def block(number: int) -> bytes:
    return bytes([number]) * BLOCK


@pytest.fixture
def place(memory_path: Path) -> Path:
    return memory_path / "cache"


class FailingFiles(BlockFiles):
    """All calls fail while there is an `error`, writes with `write_error`, and wait while `gate` is clear."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.error: OSError | None = None
        self.write_error: OSError | None = None
        self.gate = threading.Event()
        self.gate.set()

    def _enter(self) -> None:
        self.gate.wait()
        if self.error is not None:
            raise self.error

    def prepare(self) -> dict[str, int]:
        self._enter()
        return super().prepare()

    def read(self, key: str, start: int, size: int) -> bytes | None:
        self._enter()
        return super().read(key, start, size)

    def write(self, key: str, start: int, data: bytes | memoryview) -> None:
        self._enter()
        if self.write_error is not None:
            raise self.write_error
        super().write(key, start, data)


@pytest.fixture
def files(place: Path) -> FailingFiles:
    return FailingFiles(place)


@pytest.fixture
async def disk(files: FailingFiles) -> AsyncIterator[DiskCache]:
    made = DiskCache(files, max_bytes=ROOM, patience_seconds=5, rest_seconds=0.05)
    await made.open()
    yield made
    await made.close()


async def fill(disk: DiskCache, *numbers: int) -> None:
    for number in numbers:
        disk.keep("a", number * BLOCK, block(number))
        await disk.settled()


async def get(disk: DiskCache, number: int) -> bytes | None:
    found = await disk.get("a", number * BLOCK, BLOCK)
    assert found is None or found == block(number)
    return found


def total(place: Path) -> int:
    return sum(each.stat().st_size for each in place.iterdir())


async def test_a_block_is_kept(disk: DiskCache, place: Path) -> None:
    assert await get(disk, 1) is None
    await fill(disk, 1)
    assert await get(disk, 1) == block(1)
    assert await get(disk, 2) is None
    assert await disk.get("b", BLOCK, BLOCK) is None
    assert await disk.get("a", BLOCK, BLOCK - 1) is None
    assert total(place) == disk.bytes_used == BLOCK + HEADER_BYTES
    assert place.stat().st_mode & 0o077 == 0
    assert all(each.stat().st_mode & 0o077 == 0 for each in place.iterdir())


async def test_the_directory_is_bounded(disk: DiskCache, place: Path) -> None:
    await fill(disk, 0, 1, 2, 3, 4)
    assert await get(disk, 0)  # now the most recently used one
    await fill(disk, 5, 6)
    assert total(place) == disk.bytes_used == ROOM
    assert [number for number in range(7) if await get(disk, number)] == [0, 3, 4, 5, 6]
    assert disk.metrics.evictions == 2


async def test_a_block_that_is_larger_than_the_bound(disk: DiskCache) -> None:
    disk.keep("a", 0, bytes(ROOM))
    await disk.settled()
    assert disk.bytes_used == 0


async def test_blocks_that_come_too_fast_are_not_kept(disk: DiskCache, place: Path) -> None:
    for number in range(20):
        disk.keep("a", number * BLOCK, block(number))
    await disk.settled()
    assert len(list(place.iterdir())) == 4


async def test_blocks_survive_a_restart(disk: DiskCache, place: Path) -> None:
    await fill(disk, 0, 1, 2)
    await disk.close()
    (place / f"{'0' * 32}-0-0.block.part").write_bytes(b"unfinished")
    (place / "of another").write_bytes(b"kept")
    again = DiskCache(BlockFiles(place), max_bytes=2 * (BLOCK + HEADER_BYTES))
    await again.open()
    # With less room than before, the oldest is gone.
    assert [await get(again, number) for number in range(3)] == [None, block(1), block(2)]
    assert (place / "of another").exists()
    assert len(list(place.iterdir())) == 3
    again.forget("a")
    await again.settled()
    assert again.bytes_used == 0
    assert [each.name for each in place.iterdir()] == ["of another"]
    await again.close()


@pytest.mark.parametrize("how", ["bit", "short", "long", "empty", "swapped", "header"])
async def test_a_damaged_file_is_a_miss(disk: DiskCache, place: Path, how: str) -> None:
    await fill(disk, 1, 2)
    first, second = sorted(place.iterdir(), key=lambda each: each.stat().st_mtime_ns)
    data = bytearray(first.read_bytes())
    if how == "bit":
        data[500] ^= 1
    elif how == "short":
        del data[-1]
    elif how == "long":
        data += b"x"
    elif how == "empty":
        data.clear()
    elif how == "swapped":
        data[:] = second.read_bytes()
    else:
        data[0] ^= 1
    first.write_bytes(data)
    assert await get(disk, 1) is None
    assert disk.metrics.damaged == 1
    await disk.settled()
    assert not first.exists()
    assert await get(disk, 2) == block(2)
    await fill(disk, 1)
    assert await get(disk, 1) == block(1)
    assert total(place) == disk.bytes_used


async def test_a_removed_file_is_a_miss(disk: DiskCache, place: Path) -> None:
    await fill(disk, 1)
    for each in place.iterdir():
        each.unlink()
    assert await get(disk, 1) is None
    assert disk.bytes_used == 0


async def recovered(disk: DiskCache) -> None:
    """The cache is used again after its rest."""
    async with asyncio.timeout(10):
        while await get(disk, 3) is None:
            await fill(disk, 3)
            await asyncio.sleep(0.005)


async def test_a_removed_directory_is_made_again(disk: DiskCache, place: Path) -> None:
    await fill(disk, 1)
    shutil.rmtree(place)
    await fill(disk, 2)
    assert disk.metrics.failures == 1
    assert await get(disk, 1) is None
    await recovered(disk)
    assert await get(disk, 3) == block(3)
    assert total(place) == disk.bytes_used


async def test_a_full_disk_is_read_and_says_one_line(
    disk: DiskCache, files: FailingFiles, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(disk, 0)
    files.write_error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    while disk.metrics.failures < 3:  # it tries again after each rest
        await fill(disk, 1)
        assert await get(disk, 0) == block(0)
        await asyncio.sleep(0.01)
    # Only of the cache: brokers of other tests may still be running in this process.
    [line] = [each for each in caplog.records if each.name == disk_cache.__name__]
    assert line.levelno == logging.WARNING
    assert "No space left on device" in line.getMessage()
    assert str(place) in line.getMessage()
    files.write_error = None
    while not await get(disk, 1):
        await fill(disk, 1)
        await asyncio.sleep(0.01)
    assert total(place) == disk.bytes_used
    files.write_error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    await fill(disk, 2)
    assert len(caplog.records) == 2


async def test_a_failing_disk_means_misses_and_one_line(
    disk: DiskCache, files: FailingFiles, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(disk, 0)
    files.error = OSError(errno.EIO, os.strerror(errno.EIO))
    await fill(disk, 1, 2)
    while disk.metrics.failures < 4:
        assert await get(disk, 0) is None
        await asyncio.sleep(0.01)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Input/output error" in caplog.text
    files.error = None
    await recovered(disk)
    assert await get(disk, 0) == block(0)
    await fill(disk, 1)
    assert total(place) == disk.bytes_used
    files.error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert await get(disk, 0) is None
    assert len(caplog.records) == 2


async def test_a_disk_that_cannot_be_opened(memory_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (memory_path / "file").write_text("no directory")
    disk = DiskCache(BlockFiles(memory_path / "file" / "cache"), max_bytes=ROOM)
    await disk.open()
    await fill(disk, 1)
    assert await get(disk, 1) is None
    assert len(caplog.records) == 1
    await disk.close()


async def test_a_disk_that_hangs(files: FailingFiles, caplog: pytest.LogCaptureFixture) -> None:
    disk = DiskCache(files, max_bytes=ROOM, patience_seconds=0.05, rest_seconds=60)
    await disk.open()
    await fill(disk, 1)
    files.gate.clear()
    assert await get(disk, 1) is None
    assert await get(disk, 1) is None
    assert "does not answer in time" in caplog.text
    assert disk.metrics.failures == 1
    files.gate.set()
    await disk.close()


async def test_a_disk_that_hangs_at_the_end(files: FailingFiles) -> None:
    disk = DiskCache(files, max_bytes=ROOM, patience_seconds=0.05)
    await disk.open()
    files.gate.clear()
    disk.keep("a", 0, block(0))
    await disk.close()
    files.gate.set()


async def test_below_a_block_cache(disk: DiskCache) -> None:
    store = FaultyObjectStore(MemoryObjectStore(ManualClock()))
    data = b"".join(block(number) for number in range(3))
    await store.put("a", data)

    async def read_all() -> BlockCache:
        cache = BlockCache(store, max_bytes=10 * BLOCK, block_bytes=BLOCK, disk=disk)
        assert await cache.read("a", len(data), 0, len(data)) == data
        await disk.settled()
        return cache

    await read_all()
    store.fail(Fault.FAIL, "read", for_ever=True)  # a store that is away does not matter for these blocks
    cache = await read_all()
    assert (cache.metrics.disk_hits, cache.metrics.fetches) == (3, 0)
    cache.forget("a")
    await disk.settled()
    assert disk.bytes_used == 0
