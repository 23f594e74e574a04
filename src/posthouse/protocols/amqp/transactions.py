"""A channel in tx mode: what it publishes and settles waits, and then happens together or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.queues.wave import Wave
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.errors import PosthouseError
from posthouse.protocols.amqp.deliveries import Delivery, by_queue
from posthouse.protocols.amqp.errors import Refused, precondition_failed

if TYPE_CHECKING:
    from posthouse.protocols.amqp.channel import Channel


@dataclass(frozen=True, slots=True)
class Publish:
    """As it arrived, with what was found out about it when it did."""

    exchange: Exchange
    key: bytes
    body: bytes
    properties: bytes
    envelope: Envelope
    mandatory: bool
    is_reply: bool
    """It goes straight to a channel, not to a queue."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What is left to do when a transaction is durable."""

    unroutable: list[Publish] = field(default_factory=list)
    """To be returned to their sender, who asked for it."""
    replies: list[Publish] = field(default_factory=list)


@dataclass(slots=True)
class _Rejected:
    deliveries: Sequence[Delivery]
    requeue: bool


@dataclass(slots=True)
class _Collected:
    publishes: list[Publish] = field(default_factory=list)
    acked: list[Delivery] = field(default_factory=list)
    rejected: list[_Rejected] = field(default_factory=list)
    size: int = 0

    def deliveries(self) -> list[Delivery]:
        return self.acked + [delivery for each in self.rejected for delivery in each.deliveries]


class Transaction:
    """Begins anew with every commit and rollback."""

    def __init__(self, publishing: Publishing, max_bytes: int) -> None:
        self._publishing = publishing
        self._max_bytes = max_bytes
        self._collected = _Collected()

    def publish(self, publish: Publish) -> None:
        size = self._collected.size + len(publish.body)
        if size > self._max_bytes:
            raise precondition_failed(f"a transaction of {size} bytes, where {self._max_bytes} are allowed")
        self._collected.size = size
        self._collected.publishes.append(publish)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._collected.acked += deliveries

    def reject(self, deliveries: Sequence[Delivery], requeue: bool) -> None:
        self._collected.rejected.append(_Rejected(deliveries, requeue))

    def forget(self) -> list[Delivery]:
        """Nothing of it happens; the deliveries that it would have settled."""
        collected, self._collected = self._collected, _Collected()
        return collected.deliveries()

    async def commit(self, channel: "Channel") -> Committed:
        """Returns when it is durable.

        Messages and acknowledgements are one write. Rejections follow it: should the broker fail between the
        two, whoever gets the messages next rejects them again.
        """
        collected, self._collected = self._collected, _Collected()
        wave = self._publishing.transaction()
        committed = Committed()
        try:
            for publish in collected.publishes:
                if publish.is_reply:
                    committed.replies.append(publish)
                elif not _publish(channel, publish, wave) and publish.mandatory:
                    committed.unroutable.append(publish)
            for queue, messages in by_queue(collected.acked).items():
                queue.ack(messages, wave)
            committing = wave.commit()
        except PosthouseError as error:
            wave.abandon()
            raise _failed(channel, collected, error) from error
        try:
            await committing
        except PosthouseError as error:
            raise _failed(channel, collected, error) from error
        channel.freed(collected.acked)
        for rejected in collected.rejected:
            channel.settle_rejected(list(rejected.deliveries), rejected.requeue)
        return committed


def _publish(channel: "Channel", publish: Publish, wave: Wave) -> bool:
    return channel.namespace.publish(publish.exchange, publish.key, publish.body, publish.envelope, wave)


def _failed(channel: "Channel", collected: _Collected, error: PosthouseError) -> Refused:
    """Nothing of it has happened. The channel is closed for it, if it is not closed already."""
    channel.deliveries.put_back(collected.deliveries())
    if channel.is_closed:
        channel.release_all()
    return precondition_failed(f"the transaction cannot be committed: {error}")
