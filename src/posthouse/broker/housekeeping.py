"""Work that comes round: letting go of what retention no longer keeps."""

import asyncio
import logging

from posthouse.model.errors import Unavailable
from posthouse.storage.interface import Storage

log = logging.getLogger(__name__)


class Housekeeping:
    def __init__(self, storage: Storage, seconds: float) -> None:
        self._storage = storage
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
            try:
                await self._storage.enforce_retention()
            except Unavailable as error:
                log.warning("retention has to wait: %s", error)
            except Exception:
                log.exception("retention failed; it is tried again in %s s", self._seconds)
