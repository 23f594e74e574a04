"""Queues on a storage that takes its time, and can be full for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.model.clock import ManualClock, SystemClock
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.rig import Rig, running


@asynccontextmanager
async def lazy(clock: ManualClock | None = None, **options: Any) -> AsyncIterator[tuple[Rig, LazyStorage]]:
    storage = LazyStorage(clock or SystemClock(), **options)
    async with running(storage=storage, clock=clock) as rig:
        yield rig, storage
        storage.is_full = storage.is_fenced = False


async def until(true: Any, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


async def get(queue: Queue) -> Message:
    async with asyncio.timeout(30):
        message = await queue.get()
    assert message is not None
    return message


async def dead_letter_queue(rig: Rig, **options: Any) -> Queue:
    await rig.exchange("dead")
    dead = await rig.queue("dead-letters", **options)
    await rig.bind("dead", "dead-letters")
    return dead
