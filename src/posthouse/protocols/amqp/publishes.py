"""A publish, from the decoded frames to the wave that makes it durable."""

from typing import Final

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import QueueBlocked, QueueFull
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.events import IMMEDIATE, MANDATORY, Publish
from posthouse.protocols.amqp.errors import (
    Refused,
    ReplyCode,
    access_refused,
    not_found,
    not_implemented,
    precondition_failed,
)
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.properties import Flag, user_id_of
from posthouse.protocols.amqp.permissions import check_exchange, check_publish
from posthouse.protocols.amqp.reply_to import PREFIX, asks_for_reply, with_address
from posthouse.protocols.amqp.transactions import TransactionalPublish

# Property flags that are tested for every message; most have neither.
_HAS_REPLY_TO: Final = Flag.REPLY_TO >> 8
_HAS_USER_ID: Final = int(Flag.USER_ID)


def publish(channel: Channel, event: Publish) -> None:
    """Synchronous. Raises QueueBlocked, before anything has happened, where a queue blocks publishers."""
    _, _, exchange_name, key, flags, properties, body = event
    session = channel.session
    if flags & IMMEDIATE:
        raise not_implemented("immediate=true")
    try:
        exchange = channel.namespace.router.by_name.get(exchange_name.decode())
        if exchange is None:
            raise _unknown(channel, exchange_name.decode())
        if properties[0] & _HAS_REPLY_TO or properties[1] & _HAS_USER_ID:
            properties = with_own(channel, properties)
        envelope = session.envelopes[exchange_name, properties]
    except UnicodeDecodeError:
        raise _unknown(channel, exchange_name.decode(errors="replace")) from None
    except PropertyError as error:
        raise Refused(ReplyCode(error.code), error.text) from None
    is_reply = not exchange_name and key.startswith(PREFIX)
    if session.is_guarded and not is_reply:
        check_publish(channel, exchange, key, envelope.more_keys)
    if exchange.definition.internal:
        raise access_refused(f"cannot publish to internal {channel.subject('exchange', exchange.name)}")
    mandatory = flags & MANDATORY != 0
    if channel.transaction is not None:
        session.unfinished.metrics.untimed += 1
        channel.transaction.publish(
            TransactionalPublish(exchange, key, body, properties, envelope, mandatory, is_reply)
        )
        return
    if is_reply:
        session.unfinished.metrics.untimed += 1
        reply(channel, key, properties, body, mandatory=mandatory)
        return
    unfinished = session.unfinished
    part = unfinished.part()
    confirms = channel.confirms
    try:
        routed = channel.namespace.publish(exchange, key, body, envelope, part.wave)
    except QueueBlocked:
        raise
    except QueueFull:
        unfinished.metrics.untimed += 1
        unfinished.metrics.errors += 1
        if confirms is not None:
            confirms.refused()
        return
    size = len(body)
    part.size += size
    part.count += 1
    unfinished.size += size
    if mandatory and not routed:
        give_back(channel, exchange_name, key, properties, body)
    if confirms is not None:
        confirms.joined(part)


def _unknown(channel: Channel, exchange: str) -> Refused:
    """Only clients with permission to write to the exchange learn that it does not exist."""
    check_exchange(channel, Operation.WRITE, exchange)
    return not_found(channel.subject("exchange", exchange))


def with_own(channel: Channel, properties: bytes) -> bytes:
    """Check user-id, and replace the pseudo queue in reply-to by the address of the channel."""
    user = user_id_of(properties)
    own = channel.session.user
    if user is not None and user != own.encode():
        shown = user.decode(errors="replace")
        raise precondition_failed(f"user_id property set to '{shown}' but authenticated user was '{own}'")
    return with_address(properties, channel.reply_consumer) if asks_for_reply(properties) else properties


def give_back(channel: Channel, exchange: bytes, key: bytes, properties: bytes, body: bytes) -> None:
    """Send basic.return: the message is mandatory, and no queue takes it."""
    code = ReplyCode.NO_ROUTE
    channel.outbox.send(
        encode.returned(
            channel.number, code, code.name, exchange, key, properties, body, channel.session.frame_max
        )
    )


def reply(channel: Channel, key: bytes, properties: bytes, body: bytes, *, mandatory: bool) -> None:
    """Deliver a direct reply to the channel that waits for it. Nothing is stored."""
    consumer = channel.session.reply_tos.find(key, channel.session.vhost)
    if (consumer is None or not consumer.deliver(key, properties, body)) and mandatory:
        give_back(channel, b"", key, properties, body)
    if channel.confirms is not None:
        channel.confirms.taken()
