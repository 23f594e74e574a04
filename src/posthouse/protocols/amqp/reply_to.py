"""Direct reply-to: replies are delivered to the channel that asked, without a queue or a log."""

from typing import Final, Protocol

from posthouse.protocols.amqp.errors import precondition_failed
from posthouse.protocols.amqp.mapping.properties import Flag, spans
from posthouse.protocols.amqp.server_names import ServerNames

REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""The pseudo queue: clients consume from it, and name it in reply-to."""
PREFIX: Final = f"{REPLY_TO}.".encode()
_PLACEHOLDER: Final = REPLY_TO.encode()


class ReplyChannel(Protocol):
    """The channel that gets a reply."""

    @property
    def vhost(self) -> str: ...

    def deliver_reply(self, tag: str, key: bytes, properties: bytes, body: bytes) -> bool:
        """Whether it is sent. A client that does not read gets none: replies are not stored."""


class ReplyConsumer:
    """A channel's consumer of replies. At most once: a client that does not read or has left gets none."""

    __slots__ = ("_channel", "address", "tag")

    def __init__(self, channel: ReplyChannel, tag: str, address: bytes) -> None:
        self._channel = channel
        self.tag = tag
        self.address = address

    @property
    def vhost(self) -> str:
        return self._channel.vhost

    def deliver(self, key: bytes, properties: bytes, body: bytes) -> bool:
        """See `ReplyChannel.deliver_reply`."""
        return self._channel.deliver_reply(self.tag, key, properties, body)


class ReplyTos:
    """All reply consumers of the broker, by the address that was generated for each."""

    def __init__(self, names: ServerNames) -> None:
        self._names = names
        self._waiting: dict[bytes, ReplyConsumer] = {}

    def open(self, channel: ReplyChannel, tag: str) -> ReplyConsumer:
        address = PREFIX + self._names.token().encode()
        consumer = self._waiting[address] = ReplyConsumer(channel, tag, address)
        return consumer

    def close(self, consumer: ReplyConsumer) -> None:
        del self._waiting[consumer.address]

    def find(self, address: bytes, vhost: str) -> ReplyConsumer | None:
        """The consumer with this address, if it is in the same namespace."""
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
