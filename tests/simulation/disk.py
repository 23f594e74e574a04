"""A disk in memory that knows what was written, what was synced, and what it promised.

A process that dies leaves everything that it wrote. When the power fails, less remains: of the bytes that
were not synced any sectors, in any order; of the names that were not synced, in each directory, the first few
changes. A sync that fails drops what it should have stored, and the next one says that all is well, as on
Linux.

Each call that changes something is a place where the world may end: see `on_change`.
"""

import errno
import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from random import Random

from posthouse.storage.files.system.disk import Buffer
from tests.simulation.world import PowerCut, World

SECTOR = 512


@dataclass(eq=False, slots=True)
class File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes in their order, by position; None at a position cuts or extends the file to it."""
    number: int = field(default_factory=count().__next__)

    def write(self, data: bytes, position: int) -> None:
        _put(self.data, data, position)
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        _resize(self.data, size)
        self.unsynced.append((size, None))

    def sync(self) -> None:
        for position, data in self.unsynced:
            if data is None:
                _resize(self.durable, position)
            else:
                _put(self.durable, data, position)
        self.unsynced.clear()

    def store_some(self, random: Random) -> None:
        """Any of the unsynced sectors reach the device, the others never will."""
        luck = random.choice((0.0, 0.3, 0.9, 1.0))
        for position, data in self.unsynced:
            if data is None:
                if random.random() < luck:
                    _resize(self.durable, position)
                continue
            for at in range(0, len(data), SECTOR):
                if random.random() < luck:
                    _put(self.durable, data[at : at + SECTOR], position + at)
        self.unsynced.clear()


def _put(target: bytearray, data: bytes, position: int) -> None:
    if len(target) < position:
        _resize(target, position)
    target[position : position + len(data)] = data


def _resize(target: bytearray, size: int) -> None:
    del target[size:]
    target.extend(bytes(size - len(target)))


@dataclass(frozen=True, slots=True)
class _Change:
    """Of a name: made where `old` is None, removed where `new` is."""

    old: str | None
    new: str | None
    node: File | None = None
    """None is a directory."""

    def apply(self, names: dict[str, File | None]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None:
            names[self.new] = self.node


class Disk:
    """See `posthouse.storage.files.system.disk.Disk`. One of it outlives all processes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random("disk")
        self._names: dict[str, File | None] = {"/": None}
        self._durable_names: dict[str, File | None] = {"/": None}
        self._pending: dict[str, list[_Change]] = {}
        self._handles: dict[int, tuple[File, str]] = {}
        self._next_handle = 0
        self.on_change: Callable[[str, str], None] = lambda call, path: None
        """Called before anything is changed; it may raise."""
        self.room: int | None = None
        """How many more bytes can be written, if that is limited."""
        self.syncs_to_fail = 0

    # What happens to it

    def inherited(self, *, power_failed: bool) -> "Disk":
        """The disk as the next process finds it. To this one, which is dead, nothing more is done."""
        heir = copy(self)
        self.on_change = _dead
        self._names, self._pending = {}, {}
        heir._handles = {}
        heir.syncs_to_fail = 0
        if power_failed:
            heir._forget()
        return heir

    def _forget(self) -> None:
        for path in sorted(self._pending):
            changes = self._pending[path]
            for change in changes[: self._random.randrange(len(changes) + 1)]:
                change.apply(self._durable_names)
        self._pending = {}
        names = self._durable_names
        self._durable_names = {path: names[path] for path in sorted(names) if _is_reachable(path, names)}
        self._names = dict(self._durable_names)
        for node in self._names.values():
            if node is not None:
                node.store_some(self._random)
                node.data = bytearray(node.durable)

    def contents(self) -> dict[str, bytes]:
        return {path: bytes(node.data) for path, node in self._names.items() if node is not None}

    def take_room(self, size: int) -> int:
        """How many of so many bytes there is room for."""
        if self.room is None:
            return size
        taken = min(size, self.room)
        self.room -= taken
        return taken

    def fails_commit(self, database: str) -> bool:
        """Whether the catalog is to hear of an error instead."""
        if not self.syncs_to_fail:
            return False
        self.syncs_to_fail -= 1
        self._world.note(f"commit fails {database}")
        return True

    def tosses_coin(self) -> bool:
        return self._random.random() < 0.5

    def note_commit(self, database: str, content: bytes) -> None:
        self._world.note(f"disk commit {database} {len(content)}")

    # What the broker does with it

    def _note(self, call: str, path: str, size: int = 0) -> None:
        self._world.note(f"disk {call} {path} {size}")
        self.on_change(call, path)

    def open(self, path: str, *, create: bool = False) -> int:
        node = self._names.get(path)
        if node is None:
            if not create or os.path.dirname(path) not in self._names:  # noqa: PTH120
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            self._note("create", path)
            node = File()
            self._change(_Change(None, path, node))
        self._next_handle += 1
        self._handles[self._next_handle] = (node, path)
        return self._next_handle

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)

    def identity(self, handle: int) -> tuple[int, int]:
        return 0, self._handles[handle][0].number

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        file, path = self._handles[handle]
        data = b"".join(buffers)
        self._note("write", path, len(data))
        room = self.take_room(max(0, position + len(data) - len(file.data)))
        kept = max(0, len(file.data) + room - position)
        file.write(data[:kept], position)
        if kept < len(data):
            raise OSError(errno.ENOSPC, "no space left on device", path)

    def read(self, handle: int, size: int, position: int) -> bytes:
        return bytes(self._handles[handle][0].data[position : position + size])

    def read_now(self, handle: int, size: int, position: int) -> bytearray | None:
        data = self._handles[handle][0].data[position : position + size]
        # Now and then the page is not in memory.
        return data if len(data) == size and self._random.random() < 0.8 else None

    def sync(self, handle: int) -> None:
        file, path = self._handles[handle]
        self._note("sync", path, len(file.unsynced))
        self._fail_sync(file, path)
        file.sync()

    def _fail_sync(self, file: File | None, path: str) -> None:
        if self.syncs_to_fail:
            self.syncs_to_fail -= 1
            self._world.note(f"sync fails {path}")
            if file is not None:
                file.store_some(self._random)
            raise OSError(errno.EIO, "input/output error", path)

    def sync_directory(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self._note("sync_directory", path)
        self._fail_sync(None, path)
        for change in self._pending.pop(path, ()):
            change.apply(self._durable_names)

    def sync_everything(self, path: str) -> None:
        self._note("sync_everything", path)
        self._fail_sync(None, path)
        self._pending.clear()
        self._durable_names = dict(self._names)
        for node in self._names.values():
            if node is not None:
                node.sync()

    def allocate(self, handle: int, size: int) -> None:
        file, path = self._handles[handle]
        self._note("allocate", path, size)
        missing = size - len(file.data)
        if missing > 0:
            got = self.take_room(missing)
            if got < missing:
                raise OSError(errno.ENOSPC, "no space left on device", path)
            file.truncate(size)

    def truncate(self, handle: int, size: int) -> None:
        file, path = self._handles[handle]
        self._note("truncate", path, size)
        file.truncate(size)

    def size(self, path: str) -> int:
        node = self._names.get(path)
        return -1 if node is None else len(node.data)

    def names(self, path: str) -> list[str]:
        prefix = f"{path}/"
        inside = (each.removeprefix(prefix) for each in self._names if each.startswith(prefix))
        return sorted(name for name in inside if "/" not in name)

    def make_directory(self, path: str) -> list[str]:
        if path in self._names:
            return []
        parent = os.path.dirname(path)  # noqa: PTH120
        changed = self.make_directory(parent)
        self._note("make_directory", path)
        self._change(_Change(None, path))
        return [*changed, parent]

    def rename(self, old: str, new: str) -> None:
        self._note("rename", f"{old} {new}")
        self._change(_Change(old, new, self._names[old]))

    def remove(self, path: str) -> None:
        if path in self._names:
            self._note("remove", path)
            self._change(_Change(path, None))

    def remove_directory(self, path: str) -> None:
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.remove(path)

    def _change(self, change: _Change) -> None:
        change.apply(self._names)
        path = change.new or change.old
        assert path is not None
        self._pending.setdefault(os.path.dirname(path), []).append(change)  # noqa: PTH120


def _dead(call: str, path: str) -> None:
    raise PowerCut


def _is_reachable(path: str, names: dict[str, File | None]) -> bool:
    while path != "/":
        path = os.path.dirname(path)  # noqa: PTH120
        if path not in names:
            return False
    return True
