"""The limiters of groups that have limits, and the fetches of their members that wait for room.

First come, first served: a fetch that comes later does not get the place that an earlier one waits for, not
even if it is the fetch of the member that has just freed the place.
"""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from posthouse.broker.funnel.limiter import DeliveryLimiter
from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.model.clock import Clock
from posthouse.model.ids import GroupId

LimitsOf: TypeAlias = Callable[[GroupId], DeliveryLimits]
"""Called each time: limits change while a group is in use."""


class _Turn:
    """The place of one fetch in the line."""

    __slots__ = ("number", "woken")

    def __init__(self, number: int) -> None:
        self.number = number
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __lt__(self, other: "_Turn") -> bool:
        return self.number < other.number


class GroupLimiter:
    """Of one group that has limits. Owned by the event loop."""

    def __init__(self, limits: DeliveryLimits, clock: Clock) -> None:
        self.limiter = DeliveryLimiter(limits, clock, self.wake)
        self._line: list[_Turn] = []

    def share(self, in_flight: int) -> int:
        """How many records one fetch may take now: those that wait behind it get some, too."""
        room = self.limiter.room(in_flight)
        return -(-room // (1 + len(self._line)))

    def must_wait(self, ticket: int, in_flight: int) -> bool:
        """Whether there is no room for the fetch with this ticket, or an earlier one waits."""
        if self._line and self._line[0].number < ticket:
            return True
        return self.limiter.room(in_flight) < 1

    def reserve(self, ticket: int, most: int) -> int:
        """Tokens for up to `most` records; 0 where the reader must `wait`."""
        if self._line and self._line[0].number < ticket:
            return 0
        count = min(most, -(-self.limiter.tokens // (1 + len(self._line))))
        self.limiter.took(count)
        if count and self._line:
            # The reader may wait long before it reads, and then give tokens back.
            self.limiter.hold_back()
            if self.limiter.tokens:
                self.wake()
        return count

    async def wait(self, ticket: int, seconds: float) -> None:
        """Return when there may be room, or the time is over."""
        turn = _Turn(ticket)
        insort(self._line, turn)
        self.limiter.hold_back()
        try:
            await asyncio.wait((turn.woken,), timeout=seconds)
        finally:
            self._line.remove(turn)

    def wake(self) -> None:
        """There may be room for the first in the line."""
        for turn in self._line:
            if not turn.woken.done():
                turn.woken.set_result(None)
                return

    def wake_all(self) -> None:
        """They look again: the group is not served any more, or has no limits."""
        for turn in self._line:
            if not turn.woken.done():
                turn.woken.set_result(None)

    def stop(self) -> None:
        self.limiter.stop()
        self.wake_all()


class Reservation:
    """Of one reader that holds no leases."""

    __slots__ = ("tokens", "used")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.used = 0
        """The reader says how many of them it needed."""


class GroupLimiters:
    """Owned by the event loop."""

    def __init__(self, limits_of: LimitsOf, clock: Clock) -> None:
        self._limits_of = limits_of
        self._clock = clock
        self._limiters: dict[GroupId, GroupLimiter] = {}
        self._tickets = 0
        self._is_closed = False

    def ticket(self) -> int:
        """Of a new fetch: its place in the order of all."""
        self._tickets += 1
        return self._tickets

    def of(self, group: GroupId) -> GroupLimiter | None:
        """None where the group has no limits."""
        limits = self._limits_of(group)
        known = self._limiters.get(group)
        if limits.is_empty:
            if known is not None:
                del self._limiters[group]
                known.stop()
            return None
        if known is None:
            known = self._limiters[group] = GroupLimiter(limits, self._clock)
        elif known.limiter.limits != limits:
            known.limiter.change(limits)
            known.wake()
        return known

    def find(self, group: GroupId) -> GroupLimiter | None:
        """The one that is in use, with limits that may have changed."""
        return self._limiters.get(group)

    # Readers that hold no leases

    @asynccontextmanager
    async def reserved(
        self, group: GroupId, ticket: int, most: int, deadline: float
    ) -> AsyncIterator[Reservation]:
        """Tokens for up to `most` records that are about to be read, none if there are none before the
        deadline. Only the rate counts for readers that hold no leases."""
        reservation = Reservation(await self._reserve(group, ticket, most, deadline))
        try:
            yield reservation
        finally:
            if (known := self._limiters.get(group)) is not None:
                known.limiter.took(reservation.used - reservation.tokens)
                known.wake()

    async def _reserve(self, group: GroupId, ticket: int, most: int, deadline: float) -> int:
        while (limiter := self.of(group)) is not None:
            if tokens := limiter.reserve(ticket, most):
                return tokens
            left = deadline - self._clock.monotonic()
            if left <= 0 or self._is_closed:
                return 0
            await limiter.wait(ticket, left)
        return most

    # Changes

    def changed(self) -> None:
        """Limits of groups have changed: fetches that wait for room look again."""
        for group in list(self._limiters):
            self.of(group)

    def close(self) -> None:
        """Nobody waits any more."""
        self._is_closed = True
        for known in self._limiters.values():
            known.wake_all()

    def forget(self, group: GroupId) -> None:
        """The group is deleted, or served by another broker."""
        if (known := self._limiters.pop(group, None)) is not None:
            known.stop()
