"""The circuit breaker of an endpoint: one that is down gets no requests but for a probe now and then.

    closed ──several failures in a row──► open ──time is over──► half-open
       ▲                                    ▲                      │  │
       └──────────────── success ───────────┼──────────────────────┘  │
                                            └──────── failure ────────┘

In half-open one request is under way. Each failed probe doubles the time until the next one. A plain object:
callers pass the time.
"""

from random import Random
from typing import Final

from posthouse.broker.webhooks.state import CircuitState
from posthouse.webhooks.delays import Delays

FAILURES: Final = 5
"""In a row."""


class Circuit:
    def __init__(self, delays: Delays, random: Random) -> None:
        self._delays = delays
        self._random = random
        self._failures = 0
        self._openings = 0
        self.state = CircuitState.CLOSED
        self.until = 0.0
        """When an open one is tried again."""

    def wait(self, now: float) -> float | None:
        """How long no request may begin; None: until the probe that is under way has ended."""
        if self.state is CircuitState.HALF_OPEN:
            return None
        return max(self.until - now, 0.0) if self.state is CircuitState.OPEN else 0.0

    def begin(self, now: float) -> bool | None:
        """A request is to begin. None if it must not; otherwise whether it is a probe."""
        if self.wait(now) != 0.0:
            return None
        if self.state is CircuitState.CLOSED:
            return False
        self.state = CircuitState.HALF_OPEN
        return True

    def succeeded(self) -> None:
        self._failures = self._openings = 0
        self.state = CircuitState.CLOSED

    def failed(self, now: float, *, is_probe: bool) -> None:
        self._failures += 1
        if is_probe or (self.state is CircuitState.CLOSED and self._failures >= FAILURES):
            self._openings += 1
            self.state = CircuitState.OPEN
            self.until = now + self._delays.after(self._openings, self._random)

    def given_up(self) -> None:
        """The probe has ended without a result."""
        if self.state is CircuitState.HALF_OPEN:
            self.state = CircuitState.OPEN
