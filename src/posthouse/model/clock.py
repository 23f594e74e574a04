"""Clocks. Time is passed in, so that tests can stop it, move it, and make it jump."""

import time
from typing import Protocol

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, for timestamps of records."""

    def monotonic(self) -> float:
        """Monotonic seconds, for deadlines."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class WakingClock(SystemClock):
    """Its monotonic time goes on while the machine sleeps, where the system has such a clock."""

    def monotonic(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)
        self._monotonic += seconds

    def jump(self, ms: int) -> None:
        """Move the wall clock only, as an operator or NTP would."""
        self._now_ms += ms
