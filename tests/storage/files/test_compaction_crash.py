"""Compaction and everything that can happen to it half way: crashes, lost catalogs, failing disks."""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posthouse.model.errors import StorageFenced
from posthouse.storage.files.catalog.catalog import Catalog
from posthouse.storage.files.system.data_directory import OsDataDirectory
from posthouse.storage.files.system.disk import Buffer
from posthouse.storage.files.verify import Verification
from tests.storage.compacted import put
from tests.storage.compacted_store import (
    PARTITION,
    check_compacted,
    check_opens,
    contents,
    filled,
    segment_files,
)
from tests.storage.faults import FaultyDisk
from tests.storage.stores import crash_copy, file_storage


class StepDisk(FaultyDisk):
    """Copies the data directory before every change that compaction makes."""

    def __init__(self, directory: Path, copies: Path) -> None:
        super().__init__()
        self._directory = directory
        self._copies = copies
        self._one_step = threading.RLock()
        self.steps: list[str] = []
        self.is_recording = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Nobody else changes anything meanwhile."""
        with self._one_step:
            if self.is_recording:
                shutil.copytree(self._directory, self._copies / f"{len(self.steps):03d}")
                self.steps.append(name)
            yield

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        with self.step("write"):
            super().write(handle, buffers, position)

    def sync(self, handle: int) -> None:
        with self.step("sync"):
            super().sync(handle)

    def rename(self, old: str, new: str) -> None:
        with self.step("rename"):
            super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        with self.step("sync_directory"):
            super().sync_directory(path)

    def remove(self, path: str) -> None:
        with self.step("remove"):
            super().remove(path)


async def test_a_crash_at_every_step(memory_path: Path) -> None:
    (memory_path / "copies").mkdir()
    disk = StepDisk(memory_path / "data", memory_path / "copies")
    storage = await filled(memory_path / "data", disk)
    await storage.checkpoint()
    before = await contents(storage)
    replace_rows = storage._catalog.replace_segments

    def replace_in_steps(*args: Any) -> None:
        with disk.step("before the catalog"):
            replace_rows(*args)
        with disk.step("after the catalog"):
            pass

    storage._catalog.replace_segments = replace_in_steps  # type: ignore[assignment, method-assign]
    disk.is_recording = True
    await storage.compact()
    await storage.close()
    assert {"write", "sync", "rename", "sync_directory", "remove", "after the catalog"} <= set(disk.steps)
    sizes = set()
    for copy in sorted((memory_path / "copies").iterdir()):
        found = await check_opens(copy)
        assert found.items() <= before.items()
        sizes.add(len(found))
    assert len(sizes) > 2, "groups are swapped one by one"


async def test_a_crash_and_a_lost_catalog(memory_path: Path) -> None:
    """Old and new files lie side by side, and nobody says which of them count."""
    (memory_path / "copies").mkdir()
    disk = StepDisk(memory_path / "data", memory_path / "copies")
    storage = await filled(memory_path / "data", disk)
    disk.is_recording = True
    await storage.compact()
    await storage.close()
    assert len(disk.steps) > 20
    for copy in sorted((memory_path / "copies").iterdir()):
        (copy / "catalog.sqlite").write_bytes(b"nothing of a database" * 100)
        await check_opens(copy, files=False)
        await check_opens(copy)


async def test_a_file_that_nobody_knows_is_not_removed(memory_path: Path) -> None:
    storage = await filled(memory_path / "data")
    await storage.compact()
    await storage.close()
    directory = next((memory_path / "data").glob("topics/*"))
    (directory / "0-00000000000000009999.log").write_bytes(b"who knows")
    (directory / "0-00000000000000000000-77.log").write_bytes(b"of compaction")
    (directory / "0-00000000000000000000-78.log.part").write_bytes(b"of compaction")
    storage = file_storage(memory_path / "data")
    await storage.open()
    await storage.close()
    names = segment_files(memory_path / "data")
    assert "0-00000000000000009999.log" in names
    assert not any("-77" in name or ".part" in name for name in names)


async def test_nothing_is_removed_while_a_named_file_is_missing(memory_path: Path) -> None:
    """As after an old copy of the catalog was put back: the files it does not name are all there is."""
    storage = await filled(memory_path / "data")
    await storage.checkpoint()
    shutil.copy(memory_path / "data" / "catalog.sqlite", memory_path / "old")
    shutil.copy(memory_path / "data" / "catalog.sqlite-wal", memory_path / "old-wal")
    await storage.compact()
    await storage.close()
    before = segment_files(memory_path / "data")
    shutil.copy(memory_path / "old", memory_path / "data" / "catalog.sqlite")
    shutil.copy(memory_path / "old-wal", memory_path / "data" / "catalog.sqlite-wal")
    (memory_path / "data" / "catalog.backup.sqlite").unlink()
    storage = file_storage(memory_path / "data")
    await storage.open()
    await storage.close()
    assert {name for name in before if name.endswith(".log")} <= set(segment_files(memory_path / "data"))


async def test_old_files_that_came_back_and_a_lost_catalog(memory_path: Path) -> None:
    """A power cut may undo removals in any order. The file of the highest generation covers the most."""
    storage = await filled(memory_path / "data")
    await storage.checkpoint()
    old = {segment.path: Path(segment.path).read_bytes() for segment in storage._logs[PARTITION].segments}
    for _ in range(2):
        await storage.compact()
        await storage.commit([put(PARTITION, (b"0", b"." * 300))])
    before = await contents(storage)
    await storage.close()
    first = min(old)
    assert not Path(first).exists()
    Path(first).write_bytes(old[first])
    (memory_path / "data" / "catalog.sqlite").unlink()
    storage = file_storage(memory_path / "data")
    await storage.open()
    assert await contents(storage) == before
    await storage.close()


async def test_a_backup_that_knows_files_of_old(memory_path: Path) -> None:
    storage = await filled(memory_path / "data")
    await storage.close()
    (memory_path / "data" / "catalog.backup.sqlite").unlink()
    storage = file_storage(memory_path / "data")
    await storage.open()  # makes the backup again, from the whole catalog
    await storage.compact()
    await storage.commit([put(PARTITION, (b"0", b"." * 300))])
    await storage.compact()
    before = await contents(storage)
    await storage.close()
    (memory_path / "data" / "catalog.sqlite").unlink()
    for _ in range(2):
        storage = file_storage(memory_path / "data")
        await storage.open()
        assert await contents(storage) == before
        await storage.close()


async def test_a_restored_catalog_and_a_crash_before_its_first_checkpoint(memory_path: Path) -> None:
    storage = await filled(memory_path / "data")
    await storage.compact()
    await storage.close()
    (memory_path / "data" / "catalog.sqlite").unlink()
    catalog = Catalog(OsDataDirectory(memory_path / "data"))
    catalog.open(lambda: "never needed")
    catalog.close()
    await check_opens(memory_path / "data")


async def test_what_is_not_checkpointed_waits(memory_path: Path) -> None:
    """The journal still says where in the old file it lies."""
    storage = await filled(memory_path / "data")
    host = storage._compactor._host

    async def checkpoint_and_more() -> bool:
        done = await host.checkpoint()
        for number in range(40, 60):
            await storage.commit([put(PARTITION, (b"%d" % (number % 7), b"%d" % number))])
        return done

    storage._compactor._host = replace(host, checkpoint=checkpoint_and_more)
    await storage.compact()
    copy = await crash_copy(storage, memory_path / "copy")
    before = await contents(storage)
    assert len(before) < 50 and set(range(40, 60)) <= before.keys()
    await storage.close()
    storage = file_storage(copy)
    await storage.open()
    assert await contents(storage) == before
    assert not list(Verification(copy).findings())
    await storage.close()


@pytest.mark.parametrize("call", ["write", "sync", "sync_directory", "rename"])
async def test_a_disk_that_fails(memory_path: Path, call: str) -> None:
    disk = FaultyDisk()
    storage = await filled(memory_path / "data", disk)
    await storage.checkpoint()
    before = await contents(storage)
    path = "*/topics/*" if call == "sync_directory" else "*-1.log.part"
    disk.fail(call, path)
    await storage.compact()
    assert await contents(storage) == before
    if "sync" in call:
        with pytest.raises(StorageFenced):
            await storage.compact()
    else:
        await storage.compact()
        await check_compacted(storage)
    await storage.close()
    await check_opens(memory_path / "data")
