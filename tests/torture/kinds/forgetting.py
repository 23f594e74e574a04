"""Brokers that break their promises, for negative controls: every fault must show it."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from posthouse.model.clock import Clock
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.disk import Buffer, Disk, OsDisk
from tests.torture.brokers import Recipe
from tests.torture.kinds.disk_full import DiskFull
from tests.torture.kinds.failpoints import Failpoint, FailpointDisk, FailpointKill, FailpointRecipe
from tests.torture.kinds.killing import Kill

_HELD_BACK = 20


class EarlyDisk(OsDisk):
    """Keeps writes of the journal and its head to itself: the broker acknowledges before they are written."""

    def __init__(self) -> None:
        super().__init__()
        self._journals: set[int] = set()
        self._held: list[tuple[int, bytes, int]] = []

    def open(self, path: str, *, create: bool = False) -> int:
        handle = super().open(path, create=create)
        (self._journals.add if "/journal" in path else self._journals.discard)(handle)
        return handle

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        if handle not in self._journals:
            super().write(handle, buffers, position)
            return
        self._held.append((handle, b"".join(buffers), position))
        if len(self._held) > _HELD_BACK:
            first, data, at = self._held.pop(0)
            super().write(first, [data], at)

    def close(self, handle: int) -> None:
        for each, data, at in self._held:
            if each == handle:
                super().write(each, [data], at)
        self._held = [each for each in self._held if each[0] != handle]
        super().close(handle)


class EarlyFailpointDisk(FailpointDisk, EarlyDisk):
    """The same, killed by its own hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRecipe(Recipe):
    def disk(self) -> Disk:
        return EarlyDisk()


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyFailpointRecipe(FailpointRecipe):
    def storage(self, clock: Clock) -> FileStorage:
        return self.plain_storage(clock, EarlyFailpointDisk(Failpoint.parse(self.failpoint)))


class EarlyKill(Kill):
    def recipe(self, place: Path, random: Random) -> Recipe:
        return EarlyRecipe(data=place / "data", log=place / "broker.log")


class EarlyFailpointKill(FailpointKill):
    def recipe(self, place: Path, random: Random) -> FailpointRecipe:
        failpoint = Failpoint("journal-write", "before", random.randint(20, 60))
        return EarlyFailpointRecipe(data=place / "data", log=place / "broker.log", failpoint=str(failpoint))


class SilentlyFullDisk(OsDisk):
    """A write for which there is no space is dropped without a word."""

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        try:
            super().write(handle, buffers, position)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def allocate(self, handle: int, size: int) -> None:
        self.truncate(handle, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentlyFullRecipe(Recipe):
    def disk(self) -> Disk:
        return SilentlyFullDisk()


class SilentlyFull(DiskFull):
    has_to_refuse = False

    def plain_recipe(self, place: Path) -> Recipe:
        plain = super().plain_recipe(place)
        return SilentlyFullRecipe(data=plain.data, log=plain.log)
