"""Origins of Kafka's requests, and which of two was sent first.

Clients number their requests upwards and use one connection after another. A request on an older connection,
or with a lower number, was sent earlier. See `broker.transactions.request_order`.
"""

import itertools
from dataclasses import dataclass
from uuid import UUID

from posthouse.broker.transactions.request_order import Arrival
from posthouse.model.scopes import Scope
from posthouse.protocols.kafka.read_replicas import ReadReplicas

_serials = itertools.count(1)

_NUMBERS = 2**32
_AHEAD = 2**31 + 2**16
"""Numbers wrap around, in some clients a little early: a difference below this is a step forwards."""


class ConnectionIdentity:
    """One connection of a client. Newer ones have a greater serial number."""

    __slots__ = ("is_open", "read_replicas", "relayed_by", "relayed_for", "serial")

    def __init__(self, *, relayed_by: UUID | None = None) -> None:
        self.serial = next(_serials)
        self.is_open = True
        self.read_replicas = ReadReplicas()
        """Which other brokers a consumer was told to read from."""
        self.relayed_by = relayed_by
        """The incarnation of another broker, which has made the connection and relays requests that the
        client has sent there."""
        self.relayed_for: Scope | None = None
        """The scope for which it relays, if it knows what to do with requests that this broker refuses
        because it does not hold the scope any more."""

    @property
    def way(self) -> object:
        """A client sends to each broker in an order of its own. Direct connections are one way to this
        broker, and those that one other broker relays are one. On each way connections follow each other."""
        return self.relayed_by


@dataclass(frozen=True, slots=True)
class CorrelatedOrigin:
    """A request's connection, and its correlation id there."""

    connection: ConnectionIdentity
    number: int

    @property
    def is_open(self) -> bool:
        return self.connection.is_open

    @property
    def way(self) -> object:
        return self.connection.way

    def arrival_after(self, earlier: "CorrelatedOrigin") -> Arrival:
        if self.connection is not earlier.connection:
            return Arrival.SUCCEEDS if self.connection.serial > earlier.connection.serial else Arrival.LATE
        step = (self.number - earlier.number) % _NUMBERS
        return Arrival.IN_ORDER if 0 < step < _AHEAD else Arrival.LATE
