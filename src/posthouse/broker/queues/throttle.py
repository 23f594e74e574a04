"""The limits of a queue on the deliveries to all of its consumers together."""

from typing import Protocol

from posthouse.broker.funnel.limiter import DeliveryLimiter
from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.model.clock import Clock


class ThrottleOwner(Protocol):
    """What the throttle needs of the dispatcher."""

    @property
    def in_flight(self) -> int:
        """Messages that are handed out and not settled, of all consumers together."""

    @property
    def ready(self) -> int:
        """Messages that wait."""

    def room_came(self) -> None:
        """Messages that were held back may be delivered."""


class Throttle:
    """Of one queue that has limits."""

    def __init__(self, owner: ThrottleOwner, limits: DeliveryLimits, clock: Clock) -> None:
        self._owner = owner
        self.limiter = DeliveryLimiter(limits, clock, owner.room_came)

    @property
    def room(self) -> int:
        """How many messages may be handed out now."""
        return self.limiter.room(self._owner.in_flight)

    def admit(self, most: int) -> int:
        """How many of `most` messages, which clients would take, may be handed out now. If it is none, the
        owner is told when there is room."""
        room = self.room
        if room < 1 <= most and self._owner.ready > 0:
            self.limiter.hold_back()
        return min(most, room)


def throttle_with(
    limits: DeliveryLimits, before: Throttle | None, owner: ThrottleOwner, clock: Clock
) -> Throttle | None:
    """The throttle of a queue whose limits have changed; None if it has none now."""
    if before is None:
        return None if limits.is_empty else Throttle(owner, limits, clock)
    if limits.is_empty:
        before.limiter.stop()
        return None
    before.limiter.change(limits)
    return before
