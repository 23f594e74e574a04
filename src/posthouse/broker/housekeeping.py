"""Periodic work, such as retention and the expiry of groups."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from posthouse.model.errors import Unavailable

log = logging.getLogger(__name__)

Chore = Callable[[], Awaitable[None]]


class Housekeeping:
    def __init__(self, chores: Sequence[Chore], seconds: float) -> None:
        self._chores = chores
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="housekeeping")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            for chore in self._chores:
                await self._done(chore)

    async def _done(self, chore: Chore) -> None:
        try:
            await chore()
        except Unavailable as error:
            log.warning("%s: not possible now, retrying in %s s: %s", _name(chore), self._seconds, error)
        except Exception:
            log.exception("%s: failed, retrying in %s s", _name(chore), self._seconds)


def _name(chore: Chore) -> str:
    """For log lines: 'Retention.enforce'."""
    return getattr(chore, "__qualname__", repr(chore))
