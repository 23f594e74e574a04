"""Which requests of a producer come too late.

Producers that keep their epoch over several transactions give the broker nothing to tell a request of an
earlier transaction from one of the present. Protocols know more: the connection of a request, and its place
there. They say of two requests which was sent first.
"""

from enum import Enum
from typing import Protocol, Self


class Arrival(Enum):
    """How a request stands to those before it."""

    IN_ORDER = "over the same connection, or the first"
    SUCCEEDS = "over a younger connection"
    LATE = "sent before what has been seen"


class RequestOrigin(Protocol):
    """Where a request came from. All requests of one transactional id come by one protocol."""

    @property
    def is_open(self) -> bool:
        """Whether the connection of the request may still bring others."""

    def arrival_after(self, earlier: Self) -> Arrival: ...


class RequestOrder:
    """The requests that a producer sends about one matter, as far as they have been seen."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: RequestOrigin | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client may still send something over the connection that it used last."""
        return self._latest is not None and self._latest.is_open

    def judge(self, origin: RequestOrigin) -> Arrival:
        return Arrival.IN_ORDER if self._latest is None else origin.arrival_after(self._latest)

    def follow(self, origin: RequestOrigin) -> None:
        self._latest = origin
