"""One timer per group, for its next deadline."""

import asyncio
import math
from collections.abc import Callable

from posthouse.model.clock import Clock
from posthouse.model.ids import GroupId


class Alarms:
    """An alarm may ring too early: when a deadline moves back, the timer stays as it is."""

    def __init__(self, clock: Clock, ring: Callable[[GroupId], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._planned: dict[GroupId, tuple[float, asyncio.TimerHandle]] = {}

    def plan(self, group: GroupId, at: float) -> None:
        planned = self._planned.get(group)
        if math.isinf(at) or (planned is not None and planned[0] <= at):
            return
        if planned is not None:
            planned[1].cancel()
        seconds = max(0.0, at - self._clock.monotonic())
        handle = asyncio.get_running_loop().call_later(seconds, self._due, group)
        self._planned[group] = (at, handle)

    def drop(self, group: GroupId) -> None:
        planned = self._planned.pop(group, None)
        if planned is not None:
            planned[1].cancel()

    def close(self) -> None:
        for group in list(self._planned):
            self.drop(group)

    def _due(self, group: GroupId) -> None:
        del self._planned[group]
        self._ring(group)
