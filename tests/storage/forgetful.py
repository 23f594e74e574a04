"""A disk in memory that loses what was not synced when the power fails."""

import errno
import os
import random
import threading
from collections.abc import Sequence

from posthouse.storage.files.system.disk import Buffer

SECTOR = 512


class _File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []
        """Writes in order; a truncation is kept as its size and no bytes."""

    def write(self, data: bytes, position: int) -> None:
        _put(self.data, data, position)
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))
        self.unsynced.append((size, b""))

    def sync(self) -> None:
        self.durable = bytearray(self.data)
        self.unsynced.clear()

    def crash(self, random: random.Random) -> None:
        """Any subset of the unsynced sectors may have reached the device, in any order."""
        luck = random.choice([0.0, 0.3, 0.9, 1.0])
        for position, data in self.unsynced:
            if not data:
                if random.random() < luck:
                    del self.durable[position:]
                continue
            for at in range(0, len(data), SECTOR):
                if random.random() < luck:
                    _put(self.durable, data[at : at + SECTOR], position + at)
        self.data = bytearray(self.durable)
        self.unsynced.clear()


def _put(target: bytearray, data: bytes, position: int) -> None:
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


class ForgetfulDisk:
    """Names are lost too, unless their directory was synced. Removals are kept: no promise rests on them."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._directories: set[str] = set()
        self._durable_directories: set[str] = set()
        self._handles: dict[int, _File] = {}
        self._next_handle = 1
        self._lock = threading.RLock()
        self.is_off = False

    def cut_power(self) -> None:
        """Nothing reaches the disk from now on, and nothing succeeds."""
        with self._lock:
            self.is_off = True

    def restart(self, random: random.Random) -> "ForgetfulDisk":
        """The disk as the next process finds it."""
        after = ForgetfulDisk()
        kept = {
            path: file
            for path, file in self._files.items()
            if self._durable_names.get(path) is file or random.random() < 0.5
        }
        for path, file in self._durable_names.items():
            if path not in kept and file not in kept.values():
                kept[path] = file
        for path, file in kept.items():
            file.crash(random)
            after._files[path] = after._durable_names[path] = file
            after._note_directories(path)
        after._directories |= self._durable_directories
        after._durable_directories = set(after._directories)
        return after

    def _note_directories(self, path: str) -> None:
        while (path := os.path.dirname(path)) not in ("", "/"):  # noqa: PTH120
            self._directories.add(path)

    def _check(self) -> None:
        if self.is_off:
            raise OSError(errno.EIO, "the power is off")

    def open(self, path: str, *, create: bool = False) -> int:
        with self._lock:
            self._check()
            if path not in self._files:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                if os.path.dirname(path) not in self._directories:  # noqa: PTH120
                    raise FileNotFoundError(errno.ENOENT, "no such directory", path)
                self._files[path] = _File()
            self._next_handle += 1
            self._handles[self._next_handle] = self._files[path]
            return self._next_handle

    def close(self, handle: int) -> None:
        with self._lock:
            del self._handles[handle]

    def identity(self, handle: int) -> tuple[int, int]:
        with self._lock:
            return 0, id(self._handles[handle])

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        with self._lock:
            self._check()
            self._handles[handle].write(b"".join(buffers), position)

    def read(self, handle: int, size: int, position: int) -> bytes:
        with self._lock:
            return bytes(self._handles[handle].data[position : position + size])

    def read_now(self, handle: int, size: int, position: int) -> bytearray | None:
        data = bytearray(self.read(handle, size, position))
        return data if len(data) == size else None

    def sync(self, handle: int) -> None:
        with self._lock:
            self._check()
            self._handles[handle].sync()

    def sync_directory(self, path: str) -> None:
        with self._lock:
            self._check()
            if path not in self._directories and path != "/":
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            inside = [name for name in self._durable_names if os.path.dirname(name) == path]  # noqa: PTH120
            for name in inside:
                del self._durable_names[name]
            for name, file in self._files.items():
                if os.path.dirname(name) == path:  # noqa: PTH120
                    self._durable_names[name] = file
            self._durable_directories |= {d for d in self._directories if os.path.dirname(d) == path}  # noqa: PTH120

    def sync_everything(self, path: str) -> None:
        with self._lock:
            self._check()
            for file in self._files.values():
                file.sync()
            self._durable_names = dict(self._files)
            self._durable_directories = set(self._directories)

    def allocate(self, handle: int, size: int) -> None:
        with self._lock:
            self._check()
            file = self._handles[handle]
            if len(file.data) < size:
                file.truncate(size)

    def truncate(self, handle: int, size: int) -> None:
        with self._lock:
            self._check()
            self._handles[handle].truncate(size)

    def size(self, path: str) -> int:
        with self._lock:
            file = self._files.get(path)
            return -1 if file is None else len(file.data)

    def names(self, path: str) -> list[str]:
        with self._lock:
            prefix = f"{path}/"
            everything = [*self._files, *self._directories]
            rests = (each.removeprefix(prefix) for each in everything if each.startswith(prefix))
            return sorted({rest.split("/")[0] for rest in rests if rest})

    def make_directory(self, path: str) -> list[str]:
        with self._lock:
            self._check()
            if path in self._directories or path == "/":
                return []
            parent = os.path.dirname(path)  # noqa: PTH120
            changed = self.make_directory(parent)
            self._directories.add(path)
            return [*changed, parent]

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            self._check()
            self._files[new] = self._files.pop(old)

    def remove(self, path: str) -> None:
        with self._lock:
            self._check()
            self._files.pop(path, None)
            self._durable_names.pop(path, None)

    def remove_directory(self, path: str) -> None:
        with self._lock:
            self._check()
            self._directories.discard(path)
            self._durable_directories.discard(path)
