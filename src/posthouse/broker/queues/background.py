"""Background tasks of queues. Failures are logged with the name of the queue."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from posthouse.broker.queues.reading import QueueGone
from posthouse.model.errors import Unavailable

log = logging.getLogger(__name__)


class Background:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._subjects: dict[asyncio.Task[None], object] = {}

    def __len__(self) -> int:
        return len(self._subjects)

    def start(self, work: Coroutine[Any, Any, None], subject: object) -> asyncio.Task[None]:
        """`subject` names the queue, or another object that the work is for, in the log."""
        task = asyncio.create_task(work)
        self._subjects[task] = subject
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        subject = self._subjects.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Unavailable):
            log.warning("%s: paused, waiting for storage: %s", subject, error)
        elif error is not None and not isinstance(error, QueueGone):
            log.error("%s: failed", subject, exc_info=error)

    async def drained(self) -> None:
        """Return when the work that is under way now has ended."""
        await asyncio.gather(*self._subjects, return_exceptions=True)
