"""Objects as files of one directory, which may lie on a file system that several machines share.

All calls block. A key is the path of its file. Files are written in `.incoming` and renamed when they are
synced, so that a name always has the whole content.

A file system that is not mounted looks like an empty directory. To recognise it, the directory has a file
with a random id, which is read before each put, listing and delete, and when a file is missing.
"""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from posthouse.storage.files.system.permissions import DIRECTORY_MODE, FILE_MODE
from posthouse.storage.shared.objects.store import (
    Buffer,
    ObjectDamaged,
    ObjectMissing,
    ObjectsAway,
    ObjectsRefused,
    StoredObject,
    check_key,
    check_prefix,
)

_ID_FILE = ".posthouse-objects"
_INCOMING = ".incoming"
_ABANDONED_SECONDS = 24 * 3600
"""A file in `.incoming` that is older was left by a broker that died."""
_RENAMES = 5
"""Tries of a rename whose directory another broker removes at the same time, because it is empty."""
_REMEMBERED = 1000


class ObjectFiles:
    """Used by several threads at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / _INCOMING
        self._id: str | None = None
        self._directories = threading.Lock()
        """Held while directories are created or removed."""
        self._durable: dict[Path, tuple[int, int]] = {}
        """Directories whose own names are known to be on the device, with device and inode."""

    def put(self, key: str, data: Buffer) -> None:
        check_key(key)
        self._check_place()
        part = self._incoming / secrets.token_hex(16)
        try:
            _write(part, data)
            self._rename(part, self._root / key)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error tells more; a later start removes the file
                part.unlink(missing_ok=True)
            raise

    def read(self, key: str, start: int, size: int) -> bytes:
        check_key(key)
        try:
            handle = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = _read(handle, start, size)
            finally:
                os.close(handle)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._check_place()
            raise ObjectMissing(f"object {key} is missing in {self._root}") from None
        if len(data) != size:
            raise ObjectDamaged(f"object {key} in {self._root} has no {size} bytes from {start}")
        return data

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        self._check_place()
        emptied = set()
        for key in keys:
            path = self._root / key
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                emptied.add(path.parent)
        with self._directories:
            for directory in emptied:
                self._remove_empty(directory)

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        check_prefix(prefix)
        self._check_place()
        pending = [prefix]
        while pending:
            directory = pending.pop()
            try:
                inner, objects = self._entries(directory)
            except (FileNotFoundError, NotADirectoryError):  # no such prefix, or removed since it was listed
                continue
            pending += inner
            yield from objects

    def _entries(self, directory: str) -> tuple[list[str], list[StoredObject]]:
        """The directories and the objects right below `directory`."""
        start = f"{directory}/" if directory else ""
        inner, objects = [], []
        with os.scandir(self._root / directory) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    inner.append(start + entry.name)
                    continue
                with contextlib.suppress(FileNotFoundError):  # deleted since the directory was read
                    found = entry.stat(follow_symlinks=False)
                    objects.append(
                        StoredObject(
                            key=start + entry.name,
                            size=found.st_size,
                            modified_ms=found.st_mtime_ns // 1_000_000,
                        )
                    )
        return inner, objects

    def _rename(self, part: Path, path: Path) -> None:
        for left in reversed(range(_RENAMES)):
            try:
                with self._directories:
                    path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
                    part.replace(path)
                break
            except (FileExistsError, FileNotFoundError):
                if not left:
                    raise
        self._make_durable(path.parent)

    def _make_durable(self, directory: Path) -> None:
        """Sync the names in a directory, and once for each directory those that lead to it."""
        identity = _sync_directory(directory)
        if self._durable.get(directory) == identity:
            return
        above = directory
        while above != self._root:
            above = above.parent
            _sync_directory(above)
        if len(self._durable) >= _REMEMBERED:
            self._durable.clear()
        self._durable[directory] = identity

    def _remove_empty(self, directory: Path) -> None:
        """Remove a directory and those above it as long as they are empty: it keeps listings short."""
        while directory != self._root:
            try:
                directory.rmdir()
            except OSError:  # not empty, or another broker was faster; an empty directory harms no listing
                return
            directory = directory.parent

    def _check_place(self) -> None:
        """Raise ObjectsAway unless the directory is the one that was there at the first call."""
        known = self._id  # before the read: another thread may be creating the directory
        try:
            found = (self._root / _ID_FILE).read_text()
        except (FileNotFoundError, NotADirectoryError):
            if known is not None:
                raise ObjectsAway(
                    f"{self._root} does not have its objects any more; mount its file system again"
                ) from None
            self._create()
            found = (self._root / _ID_FILE).read_text()
        if known is None:
            self._remove_abandoned()
            self._id = found
        elif known != found:
            raise ObjectsAway(f"{self._root} was replaced by another directory; mount the right file system")

    def _create(self) -> None:
        """Only the last directory of the path: its parent is often a mount point that must be there."""
        try:
            self._root.mkdir(DIRECTORY_MODE, exist_ok=True)
        except FileNotFoundError:
            raise ObjectsRefused(
                f"{self._root.parent} does not exist; mount its file system, or create it"
            ) from None
        except FileExistsError:
            raise ObjectsRefused(f"{self._root} is a file; name a directory for the objects") from None
        self._incoming.mkdir(DIRECTORY_MODE, exist_ok=True)
        part = self._incoming / secrets.token_hex(16)
        _write(part, secrets.token_hex(16).encode())
        with contextlib.suppress(FileExistsError):  # another broker was faster, so the id is that one's
            (self._root / _ID_FILE).hardlink_to(part)
        part.unlink()
        _sync_directory(self._root)
        _sync_directory(self._root.parent)

    def _remove_abandoned(self) -> None:
        self._incoming.mkdir(DIRECTORY_MODE, exist_ok=True)
        oldest = time.time() - _ABANDONED_SECONDS
        for each in self._incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):  # renamed or removed since the directory was read
                if each.stat().st_mtime < oldest:
                    each.unlink()


def _write(path: Path, data: Buffer) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(handle: int, start: int, size: int) -> bytes:
    """Up to `size` bytes; fewer only at the end of the file."""
    data = os.pread(handle, size, start)
    if len(data) == size or not data:
        return data
    return data + _read(handle, start + len(data), size - len(data))


def _sync_directory(path: Path) -> tuple[int, int]:
    """Returns device and inode."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        found = os.fstat(handle)
    finally:
        os.close(handle)
    return found.st_dev, found.st_ino
