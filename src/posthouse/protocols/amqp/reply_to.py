"""Direct reply-to: answers that go straight to the channel that asked, past every queue and log."""

from typing import TYPE_CHECKING, Final

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.errors import precondition_failed
from posthouse.protocols.amqp.mapping.properties import Flag, spans
from posthouse.protocols.amqp.server_names import ServerNames

if TYPE_CHECKING:
    from posthouse.protocols.amqp.channel import Channel

REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""The queue that is no queue: clients consume from it, and name it as the one to reply to."""
PREFIX: Final = f"{REPLY_TO}.".encode()
_PLACEHOLDER: Final = REPLY_TO.encode()


class ReplyConsumer:
    """A channel that waits for replies. At most once: who does not read, or has left, misses them."""

    __slots__ = ("_channel", "address", "tag")

    def __init__(self, channel: "Channel", tag: str, address: bytes) -> None:
        self._channel = channel
        self.tag = tag
        self.address = address

    @property
    def vhost(self) -> str:
        return self._channel.session.vhost

    def deliver(self, key: bytes, properties: bytes, body: bytes) -> bool:
        """Whether it goes out. Nothing is kept for a client that does not take what it has been sent."""
        channel = self._channel
        session = channel.session
        if session.outbox.is_congested or not channel.is_flowing:
            return False
        channel.deliveries.last_tag = number = channel.deliveries.last_tag + 1
        tag = self.tag.encode()
        frame = encode.deliver(
            channel.number, tag, number, False, b"", key, properties, body, session.frame_max
        )
        session.outbox.send(frame)
        if session.throttle.is_on:
            session.throttle.delivered(len(frame))
        return True


class ReplyTos:
    """All channels that wait for replies, by the address that was made up for each."""

    def __init__(self, names: ServerNames) -> None:
        self._names = names
        self._waiting: dict[bytes, ReplyConsumer] = {}

    def open(self, channel: "Channel", tag: str) -> ReplyConsumer:
        address = PREFIX + self._names.token().encode()
        consumer = self._waiting[address] = ReplyConsumer(channel, tag, address)
        return consumer

    def close(self, consumer: ReplyConsumer) -> None:
        del self._waiting[consumer.address]

    def find(self, address: bytes, vhost: str) -> ReplyConsumer | None:
        """Namespaces do not reach each other, not even like this."""
        consumer = self._waiting.get(address)
        return consumer if consumer is not None and consumer.vhost == vhost else None


def asks_for_reply(properties: bytes) -> bool:
    """Whether the publisher wants the answer where it consumes replies."""
    if _PLACEHOLDER not in properties:
        return False
    start, end = spans(properties).get(Flag.REPLY_TO, (0, 0))
    return properties[start + 1 : end] == _PLACEHOLDER


def with_address(properties: bytes, consumer: ReplyConsumer | None) -> bytes:
    """The property list with the address that others can reach."""
    if consumer is None:
        raise precondition_failed("fast reply consumer does not exist")
    start, end = spans(properties)[Flag.REPLY_TO]
    return b"%b%c%b%b" % (properties[:start], len(consumer.address), consumer.address, properties[end:])
