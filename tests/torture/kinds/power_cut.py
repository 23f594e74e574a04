"""Power cuts on a real file system: what was not synced is gone, and so is half of what was being written.

Only what clients were told before the cut counts: they are made deaf first. A sync that is under way at that
moment may still return, with its data lost.
"""

from pathlib import Path

from tests.torture.brokers import Recipe
from tests.torture.campaign import Arena, Kind
from tests.torture.mounts import LoopMount


class PowerCut(Kind):
    name = "power-cut"

    def __init__(self) -> None:
        self._mount: LoopMount | None = None

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
        self._mount.cut_power()
        broker.kill()
        await arena.stop_clients()
        self._mount.unmount()
        self._mount.mount()

    def close(self) -> None:
        if self._mount is not None:
            self._mount.close()

    def alarms(self, complaints: list[str]) -> list[str]:
        """A broker whose disk goes away may say so in the instant before it is killed."""
        return [each for each in complaints if "Input/output error" not in each]
