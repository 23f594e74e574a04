"""Holds deliveries of one subscription back, so that what is behind its consumers is never overrun.

The rate is a token bucket that holds a tenth of a second's worth of messages, at least one: in any time `t`
at most `burst + rate * t` messages are handed out. Every delivery takes a token, also one of a message that
was delivered before. The concurrency limits the messages that all consumers together hold.

The limiter counts no messages in flight: its user knows them. It does not poll: deliveries that were held
back for want of tokens are woken when there is one, those held back for want of places when one is `freed`.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.model.clock import Clock

_SOONEST_SECONDS: Final = 0.01
"""At high rates several tokens are waited for: a timer for each would cost more than its delivery."""
_NO_LIMIT: Final = 2**31
_ROUNDING: Final = 1e-9
"""Ten tenths of a token are one."""


class DeliveryLimiter:
    """Of one subscription. Owned by the event loop."""

    def __init__(self, limits: DeliveryLimits, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` is called when messages that were held back may be handed out."""
        self._clock = clock
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._held_since: float | None = None
        self._held_seconds = 0.0
        self.limits = limits
        self._since = clock.monotonic()
        self._tokens = self.limits.burst

    def change(self, limits: DeliveryLimits) -> None:
        """What was saved up stays, as far as the new burst allows."""
        self._refill()
        if self.limits.rate is None:
            self._tokens = _NO_LIMIT
        self.limits = limits
        self._tokens = min(self._tokens, self.limits.burst)
        self._cancel_timer()
        self.freed()

    def room(self, in_flight: int) -> int:
        """How many messages may be handed out now, if consumers hold `in_flight` of them."""
        concurrency, tokens = self.limits.concurrency, self.tokens
        return tokens if concurrency is None else min(tokens, max(concurrency - in_flight, 0))

    @property
    def tokens(self) -> int:
        """How many messages the rate alone allows."""
        if self.limits.rate is None:
            return _NO_LIMIT
        self._refill()
        return max(int(self._tokens + _ROUNDING), 0)

    def took(self, count: int) -> None:
        """Messages were handed out: not more than there was room for."""
        self._tokens -= count
        if self._held_since is not None:
            self._end_hold()

    def hold_back(self) -> None:
        """There are messages and consumers for them, and no room: `wake` follows."""
        now = self._clock.monotonic()
        if self._held_since is None:
            self._held_since = now
        rate = self.limits.rate
        if rate is not None and self._tokens < 1 and self._timer is None:
            seconds = max((1 - self._tokens) / rate, _SOONEST_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tokens_came)

    def freed(self) -> None:
        """A place is free."""
        if self._held_since is not None:
            self._end_hold()
            self._wake()

    @property
    def held_seconds(self) -> float:
        """How long messages have waited for room although there was a consumer for them."""
        if self._held_since is None:
            return self._held_seconds
        return self._held_seconds + self._clock.monotonic() - self._held_since

    def stop(self) -> None:
        self._cancel_timer()
        if self._held_since is not None:
            self._end_hold()

    def _refill(self) -> None:
        now = self._clock.monotonic()
        if self.limits.rate is not None:
            self._tokens = min(self.limits.burst, self._tokens + (now - self._since) * self.limits.rate)
        self._since = now

    def _tokens_came(self) -> None:
        self._timer = None
        self.freed()

    def _end_hold(self) -> None:
        assert self._held_since is not None
        self._held_seconds += self._clock.monotonic() - self._held_since
        self._held_since = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
