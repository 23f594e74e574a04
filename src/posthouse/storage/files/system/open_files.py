"""A bounded cache of open files.

Ten thousand partitions must work under a limit of 1,024 descriptors, so files are opened on use and the least
recently used one is closed. A handle in use is never closed: the system could reuse its number for another
file in the middle of a read. Safe to use from several threads.

A file is checked when it is first opened. The cache remembers its device and inode, so that opening the same
file again needs no check, which could be a random read per append with more files than descriptors.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from posthouse.storage.files.system.disk import Disk

Check: TypeAlias = Callable[[int, str, bool], None]
"""(handle, path, whether it may wait for the device): raises if the file is wrong."""


REMEMBERED = 50_000
"""Maximum number of checked files to remember."""


class OpenFile:
    __slots__ = ("dropped", "handle", "is_checked", "path", "users")

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.users = 0
        self.dropped = False
        self.is_checked = False


class OpenFiles:
    def __init__(self, disk: Disk, limit: int, check: Check = lambda *_: None) -> None:
        """`check` raises if the opened file is not the one that its path stands for.

        It is called again when another file has the path.
        """
        self._disk = disk
        self._check = check
        self._limit = limit
        self._lock = threading.Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Checked files, the most recent last."""

    def acquire(self, path: str, *, create: bool = False, wait: bool = True) -> OpenFile:
        """The open file; the caller must `release` it.

        Without `wait` raises BlockingIOError if the check would have to wait for the device.
        """
        with self._lock:
            file = self._files.get(path)
            if file is None:
                self._make_room()
                file = self._files[path] = OpenFile(path, self._disk.open(path, create=create))
            else:
                self._files.move_to_end(path)
            file.users += 1
        if not file.is_checked:
            self._check_file(file, wait)
        return file

    def _check_file(self, file: OpenFile, wait: bool) -> None:
        """Check outside of the lock, because it may wait for the device."""
        try:
            identity = self._disk.identity(file.handle)
            if self._known.get(file.path) != identity:
                self._check(file.handle, file.path, wait)
                self._remember(file, identity)
        except BaseException:
            self.release(file)
            self.drop(file.path)
            raise
        file.is_checked = True

    def _remember(self, file: OpenFile, identity: tuple[int, int]) -> None:
        with self._lock:
            if not file.dropped:
                self._known[file.path] = identity
                self._known.move_to_end(file.path)
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)

    def release(self, file: OpenFile) -> None:
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.dropped:
                self._disk.close(file.handle)
            elif len(self._files) > self._limit:  # no file was idle when this one was opened
                self._retire(self._files.pop(file.path))

    def drop(self, path: str) -> None:
        """Forget a file that is about to be removed or replaced."""
        with self._lock:
            self._known.pop(path, None)
            file = self._files.pop(path, None)
            if file is not None:
                self._retire(file)

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                self._retire(file)
            self._files.clear()

    def __len__(self) -> int:
        return len(self._files)

    def _make_room(self) -> None:
        if len(self._files) < self._limit:
            return
        idle = next((path for path, file in self._files.items() if file.users == 0), None)
        if idle is not None:
            self._retire(self._files.pop(idle))

    def _retire(self, file: OpenFile) -> None:
        file.dropped = True
        if file.users == 0:
            self._disk.close(file.handle)
