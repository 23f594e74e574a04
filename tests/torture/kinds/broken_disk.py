"""Disks that fail: a sync that says so and forgets what it should have kept, a write that ends half-way.

After a failed sync Linux counts the pages as clean: the next sync succeeds, and the bytes are gone. So does
this disk. What the broker must do is to accept nothing more until it is started again.
"""

import asyncio
import errno
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from posthouse.storage.files.system.disk import Buffer, Disk, OsDisk
from tests.checker.history import CommitOffset, End, Fault, History, Outcome, Send
from tests.torture.brokers import Recipe, StartFailed
from tests.torture.campaign import Arena, Kind
from tests.torture.kinds.failpoints import kind_of

_ROUND_SECONDS = 3.0
_AFTERWARDS = 0.15
"""How long clients go on asking a broker that must not accept anything."""


@dataclass(frozen=True, slots=True)
class DiskFault:
    """The call that fails: a sync or a write of a journal or segment file, and the how manieth."""

    call: str
    file: str
    count: int

    def __str__(self) -> str:
        return f"{self.call} of {self.file}"


class BrokenDisk(OsDisk):
    """Fails once. `note` gets the time at which it did."""

    def __init__(self, fault: DiskFault, note: Path, *, silent: bool) -> None:
        super().__init__()
        self._fault = fault
        self._note = note
        self._silent = silent
        """Says nothing of it, for negative controls."""
        self._left = fault.count
        self._paths: dict[int, str] = {}
        self._unsynced: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)

    def open(self, path: str, *, create: bool = False) -> int:
        handle = super().open(path, create=create)
        self._paths[handle] = path
        return handle

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._paths = {handle: new if path == old else path for handle, path in self._paths.items()}
        self._unsynced[new] = self._unsynced.pop(old, [])

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        path = self._paths[handle]
        data = b"".join(buffers)
        before = super().read(handle, len(data), position)
        self._unsynced[path].append((position, before))
        if self._is_time("write", path):
            super().write(handle, [data[: len(data) // 2]], position)
            self._fail(path)
            return
        super().write(handle, buffers, position)

    def sync(self, handle: int) -> None:
        path = self._paths[handle]
        if self._is_time("sync", path):
            for position, before in reversed(self._unsynced.pop(path, [])):
                super().write(handle, [before], position)
            self._fail(path)
            return
        super().sync(handle)
        self._unsynced.pop(path, None)

    def _is_time(self, call: str, path: str) -> bool:
        if call != self._fault.call or kind_of(path) != self._fault.file:
            return False
        self._left -= 1
        return self._left == 0

    def _fail(self, path: str) -> None:
        self._note.write_text(str(time.monotonic_ns()))
        if not self._silent:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenDiskRecipe(Recipe):
    fault: DiskFault
    note: Path
    silent: bool = False

    def disk(self) -> Disk:
        return BrokenDisk(self.fault, self.note, silent=self.silent)


class _DiskFaults(Kind):
    refusals_are_expected = True
    faults: tuple[tuple[str, int], ...]
    """Of which files, and up to which call."""
    call: str

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent

    def recipe(self, place: Path, random: Random) -> BrokenDiskRecipe:
        plain = self.plain_recipe(place)
        file, most = random.choice(self.faults)
        fault = DiskFault(self.call, file, random.randint(1, most))
        return BrokenDiskRecipe(
            data=plain.data, log=plain.log, fault=fault, note=place / "failed", silent=self._silent
        )

    async def strike(self, arena: Arena) -> None:
        recipe = arena.recipe
        assert isinstance(recipe, BrokenDiskRecipe)
        recipe.note.unlink(missing_ok=True)
        try:
            await arena.ensure_running()
        except StartFailed:
            if not recipe.note.exists():
                raise
            arena.recorder.fault(self.name)  # the very first calls failed
            return
        if await _appears(recipe.note):
            arena.recorder.add(Fault(int(recipe.note.read_text()), f"{self.name}: {recipe.fault}"))
            await self.afterwards(arena)
        await arena.kill()

    async def afterwards(self, arena: Arena) -> None:
        raise NotImplementedError

    def alarms(self, complaints: list[str]) -> list[str]:
        """A broker must say that its disk fails."""
        return [each for each in complaints if "Input/output error" not in each]


class SyncError(_DiskFaults):
    name = "sync-error"
    call = "sync"
    faults = (("journal", 50), ("segment", 8))

    async def afterwards(self, arena: Arena) -> None:
        await asyncio.sleep(_AFTERWARDS)

    def judge(self, history: History) -> list[str]:
        return [*super().judge(history), *_accepted_in_spite(history, f"{self.name}: sync of journal")]


class ShortWrite(_DiskFaults):
    name = "short-write"
    call = "write"
    faults = (("journal", 50), ("segment", 80))

    async def afterwards(self, arena: Arena) -> None:
        """The next writes are good, and count."""
        await arena.progress(10)


def _accepted_in_spite(history: History, fault: str) -> list[str]:
    """What was asked for after the journal's sync had failed, and was promised before the next start."""
    failed_at: int | None = None
    found = []
    for operation in sorted(history, key=_time):
        if isinstance(operation, Fault):
            failed_at = operation.at if operation.name == fault else None
        elif (
            isinstance(operation, Send | CommitOffset | End)
            and operation.outcome is Outcome.OK
            and failed_at is not None
            and operation.invoked > failed_at
        ):
            found.append(f"accepted after a failed sync: {operation}")
    return found


def _time(operation: object) -> int:
    completed: int | None = getattr(operation, "completed", None)
    return completed if completed is not None else getattr(operation, "at", 0)


async def _appears(path: Path) -> bool:
    """Whether another process makes the file within the time of a round."""
    deadline = time.monotonic() + _ROUND_SECONDS
    while not path.exists() or not path.read_text():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
