"""SIGSTOP: a broker that stands still and goes on, while its clients wait, or hang up and come back."""

import asyncio
from pathlib import Path

from tests.torture.brokers import Recipe
from tests.torture.campaign import Arena, Kind

SESSION_MS = 1000
_PAUSES = (0.1, 0.3, 0.3, 1.5)
"""The longest outlasts the sessions of group members."""


class Pause(Kind):
    name = "pause"

    def __init__(self, *, hang_up: float = 0.4) -> None:
        self._hang_up = hang_up
        """How often clients lose their patience."""

    def plain_recipe(self, place: Path) -> Recipe:
        return Recipe(data=place / "data", log=place / "broker.log", session_ms=SESSION_MS)

    async def strike(self, arena: Arena) -> None:
        broker = await arena.ensure_running()
        await arena.some_progress()
        arena.recorder.fault(self.name)
        broker.pause()
        try:
            await asyncio.sleep(arena.random.choice(_PAUSES))
            if arena.random.random() < self._hang_up:
                # What they had sent is still read by the broker, before what they send again.
                await arena.stop_clients()
        finally:
            broker.resume()
        await arena.ensure_running()
        await arena.some_progress()
        if arena.random.random() < 0.2:
            await arena.kill()
