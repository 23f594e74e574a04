"""Long loops that do not block the event loop: other work runs between their turns."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

_SECONDS = 0.004
"""Length of a turn: a fifth of the 20 ms that the event loop may be busy. A single step may take long."""
_STEPS = 16
"""Steps between two looks at the clock."""


class Turns:
    """Leaves the event loop to others from time to time."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def next(self) -> None:
        """To be called after every small piece of work. Returns at once while the turn lasts."""
        if perf_counter() - self._began > _SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()


async def in_turns(items: Iterable[T], steps: int = _STEPS) -> AsyncIterator[T]:
    """The items, with a pause where the loop over them has run for a turn. `items` must not change meanwhile.

    Fewer `steps` are for loops whose single step takes long.
    """
    turns = Turns()
    for count, item in enumerate(items):
        yield item
        if count % steps == steps - 1:
            await turns.next()
