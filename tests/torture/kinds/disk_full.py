"""A file system that becomes full, and has space again: errors meanwhile, nothing lost, and it goes on."""

import os
from pathlib import Path

from tests.torture.brokers import REFUSED_TO_START, Recipe, StartFailed, errors_in
from tests.torture.campaign import Arena, Kind
from tests.torture.mounts import LoopMount

_LEFT = 128 * 1024
"""What is left when the ballast is in."""
_KILLED_WHILE_FULL = 0.3


class DiskFull(Kind):
    name = "disk-full"
    refusals_are_expected = True
    has_to_refuse = True

    def __init__(self) -> None:
        self._mount: LoopMount | None = None
        self._ballast = Path()

    def open(self, place: Path) -> None:
        self._mount = LoopMount(place / "disk", mebibytes=48)
        self._mount.open()
        self._ballast = place / "disk" / "ballast"

    def close(self) -> None:
        if self._mount is not None:
            self._mount.close()

    def plain_recipe(self, place: Path) -> Recipe:
        return Recipe(data=place / "disk" / "data", log=place / "broker.log")

    async def strike(self, arena: Arena) -> None:
        await arena.ensure_running()
        await arena.some_progress()
        arena.recorder.fault(self.name)
        self._fill()
        try:
            if self.has_to_refuse:
                await arena.recorder.refusal()
            else:
                await arena.progress(200)
            if arena.random.random() < _KILLED_WHILE_FULL:
                await arena.kill()
                await self._start_while_full(arena)
        finally:
            self._ballast.unlink()
        arena.recorder.fault("space again")
        await arena.ensure_running()
        await arena.some_progress()
        if arena.random.random() < 0.5:
            await arena.kill()

    async def _start_while_full(self, arena: Arena) -> None:
        """It serves what there is, or says that it cannot start: SQLite calls a full disk by many names."""
        try:
            await arena.ensure_running()
        except StartFailed:
            reason = errors_in(arena.recipe.log)[-1:]
            if not reason or REFUSED_TO_START not in reason[0]:
                raise

    def _fill(self) -> None:
        state = os.statvfs(self._ballast.parent)
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - _LEFT)

    def alarms(self, complaints: list[str]) -> list[str]:
        expected = ("no space left", "No space left", REFUSED_TO_START)
        return [each for each in complaints if not any(part in each for part in expected)]
