"""Calls that would all do the same, done once for all that wait."""

import asyncio
from collections.abc import Awaitable, Callable

from posthouse.model.errors import StorageClosed


class JoinedCalls:
    """A call that comes while the work is being done may have come too late for it, so it waits for the next
    time: the work is done for a call after the call."""

    def __init__(self, work: Callable[[], Awaitable[None]], *, pause_seconds: float = 0.0) -> None:
        """The work begins at most every `pause_seconds`."""
        self._work = work
        self._pause_seconds = pause_seconds
        self._began = float("-inf")
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def call(self) -> None:
        """Raises what the work raises, and StorageClosed if it was closed meanwhile."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run(self._running))
            self._next.add_done_callback(_taken_note_of)
        work = self._next
        try:
            # A caller that is cancelled leaves the work to the others.
            await asyncio.shield(work)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if work.cancelled() and caller is not None and not caller.cancelling():
                raise StorageClosed("the storage is closed") from None
            raise

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        loop = asyncio.get_running_loop()
        if before is not None:
            await asyncio.wait([before])
        pause = self._began + self._pause_seconds - loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        self._began = loop.time()
        self._running, self._next = self._next, None
        try:
            await self._work()
        finally:
            self._running = None

    async def close(self) -> None:
        """Callers that wait get StorageClosed."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running = self._next = None  # a task that had not begun does not do it


def _taken_note_of(task: asyncio.Task[None]) -> None:
    """The callers have the error, if there are any left."""
    if not task.cancelled():
        task.exception()
