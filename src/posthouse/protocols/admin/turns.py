"""Long loops in handlers: they give other tasks the event loop every few milliseconds."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

_SECONDS: Final = 0.004
_LOOKS: Final = 16
"""Items between two looks at the clock."""


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one by one. Other tasks run in between, so what they change must not be iterated over."""
    since = perf_counter()
    for number, item in enumerate(items):
        yield item
        if number % _LOOKS == 0 and perf_counter() - since > _SECONDS:
            await asyncio.sleep(0)
            since = perf_counter()
