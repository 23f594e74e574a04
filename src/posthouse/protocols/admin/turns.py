"""Long loops that do not block the event loop: other work runs between their turns."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

_SECONDS = 0.004
"""Length of a turn. Half of it is left for what a single step may take."""
_STEPS = 16
"""Steps between two looks at the clock."""


async def in_turns(items: Iterable[T], steps: int = _STEPS) -> AsyncIterator[T]:
    """The items, with a pause where the loop over them has run for a turn. `items` must not change meanwhile.

    Fewer `steps` are for loops whose single step takes long.
    """
    began = perf_counter()
    for count, item in enumerate(items):
        yield item
        if count % steps == steps - 1 and perf_counter() - began > _SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()
