"""Changes of what is kept in memory and in storage: one after the other, and each to its end."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SerializedChanges:
    """A caller that is cancelled in the middle must not leave a change behind that only storage knows of."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def make(self, change: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(asyncio.create_task(self._in_turn(change)))

    async def _in_turn(self, change: Coroutine[Any, Any, T]) -> T:
        async with self._turn:
            return await change
