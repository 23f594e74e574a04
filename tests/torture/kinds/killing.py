"""kill -9 at any moment: what was promised is in the page cache, and must be found again."""

from tests.torture.campaign import Arena, Kind


class Kill(Kind):
    name = "kill"

    async def strike(self, arena: Arena) -> None:
        await arena.ensure_running()
        await arena.some_progress()
        await arena.kill()
