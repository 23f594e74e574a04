"""A bounded set of open files.

Ten thousand partitions must work under a limit of 1,024 descriptors, so a file is opened on use and the
least recently used one is closed. A handle is never closed while somebody holds it: its number could be
given to another file in the middle of a read. Safe to use from several threads.
"""

import threading
from collections import OrderedDict

from posthouse.storage.disk import Disk


class OpenFile:
    __slots__ = ("dropped", "handle", "path", "users")

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.users = 0
        self.dropped = False


class OpenFiles:
    def __init__(self, disk: Disk, limit: int) -> None:
        self._disk = disk
        self._limit = limit
        self._lock = threading.Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def acquire(self, path: str, *, create: bool = False) -> OpenFile:
        """The open file; to be given back with `release`."""
        with self._lock:
            file = self._files.get(path)
            if file is None:
                self._make_room()
                file = self._files[path] = OpenFile(path, self._disk.open(path, create=create))
            else:
                self._files.move_to_end(path)
            file.users += 1
            return file

    def release(self, file: OpenFile) -> None:
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.dropped:
                self._disk.close(file.handle)
            elif len(self._files) > self._limit:  # there was no idle one when this one was opened
                self._retire(self._files.pop(file.path))

    def drop(self, path: str) -> None:
        """Forget a file that is about to be removed or replaced."""
        with self._lock:
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
