"""What the handlers of an application were called with."""

import asyncio
from typing import Any

SECONDS = 30


class Seen(list[Any]):
    """A test waits until there is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Condition()

    async def add(self, value: Any) -> None:
        async with self._changed:
            self.append(value)
            self._changed.notify_all()

    async def has(self, count: int) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self) >= count)

    async def includes(self, value: Any) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: value in self)
