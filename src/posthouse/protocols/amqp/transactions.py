"""A channel in tx mode: publishes and settlements are collected, and committed together."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.routing.exchange import Exchange
from posthouse.protocols.amqp.deliveries import Delivery
from posthouse.protocols.amqp.errors import precondition_failed


@dataclass(frozen=True, slots=True)
class TransactionalPublish:
    """A publish of a transaction, checked when it arrived."""

    exchange: Exchange
    key: bytes
    body: bytes
    properties: bytes
    envelope: Envelope
    mandatory: bool
    is_reply: bool
    """A direct reply: it is delivered to a channel, not to a queue."""


@dataclass(frozen=True, slots=True)
class Rejection:
    deliveries: Sequence[Delivery]
    requeue: bool


@dataclass(slots=True)
class Collected:
    """Publishes and settlements of a transaction that has not been committed."""

    publishes: list[TransactionalPublish] = field(default_factory=list)
    acked: list[Delivery] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    size: int = 0

    def deliveries(self) -> list[Delivery]:
        return self.acked + [delivery for each in self.rejected for delivery in each.deliveries]


class ChannelTransaction:
    """Begins anew with every commit and rollback."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._collected = Collected()

    def publish(self, publish: TransactionalPublish) -> None:
        size = self._collected.size + len(publish.body)
        if size > self._max_bytes:
            raise precondition_failed(f"a transaction of {size} bytes, where {self._max_bytes} are allowed")
        self._collected.size = size
        self._collected.publishes.append(publish)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._collected.acked += deliveries

    def reject(self, deliveries: Sequence[Delivery], requeue: bool) -> None:
        self._collected.rejected.append(Rejection(deliveries, requeue))

    def take(self) -> Collected:
        """The collected publishes and settlements, for commit or rollback."""
        collected, self._collected = self._collected, Collected()
        return collected
