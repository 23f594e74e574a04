"""A directory of objects: durability, other users of the directory, and file systems that go away."""

import asyncio
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from posthouse.storage.shared.objects import object_files
from posthouse.storage.shared.objects.directory import DirectoryObjectStore
from posthouse.storage.shared.objects.store import ObjectMissing, ObjectsAway, ObjectsRefused


@pytest.fixture
def root(memory_path: Path) -> Path:
    return memory_path / "objects"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[DirectoryObjectStore]:
    made = DirectoryObjectStore(root, timeout=10)
    yield made
    await made.close()


async def keys(store: DirectoryObjectStore) -> set[str]:
    return {each.key async for each in store.list("")}


class Calls:
    """Syncs and renames by path, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.seen: list[str] = []
        self._root = root
        fsync, replace = os.fsync, Path.replace

        def noted_fsync(handle: int) -> None:
            self._note("sync", Path(f"/proc/self/fd/{handle}").readlink())
            fsync(handle)

        def noted_replace(path: Path, target: Path) -> Path:
            self._note("rename", target)
            return replace(path, target)

        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(Path, "replace", noted_replace)

    def _note(self, call: str, path: Path) -> None:
        shown = str(path.relative_to(self._root))
        self.seen.append(f"{call} {'part' if shown.startswith('.incoming/') else shown}")


async def test_a_put_is_durable(
    store: DirectoryObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("x", b"")
    calls = Calls(monkeypatch, root)
    await store.put("a/b/1", b"one")
    assert calls.seen == ["sync part", "rename a/b/1", "sync a/b", "sync a", "sync ."]
    calls.seen.clear()
    await store.put("a/b/2", b"two")
    assert calls.seen == ["sync part", "rename a/b/2", "sync a/b"]
    calls.seen.clear()
    # A directory that was removed and made again has a new name, which is to be synced again.
    await store.delete(["a/b/1", "a/b/2"])
    await store.put("a/b/3", b"three")
    assert calls.seen == ["sync part", "rename a/b/3", "sync a/b", "sync a", "sync ."]


async def test_a_failed_sync_leaves_no_object(
    store: DirectoryObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("x", b"")

    def failing(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(ObjectsAway, match="Input/output error"):
        await store.put("a/1", b"one")
    monkeypatch.undo()
    assert await keys(store) == {"x"}
    assert list((root / ".incoming").iterdir()) == []


async def test_empty_directories_are_removed(store: DirectoryObjectStore, root: Path) -> None:
    await store.put("a/b/1", b"x")
    await store.put("a/c/1", b"x")
    await store.delete(["a/b/1"])
    assert {each.name for each in (root / "a").iterdir()} == {"c"}
    await store.delete(["a/c/1"])
    assert not (root / "a").exists()
    assert root.exists()


async def test_puts_and_deletes_in_one_directory(store: DirectoryObjectStore) -> None:
    """The directory of a put may be removed at any moment, because a delete has emptied it."""

    async def use(number: int) -> None:
        for turn in range(30):
            key = f"a/b/{number}-{turn}"
            await store.put(key, b"x")
            await store.delete([key])

    await asyncio.gather(*(use(number) for number in range(6)))
    assert await keys(store) == set()


async def test_first_calls_at_once_create_one_directory(memory_path: Path) -> None:
    for number in range(30):
        store = DirectoryObjectStore(memory_path / str(number), timeout=10)
        await asyncio.gather(*(store.put(f"a/{key}", b"x") for key in range(8)))
        assert len(await keys(store)) == 8
        await store.close()


async def test_two_brokers_use_one_directory(root: Path) -> None:
    stores = [DirectoryObjectStore(root, timeout=10) for _ in range(4)]
    await asyncio.gather(*(store.put(f"a/{n}", b"x") for n, store in enumerate(stores)))
    for store in stores:
        assert await keys(store) == {"a/0", "a/1", "a/2", "a/3"}
        await store.close()


async def test_only_the_owner_has_access(store: DirectoryObjectStore, root: Path) -> None:
    await store.put("a/1", b"x")
    for path in (root, root / "a", root / "a/1", root / ".incoming"):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_parts_of_dead_brokers_are_removed(root: Path) -> None:
    first = DirectoryObjectStore(root, timeout=10)
    await first.put("a", b"x")
    await first.close()
    old, new = root / ".incoming" / "old", root / ".incoming" / "new"
    for each in (old, new):
        each.write_bytes(b"part")
    day_ago = time.time() - 25 * 3600
    os.utime(old, (day_ago, day_ago))
    second = DirectoryObjectStore(root, timeout=10)
    assert await keys(second) == {"a"}
    assert not old.exists()
    assert new.exists()
    await second.close()


Call = Callable[[DirectoryObjectStore], Any]
CALLS: dict[str, Call] = {
    "put": lambda store: store.put("b", b"x"),
    "read": lambda store: store.read("a", 0, 1),
    "delete": lambda store: store.delete(["a"]),
    "list": keys,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("how", ["removed", "empty", "another"])
async def test_a_file_system_that_is_not_mounted(
    store: DirectoryObjectStore, root: Path, call: Call, how: str
) -> None:
    """Neither a missing object nor an empty listing: the objects are there, but not here."""
    await store.put("a", b"x")
    aside = root.with_name("aside")
    root.rename(aside)
    if how != "removed":
        root.mkdir()
    if how == "another":
        other = DirectoryObjectStore(root, timeout=10)
        await other.put("c", b"x")
        await other.close()
    with pytest.raises(ObjectsAway, match=r"mount"):
        await call(store)
    if root.exists():
        shutil.rmtree(root)
    aside.rename(root)
    assert await store.read("a", 0, 1) == b"x"
    await call(store)


async def test_a_parent_that_does_not_exist(memory_path: Path) -> None:
    store = DirectoryObjectStore(memory_path / "mnt" / "objects", timeout=10)
    with pytest.raises(ObjectsRefused, match=r"mnt does not exist; mount .* or create it"):
        await store.check()
    assert not (memory_path / "mnt").exists()
    await store.close()


async def test_a_file_in_place_of_the_directory(root: Path) -> None:
    root.write_text("a file")
    store = DirectoryObjectStore(root, timeout=10)
    with pytest.raises(ObjectsRefused, match=r"is a file; name a directory"):
        await store.check()
    await store.close()


async def test_no_permission(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, data: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(object_files, "_write", refused)
    store = DirectoryObjectStore(root, timeout=10)
    with pytest.raises(ObjectsRefused, match=r"cannot put objects in file://.*may read and write"):
        await store.check()
    await store.close()


async def test_a_file_system_that_hangs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryObjectStore(root, timeout=0.05)
    hanging = threading.Event()

    def hang(path: Path, data: object) -> None:
        hanging.wait()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(object_files, "_write", hang)
    with pytest.raises(ObjectsAway, match=r"did not answer in 0.05 s"):
        await store.put("a", b"x")
    hanging.set()
    await store.close()


async def test_a_missing_object_is_told_from_a_missing_file_system(store: DirectoryObjectStore) -> None:
    await store.put("a", b"x")
    with pytest.raises(ObjectMissing):
        await store.read("b", 0, 1)
