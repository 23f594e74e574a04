"""Detection of late requests of a producer.

If a producer keeps its epoch over several transactions, a request of an earlier transaction looks like one of
the present. Protocols know more: the connection of a request, and its position there. They tell which of two
requests was sent first.
"""

from enum import Enum
from typing import Protocol, Self


class Arrival(Enum):
    """The order of a request relative to earlier ones."""

    IN_ORDER = "over the same connection, or the first"
    SUCCEEDS = "over a younger connection"
    LATE = "sent before what has been seen"


class RequestOrigin(Protocol):
    """The origin of a request. All requests of one transactional id use one protocol."""

    @property
    def is_open(self) -> bool:
        """Whether the connection of the request may still carry others."""

    @property
    def way(self) -> object:
        """Hashable: requests that came by different ways have no order, as those that a client has sent to
        different brokers."""

    def arrival_after(self, earlier: Self) -> Arrival: ...


class RequestOrder:
    """The requests of a producer about one subject, as far as they have been seen."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: RequestOrigin | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client may still send on the connection that it used last."""
        return self._latest is not None and self._latest.is_open

    def is_of(self, way: object) -> bool:
        """Whether all requests were sent this way."""
        return self._latest is None or self._latest.way == way

    def judge(self, origin: RequestOrigin) -> Arrival:
        return Arrival.IN_ORDER if self._latest is None else origin.arrival_after(self._latest)

    def follow(self, origin: RequestOrigin) -> None:
        self._latest = origin
