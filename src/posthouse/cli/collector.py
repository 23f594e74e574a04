"""Garbage collection with short pauses.

Python scans all objects whenever their number has grown by a quarter, and no client is served meanwhile: with
100,000 unacknowledged deliveries each scan takes a quarter of a second. This collector scans new objects
only. If even that takes long, surviving objects are frozen. All frozen objects are scanned again from time to
time, with a small share of the CPU time.
"""

import asyncio
import gc
import time
from collections.abc import Callable

_SECONDS = 0.1
_ENOUGH = 5
"""Python's own threshold: the number of young collections since the last full one."""
_NEVER = 2**30
LONG_SECONDS = 0.01
"""After a longer collection, survivors are frozen, so that the next one does not scan them again."""
SHARE = 0.002
"""Share of the time for scanning frozen objects."""
LEAST_SECONDS, MOST_SECONDS = 10.0, 300.0
"""Bounds of the interval between two such scans."""


class Collector:
    """The collector of the process. `spent` returns the CPU time of this thread."""

    def __init__(self, spent: Callable[[], float] = time.thread_time) -> None:
        self._spent = spent
        self._thresholds = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None
        self._all_seen_at = 0.0
        self._cost = 0.0
        """Estimated cost of scanning all frozen objects: the sum of their earlier scans. 0 without any."""
        self._was_busy = False
        """Whether anything was collected since."""

    def start(self) -> None:
        """Freeze all present objects: they are never scanned again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*self._thresholds[:2], _NEVER)
        gc.enable()
        self._all_seen_at = asyncio.get_running_loop().time()
        self._plan()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        gc.set_threshold(*self._thresholds)

    def _plan(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SECONDS, self._tick)

    def _tick(self) -> None:
        self.turn(asyncio.get_running_loop().time())
        self._plan()

    def turn(self, now: float) -> None:
        """Collect if it is due."""
        if (
            self._cost
            and self._was_busy
            and now - self._all_seen_at >= min(max(LEAST_SECONDS, self._cost / SHARE), MOST_SECONDS)
        ):
            gc.unfreeze()
            self._cost = self._collect()
            gc.freeze()
            self._all_seen_at = now
            self._was_busy = False
        elif gc.get_count()[2] >= _ENOUGH:
            took = self._collect()
            self._was_busy = True
            if took > LONG_SECONDS:
                gc.freeze()
                self._cost += took

    def _collect(self) -> float:
        begun = self._spent()
        gc.collect()
        return self._spent() - begun
