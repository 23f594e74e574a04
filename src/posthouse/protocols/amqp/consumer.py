"""A consumer: one subscription of a channel to a queue."""

from collections.abc import Sequence
from typing import Final

from pamqp.commands import Basic

from posthouse.broker.queues.consumer_info import ConsumerInfo
from posthouse.broker.queues.message import Message, MessageSource
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.mapping.changes import with_delivery_count
from posthouse.protocols.amqp.mapping.deliveries import Delivery

AT_ONCE: Final = 512
"""Messages that a queue delivers at most before it asks for the credit again."""
_AT_ONCE_METERED: Final = 32
"""The same while there are quotas: a client with a low rate limit must not exceed it by much."""
_AT_ONCE_SHORT: Final = 4
"""The same while the memory budget is spent."""


class ChannelConsumer:
    """See `broker.queues.message.Consumer`."""

    __slots__ = (
        "_tag",
        "channel",
        "counts_deliveries",
        "is_active",
        "no_ack",
        "prefetch",
        "queue",
        "tag",
        "unacked",
    )

    def __init__(
        self,
        channel: Channel,
        queue: MessageSource,
        tag: str,
        *,
        no_ack: bool,
        prefetch: int,
        counts_deliveries: bool = False,
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self._tag = tag.encode()
        self.no_ack = no_ack
        self.prefetch = prefetch
        """The prefetch of the channel when the consumer was started; 0 for no limit."""
        self.unacked = 0
        self.counts_deliveries = counts_deliveries
        self.is_active = False
        """Whether messages may be delivered: only after consume-ok was sent."""

    @property
    def credit(self) -> int:
        channel = self.channel
        throttle = channel.session.throttle
        if (
            not self.is_active
            or not channel.is_flowing
            or not channel.outbox.takes_deliveries
            or throttle.deliveries.is_on
        ):
            return 0
        most = AT_ONCE if throttle.quotas.is_empty else _AT_ONCE_METERED
        if channel.outbox.is_memory_short:
            most = _AT_ONCE_SHORT
        if self.no_ack:
            return most if not channel.shared_prefetch or channel.shared_credit > 0 else 0
        credit = channel.credit
        if self.prefetch and self.prefetch - self.unacked < credit:
            credit = self.prefetch - self.unacked
        return credit if credit < most else most

    @property
    def limiter(self) -> Channel | None:
        """The channel: its limits apply to all of its consumers together."""
        return None if self.no_ack and not self.channel.shared_prefetch else self.channel

    @property
    def is_counted(self) -> bool:
        return not self.no_ack

    @property
    def info(self) -> ConsumerInfo:
        session = self.channel.session
        return ConsumerInfo(
            tag=self.tag,
            peer=session.peer,
            channel=self.channel.number,
            user=session.user,
            needs_ack=not self.no_ack,
            prefetch=self.prefetch,
            unacked=self.unacked,
        )

    def deliver(self, messages: Sequence[Message]) -> None:
        # One loop with everything in locals: this runs for every message that is delivered.
        channel = self.channel
        number = channel.number
        deliveries = channel.deliveries
        held = deliveries.held
        delivery_tag = deliveries.last_tag
        frame_max = channel.session.frame_max
        shown = channel.session.shown
        consumer_tag = self._tag
        no_ack = self.no_ack
        frames = []
        for message in messages:
            found = shown[message.headers]
            if not isinstance(found, Delivery):
                found = shown.placed(found, message.topic, message.timestamp)
            exchange, properties = found
            if message.deliveries and self.counts_deliveries:
                properties = with_delivery_count(properties, message.deliveries)
            delivery_tag += 1
            if not no_ack:
                held[delivery_tag] = (delivery_tag, message, self)
            frames.append(
                encode.deliver(
                    number,
                    consumer_tag,
                    delivery_tag,
                    message.redelivered,
                    exchange,
                    message.key or b"",
                    properties,
                    message.value or b"",
                    frame_max,
                )
            )
        deliveries.last_tag = delivery_tag
        if not no_ack:
            self.unacked += len(messages)  # first: sending may make room for the next deliveries at once
        channel.outbox.send_all(frames)
        channel.session.delivered.untimed += len(messages)
        if not (throttle := channel.session.throttle).quotas.is_empty:
            throttle.delivered(sum(map(len, frames)))
        if channel.shared_prefetch:
            channel.has_served(self)
        if no_ack:
            self.queue.ack(messages)

    def cancel(self) -> None:
        """End the subscription, for the client or because its channel closes."""
        self.is_active = False
        self.queue.unsubscribe(self)

    def cancelled(self) -> None:
        """The queue was deleted. Its deliveries stay with the channel, but settling them does nothing."""
        self.is_active = False
        channel = self.channel
        channel.consumers.pop(self.tag, None)
        if channel.session.can("consumer_cancel_notify"):
            channel.session.notify(channel, encode.method(channel.number, Basic.Cancel(self.tag, True)))
