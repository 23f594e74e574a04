"""A token bucket: what a rate limit grants, and how long a client that has taken more waits."""

MAX_DELAY = 30.0
"""Maximum throttle time in seconds: clients that wait longer time out and reconnect."""
_SECONDS_HELD = 1.0


class TokenBucket:
    __slots__ = ("_level", "_since", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._level = rate * _SECONDS_HELD
        self._since = now

    def take(self, amount: float, now: float) -> float:
        """Take the amount; returns the throttle time in seconds."""
        most = self.rate * _SECONDS_HELD
        level = min(most, self._level + (now - self._since) * self.rate) - amount
        self._since = now
        # The debt is limited, so that a single large request does not throttle a client for hours.
        self._level = max(level, -self.rate * MAX_DELAY)
        return 0.0 if level >= 0 else min(-level / self.rate, MAX_DELAY)
