"""Power cuts on a real file system: what was not synced is gone, and so is half of what was being written.

Only what clients were told before the cut counts: they are made deaf first. A sync that is under way at that
moment may still return, with its data lost.
"""

from collections import Counter
from pathlib import Path

from tests.torture.brokers import Recipe, errors_in
from tests.torture.campaign import Arena, Kind
from tests.torture.mounts import LoopMount


class PowerCut(Kind):
    name = "power-cut"

    def __init__(self) -> None:
        self._mount: LoopMount | None = None
        self._last_words: list[str] = []
        """What brokers complained of between the cut and their death."""

    def open(self, place: Path) -> None:
        self._mount = LoopMount(place / "disk")
        self._mount.open()

    def plain_recipe(self, place: Path) -> Recipe:
        return Recipe(data=place / "disk" / "data", log=place / "broker.log")

    async def strike(self, arena: Arena) -> None:
        assert self._mount is not None
        broker = await arena.ensure_running()
        await arena.some_progress()
        arena.silence()
        arena.recorder.fault(self.name)
        before = len(errors_in(arena.recipe.log))
        self._mount.cut_power()
        broker.kill()
        self._last_words += errors_in(arena.recipe.log)[before:]
        await arena.stop_clients()
        self._mount.restore_power()

    def close(self) -> None:
        if self._mount is not None:
            self._mount.close()

    def alarms(self, complaints: list[str]) -> list[str]:
        """A broker whose disk goes away may say so, or that a file is damaged: SQLite calls it that at times,
        though the file is whole after the next mount. Whatever is said at other times counts."""
        left = Counter(complaints)
        left.subtract(self._last_words)
        return list(left.elements())
