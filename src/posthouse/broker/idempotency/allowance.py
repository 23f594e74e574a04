"""How many idempotency keys may be remembered: each takes memory until it has expired.

What this broker has accepted is counted by the minute. What it found when it started counts as of then.
"""

from collections import deque
from typing import Final

from posthouse.model.clock import Clock
from posthouse.model.errors import TooManyKeys

_MINUTE_MS: Final = 60_000


class KeyAllowance:
    """Owned by the event loop."""

    def __init__(self, clock: Clock, *, most: int, expiry_ms: int) -> None:
        self._clock = clock
        self._most = most
        self._expiry_ms = expiry_ms
        self._minutes: deque[tuple[int, int]] = deque()
        """When a minute began, and the keys of it."""
        self._count = 0

    @property
    def count(self) -> int:
        self._forget_expired()
        return self._count

    @property
    def is_full(self) -> bool:
        return self.count >= self._most

    def check(self) -> None:
        """Raises TooManyKeys."""
        if self.is_full:
            raise TooManyKeys(
                f"{self._count} idempotency keys are remembered, and no more are taken; send the request "
                "without a key, or raise idempotency_keys_max, or lower producer_expiry_ms"
            )

    def add(self, keys: int = 1) -> None:
        now = self._clock.now_ms()
        if self._minutes and now - self._minutes[-1][0] < _MINUTE_MS:
            began, before = self._minutes.pop()
            self._minutes.append((began, before + keys))
        else:
            self._minutes.append((now, keys))
        self._count += keys

    def _forget_expired(self) -> None:
        before = self._clock.now_ms() - self._expiry_ms - _MINUTE_MS
        while self._minutes and self._minutes[0][0] < before:
            self._count -= self._minutes.popleft()[1]
