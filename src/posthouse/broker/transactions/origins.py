"""Where requests come from, and which of them come too late.

Producers that keep their epoch over several transactions give the broker nothing to tell a request of an
earlier transaction from one of the present. What it does know is the connection and the number that the
client gave the request there. Clients number their requests upwards and use one connection after another,
so whatever comes over an older connection, or has a lower number, was sent before.
"""

import itertools
from dataclasses import dataclass
from enum import Enum

_serials = itertools.count(1)

_NUMBERS = 2**32
_AHEAD = 2**31 + 2**16
"""Numbers wrap, some clients' a little early: a step of less than this is a step forwards."""


class Session:
    """One connection of a client. Younger ones have a greater serial number."""

    __slots__ = ("is_open", "serial")

    def __init__(self) -> None:
        self.serial = next(_serials)
        self.is_open = True


@dataclass(frozen=True, slots=True)
class Origin:
    """A request's connection, and the client's own number of the request on it."""

    session: Session
    number: int


class Arrival(Enum):
    """How a request stands to those before it."""

    IN_ORDER = "over the same connection, or the first"
    SUCCEEDS = "over a younger connection"
    LATE = "sent before what has been seen"


class Line:
    """The connection over which a producer speaks of one matter, and how far it has got there."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: Origin | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client may still say something over the connection that it used last."""
        return self._latest is not None and self._latest.session.is_open

    def judge(self, origin: Origin) -> Arrival:
        latest = self._latest
        if latest is None:
            return Arrival.IN_ORDER
        if origin.session is not latest.session:
            return Arrival.SUCCEEDS if origin.session.serial > latest.session.serial else Arrival.LATE
        step = (origin.number - latest.number) % _NUMBERS
        return Arrival.IN_ORDER if 0 < step < _AHEAD else Arrival.LATE

    def follow(self, origin: Origin) -> None:
        self._latest = origin
