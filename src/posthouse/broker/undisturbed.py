"""Work that is finished although its caller is cancelled: a client that disconnects must not interrupt it."""

import asyncio
import logging
from typing import TypeVar

from posthouse.model.errors import PosthouseError

log = logging.getLogger(__name__)

T = TypeVar("T")


async def undisturbed(work: asyncio.Future[T]) -> T:
    """The result of the work. If the caller is cancelled, no one is left to be told that it failed."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_left_alone)
        raise


def _left_alone(work: asyncio.Future[T]) -> None:
    """Takes note of the error: asyncio would report one that nobody has asked for, with a traceback."""
    error = None if work.cancelled() else work.exception()
    if error is not None and not isinstance(error, PosthouseError):
        log.error("work that was begun for a client failed", exc_info=error)
