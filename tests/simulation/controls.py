"""Negative controls: brokers and disks that break a promise, which the checker must notice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posthouse.broker.groups.committing import GroupOffsets
from posthouse.model.topic_config import Durability
from posthouse.storage.files.engine import FileStorage
from tests.simulation.disk import Disk
from tests.simulation.faults import KINDS
from tests.simulation.machine import Machine


@dataclass(frozen=True, slots=True)
class Control:
    prepare: Callable[[Machine], None]
    kinds: Sequence[str] = KINDS
    """Of faults: those that can bring it to light."""


class ForgettingDisk(Disk):
    """Says that it has synced, and has not."""

    def sync(self, handle: int) -> None:
        self._note("sync", self._handles[handle][1])


class SilentDisk(Disk):
    """Tells nobody that a sync failed, as a broker that ignores the error."""

    def sync(self, handle: int) -> None:
        try:
            super().sync(handle)
        except OSError:
            self._world.note("nobody hears of it")


class HastyStorage(FileStorage):
    """Acknowledges before the sync."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        write = self._journal.write
        self._journal.write = lambda operations, size, *, sync: write(operations, size, sync=False)  # type: ignore[method-assign]


class OpenDoor(GroupOffsets):
    """Takes offsets from anybody, also from members whose time is over."""

    def check_member(self, *args: Any, **options: Any) -> None:
        """Nobody is asked."""


def _nothing(machine: Machine) -> None:
    """The broker as it is."""


def _forgetting(machine: Machine) -> None:
    machine.disk = ForgettingDisk(machine.world)


def _silent(machine: Machine) -> None:
    machine.disk = SilentDisk(machine.world)


def _hasty(machine: Machine) -> None:
    machine.make_storage = HastyStorage


def _no_sync(machine: Machine) -> None:
    machine.durability = Durability.OS


def _open_door(machine: Machine) -> None:
    machine.make_offsets = OpenDoor


NONE = Control(_nothing)
CONTROLS = {
    "none": NONE,
    "forgetting-disk": Control(_forgetting),
    "ignored-sync-error": Control(_silent, ("sync error",)),
    "hasty-acknowledgement": Control(_hasty),
    "durability-os": Control(_no_sync),
    "open-door": Control(_open_door),
}
