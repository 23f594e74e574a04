"""Named moments in the life of a broker at which it is killed by its own hand.

A failpoint is a place, before or after it, and how often it is passed until then. Places are calls of the
disk by the kind of file, and the transactions of the catalog.
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from posthouse.model.clock import Clock
from posthouse.storage.files.catalog.catalog import Catalog
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.disk import Buffer, OsDisk
from tests.torture.brokers import Recipe, StartFailed
from tests.torture.campaign import Arena, Kind

# How often each is passed in a usual round, at least.
PLACES = {
    "journal-write": 40,
    "journal-sync": 40,
    "journal-open": 3,
    "journal-rename": 3,
    "journal-release": 2,
    "segment-write": 60,
    "segment-create": 4,
    "segment-sync": 6,
    "index-write": 2,
    "directory-sync": 4,
    "catalog-commit": 4,
    "backup-commit": 3,
}
WHEN = ("before", "half", "after")
"""Half is for writes alone: part of the bytes are there."""
_HALVES = {"journal-write", "segment-write", "index-write"}
_ROUND_SECONDS = 3.0


@dataclass(slots=True)
class Failpoint:
    place: str
    when: str
    count: int

    def __str__(self) -> str:
        return f"{self.place}:{self.when}:{self.count}"

    @classmethod
    def parse(cls, text: str) -> "Failpoint":
        place, when, count = text.split(":")
        return cls(place, when, int(count))

    @classmethod
    def draw(cls, random: Random) -> "Failpoint":
        place = random.choice(list(PLACES))
        when = random.choice(WHEN if place in _HALVES else ("before", "after"))
        return cls(place, when, random.randint(1, PLACES[place]))

    def passed(self, place: str, when: str) -> bool:
        """Whether this is the moment."""
        if place != self.place or when != self.when:
            return False
        self.count -= 1
        return self.count == 0

    def pass_by(self, place: str, when: str) -> None:
        if self.passed(place, when):
            os.kill(os.getpid(), signal.SIGKILL)


class FailpointDisk(OsDisk):
    def __init__(self, failpoint: Failpoint) -> None:
        super().__init__()
        self._failpoint = failpoint
        self._kinds: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        kind = kind_of(path)
        fresh = create and self.size(path) < 0
        if fresh:
            self._failpoint.pass_by(f"{kind}-create", "before")
        handle = super().open(path, create=create)
        self._kinds[handle] = kind
        if fresh:
            self._failpoint.pass_by(f"{kind}-create", "after")
        return handle

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        place = f"{self._kinds[handle]}-write"
        self._failpoint.pass_by(place, "before")
        if self._failpoint.passed(place, "half"):
            data = b"".join(buffers)
            super().write(handle, [data[: len(data) // 2]], position)
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(handle, buffers, position)
        self._failpoint.pass_by(place, "after")

    def sync(self, handle: int) -> None:
        place = f"{self._kinds[handle]}-sync"
        self._failpoint.pass_by(place, "before")
        super().sync(handle)
        self._failpoint.pass_by(place, "after")

    def sync_directory(self, path: str) -> None:
        self._failpoint.pass_by("directory-sync", "before")
        super().sync_directory(path)
        self._failpoint.pass_by("directory-sync", "after")

    def allocate(self, handle: int, size: int) -> None:
        self._failpoint.pass_by("journal-open", "before")
        super().allocate(handle, size)
        self._failpoint.pass_by("journal-open", "after")

    def rename(self, old: str, new: str) -> None:
        """A new journal file gets its name, or an old one becomes the spare."""
        place = "journal-release" if new.endswith("spare") else "journal-rename"
        self._failpoint.pass_by(place, "before")
        super().rename(old, new)
        self._failpoint.pass_by(place, "after")


def kind_of(path: str) -> str:
    if path.endswith(".log"):
        return "segment"
    return "index" if path.endswith(".index") else "journal"


def guard(catalog: Catalog, failpoint: Failpoint) -> None:
    """Die around the transactions of the catalog, and before and behind those that its backup repeats."""
    commit, update_backup = catalog._try, catalog.update_backup

    def guarded_commit(write: Any) -> None:
        failpoint.pass_by("catalog-commit", "before")
        commit(write)
        failpoint.pass_by("catalog-commit", "after")

    def guarded_update() -> None:
        if catalog._missed or catalog._is_behind:
            failpoint.pass_by("backup-commit", "before")
            update_backup()
            failpoint.pass_by("backup-commit", "after")

    catalog._try = guarded_commit  # type: ignore[method-assign]
    catalog.update_backup = guarded_update  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailpointRecipe(Recipe):
    failpoint: str

    def storage(self, clock: Clock) -> FileStorage:
        failpoint = Failpoint.parse(self.failpoint)
        storage = self.plain_storage(clock, FailpointDisk(failpoint))
        guard(storage._catalog, failpoint)
        return storage


class FailpointKill(Kind):
    name = "failpoint"

    def recipe(self, place: Path, random: Random) -> FailpointRecipe:
        plain = self.plain_recipe(place)
        return FailpointRecipe(data=plain.data, log=plain.log, failpoint=str(Failpoint.draw(random)))

    async def strike(self, arena: Arena) -> None:
        recipe = arena.recipe
        assert isinstance(recipe, FailpointRecipe)
        place, when, _ = recipe.failpoint.split(":")
        fault = f"{place}:{when}"
        try:
            broker = await arena.ensure_running()
        except StartFailed:
            arena.recorder.fault(fault)  # it was passed while the broker was starting
            return
        if await broker.ended(_ROUND_SECONDS):
            arena.recorder.fault(fault)
            await arena.stop_clients()
        else:
            await arena.kill()
