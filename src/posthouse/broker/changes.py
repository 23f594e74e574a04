"""Serialized changes of state in memory and storage: one at a time, each completed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from posthouse.broker.undisturbed import undisturbed

T = TypeVar("T")


class SerializedChanges:
    """Shields changes from cancellation: a cancelled caller must not leave a change that only storage has."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @property
    def is_changing(self) -> bool:
        """Whether a change has begun and is not completed."""
        return self._turn.locked()

    async def make(self, change: Coroutine[Any, Any, T]) -> T:
        return await undisturbed(asyncio.create_task(self._in_turn(change)))

    async def _in_turn(self, change: Coroutine[Any, Any, T]) -> T:
        async with self._turn:
            return await change
