"""Garbage in reference cycles, collected without keeping clients waiting for long.

Python looks through all objects whenever there are a quarter more of them, and nobody is served meanwhile:
with some 100,000 messages that are delivered and not acknowledged, for a quarter of a second each time. Here
only what is new is looked through. Where even that takes long, what has survived is put aside; all of it is
looked through again after a while, for a small share of the time.
"""

import asyncio
import gc
import time
from collections.abc import Callable

_SECONDS = 0.1
_ENOUGH = 5
"""Python's own measure: so many times the young objects were looked through since the last collection."""
_NEVER = 2**30
LONG_SECONDS = 0.01
"""A collection that took longer would keep others waiting if all it went through was gone through again."""
SHARE = 0.002
"""Of the time, for going through all that was put aside."""
LEAST_SECONDS, MOST_SECONDS = 10.0, 300.0
"""Between doing that and doing it again."""


class Collector:
    """Of the whole process. `spent` tells the CPU time of this thread."""

    def __init__(self, spent: Callable[[], float] = time.thread_time) -> None:
        self._spent = spent
        self._thresholds = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None
        self._all_seen_at = 0.0
        self._cost = 0.0
        """Of going through all that was put aside: the sum of what it took before. 0 if there is none."""
        self._was_busy = False
        """Whether anything was collected since."""

    def start(self) -> None:
        """What there is now stays: nobody looks at it again."""
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
        """Collect what is due."""
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
