"""How long the event loop is busy in one turn, as on a quiet machine (`tests/yardstick.py`)."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import TypeVar

from tests.yardstick import slowness

T = TypeVar("T")

MOST_SECONDS = 0.020
"""That the event loop may be busy at once."""


async def shortest_of_longest_turns(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """The best of some runs: work of the broker's own may fall into one of them."""
    runs = [await longest_turn(work()) for _ in range(3)]
    return min(seconds for seconds, _ in runs), runs[-1][1]


async def longest_turn(work: Awaitable[T]) -> tuple[float, T]:
    """Seconds of processor time, as on a quiet machine; and what the work returned.

    What is in memory before is not looked at by the garbage collector: the broker's own settings see to that.
    """
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = thread_time()
            await asyncio.sleep(0)
            longest = max(longest, thread_time() - before)

    gc.collect()
    gc.freeze()
    watching = asyncio.create_task(watch())
    try:
        result = await work
    finally:
        watching.cancel()
        gc.unfreeze()
    return longest / slowness(), result
