"""The only access to files. Passed in, so that tests can make a disk slow, full, broken or lossy.

Handles are integers and paths are strings: both are on the write path of every batch. All calls block except
`read_now`; the event loop must call no other.
"""

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from posthouse.storage.files.system.permissions import DIRECTORY_MODE, FILE_MODE

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_BUFFERS = 1024
"""The maximum number of buffers of one writev on Linux."""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SyncFailed(Exception):
    """A sync failed, so the bytes may be lost. A second sync would wrongly report success."""


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file for reading and writing."""

    def close(self, handle: int) -> None: ...

    def identity(self, handle: int) -> tuple[int, int]:
        """Equal for handles of the same file: device and inode. Does not wait for the device."""

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all bytes. An OSError may leave any part of them written."""

    def read(self, handle: int, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_now(self, handle: int, size: int, position: int) -> bytearray | None:
        """Like `read`, but None if the bytes would have to be fetched from the device."""

    def sync(self, handle: int) -> None:
        """Return when all bytes written through any handle of this file are on the device."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def sync_everything(self, path: str) -> None:
        """Sync the whole file system under `path`: cheaper than syncing very many files."""

    def allocate(self, handle: int, size: int) -> None:
        """Reserve space, so that later writes neither fail nor change the file's metadata."""

    def truncate(self, handle: int, size: int) -> None: ...

    def size(self, path: str) -> int:
        """The size of a file, -1 if it does not exist."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, empty if it does not exist."""

    def make_directory(self, path: str) -> list[str]:
        """Create a directory and its parents; returns the directories whose content changed."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Delete a file; a missing file is no error."""

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory; a missing directory is no error."""


def synced(disk: Disk, handle: int) -> None:
    """Sync a file. Raises SyncFailed instead of OSError, because a failed sync leaves the file's content
    unknown."""
    try:
        disk.sync(handle)
    except OSError as error:
        raise SyncFailed(str(error)) from error


class OsDisk:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, FILE_MODE)

    def close(self, handle: int) -> None:
        os.close(handle)

    def identity(self, handle: int) -> tuple[int, int]:
        found = os.fstat(handle)
        return found.st_dev, found.st_ino

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        for first in range(0, len(buffers), MAX_BUFFERS):
            chunk = buffers[first : first + MAX_BUFFERS]
            expected = sum(map(len, chunk))
            written = os.pwritev(handle, chunk, position)
            if written != expected:
                self._finish(handle, b"".join(chunk), position, written)
            position += expected

    def _finish(self, handle: int, data: bytes, position: int, written: int) -> None:
        """Complete a short write. They are rare: a signal, or a disk that has just become full."""
        while written < len(data):
            written += os.pwrite(handle, memoryview(data)[written:], position + written)

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = os.pread(handle, size, position)
        if len(data) == size or not data:
            return data
        rest = self.read(handle, size - len(data), position + len(data))
        return data + rest

    def read_now(self, handle: int, size: int, position: int) -> bytearray | None:
        buffer = bytearray(size)
        try:
            got = os.preadv(handle, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return None
            raise
        # After a short read the rest is not in memory, or the file ends; `read` finds out which.
        return buffer if got == size else None

    def sync(self, handle: int) -> None:
        os.fdatasync(handle)

    def sync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def sync_everything(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if self._libc.syncfs(handle) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(handle)

    def allocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return -1

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> list[str]:
        if os.path.isdir(path):
            return []
        parent = os.path.dirname(path)
        changed = self.make_directory(parent)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            return changed
        return [*changed, parent]

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_directory(self, path: str) -> None:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
