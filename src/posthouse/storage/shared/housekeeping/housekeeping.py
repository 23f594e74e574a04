"""Background work on the shared storage, one part after the other.

Retention and compaction are not here: the broker calls them, because they ask it what is still needed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from posthouse.model.clock import Clock
from posthouse.model.errors import Unavailable
from posthouse.storage.shared.database import LeaseLost

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HousekeepingPart:
    name: str
    """What it does, for log lines."""
    run_once: Callable[[], Awaitable[None]]
    seconds: float
    """From the end of one turn to the next."""


class Housekeeping:
    def __init__(
        self, parts: Sequence[HousekeepingPart], clock: Clock, on_lease_lost: Callable[[LeaseLost], None]
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._on_lease_lost = on_lease_lost
        self._due = {part.name: clock.monotonic() + part.seconds for part in parts}
        self._failing: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="shared storage housekeeping")

    async def stop(self) -> None:
        """A step that is under way is cut off: the next broker does it again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        try:
            while True:
                await self.run_due()
                await asyncio.sleep(max(min(self._due.values()) - self._clock.monotonic(), 0.1))
        except LeaseLost as error:
            self._on_lease_lost(error)

    async def run_due(self) -> None:
        """Run the parts that are due. Raises LeaseLost; other failures are logged and tried again."""
        for part in self._parts:
            if self._due[part.name] <= self._clock.monotonic():
                try:
                    await self._run_part(part)
                finally:
                    self._due[part.name] = self._clock.monotonic() + part.seconds

    async def _run_part(self, part: HousekeepingPart) -> None:
        try:
            await part.run_once()
        except LeaseLost:
            raise
        except Unavailable as error:
            if part.name not in self._failing:  # one line for an outage, however long it is
                log.warning("%s: not possible now, retrying every %s s: %s", part.name, part.seconds, error)
            self._failing.add(part.name)
        except Exception:
            log.exception("%s: failed, retrying in %s s", part.name, part.seconds)
        else:
            if part.name in self._failing:
                self._failing.remove(part.name)
                log.info("%s: possible again", part.name)
