"""queue.declare, bind, unbind, purge, delete."""

from pamqp.commands import Queue

from posthouse.broker.access.operations import Operation
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.queue import Queue as LeasingQueue
from posthouse.broker.routing.definitions import Binding, ExchangeKind
from posthouse.model.errors import QueueLocked
from posthouse.protocols.amqp.arguments import check_match
from posthouse.protocols.amqp.blocking_bindings import check_blocking
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.definitions import (
    check_may_be_unnamed,
    check_properties,
    check_same_queue,
    queue_definition,
)
from posthouse.protocols.amqp.errors import (
    not_found,
    not_supported,
    speaking_of,
    translated,
)
from posthouse.protocols.amqp.methods.answers import Answer
from posthouse.protocols.amqp.methods.names import check_not_default, check_not_reserved, stripped
from posthouse.protocols.amqp.permissions import (
    check_exchange,
    check_onward,
    check_own_queue,
    check_queue,
    note_purge,
)
from posthouse.protocols.amqp.reply_to import REPLY_TO


def declare(channel: Channel, method: Queue.Declare) -> Answer:
    name = stripped(method.queue)
    if name == REPLY_TO or name.startswith(f"{REPLY_TO}."):
        return _declare_reply(channel, name, nowait=method.nowait)
    if method.passive:
        return _look_up(channel, name, nowait=method.nowait)
    check_not_reserved("queue", name)
    if not name:
        check_may_be_unnamed(method)
    is_own = not name and bool(method.exclusive)
    name = name or channel.session.names.queue()
    definition = queue_definition(method, name, channel.subject("queue", name))
    return _declare(channel, definition, is_own=is_own, nowait=method.nowait)


async def _declare(
    channel: Channel, definition: QueueDefinition, *, is_own: bool, nowait: bool
) -> bytes | None:
    name = definition.name
    with speaking_of(channel.subject("queue", name)):
        queue = await _declared_before(channel, definition)
        if queue is None:
            check_properties(definition, channel.subject("queue", name))
            _check_new(channel, definition, is_own=is_own)
            queue = await channel.namespace.declare_queue(definition, channel.session)
    channel.last_queue = name
    if nowait:
        return None
    return encode.declare_ok(channel.number, name, queue.message_count, queue.consumer_count)


async def _declared_before(channel: Channel, definition: QueueDefinition) -> LogQueue | None:
    """The existing queue, if it equals this declaration."""
    name, session = definition.name, channel.session
    if name not in channel.namespace.queues:
        return None
    check_queue(channel.session, Operation.DESCRIBE, name)
    known = channel.namespace.queue(name, session)
    subject = channel.subject("queue", name)
    if known.definition.exclusive is not definition.exclusive:
        raise translated(QueueLocked(), subject)
    check_same_queue(known.definition, definition, subject)
    await session.settled(name)
    return known if channel.namespace.queues.get(name) is known else None


def _check_new(channel: Channel, definition: QueueDefinition, *, is_own: bool) -> None:
    if is_own:
        check_own_queue(channel.session, definition.name)
    else:
        check_queue(channel.session, Operation.CREATE, definition.name)
    if definition.dead_letter_exchange is not None:
        if not is_own:
            check_queue(channel.session, Operation.READ, definition.name)
        check_onward(channel.session, definition.dead_letter_exchange, definition.dead_letter_key)


async def _look_up(channel: Channel, name: str, *, nowait: bool) -> bytes | None:
    check_queue(channel.session, Operation.DESCRIBE, name)
    await channel.session.settled(name)
    with speaking_of(channel.subject("queue", name)):
        queue = channel.namespace.queue(name, channel.session)
    channel.last_queue = name
    if nowait:
        return None
    return encode.declare_ok(channel.number, name, queue.message_count, queue.consumer_count)


def _declare_reply(channel: Channel, name: str, *, nowait: bool) -> bytes | None:
    """As if it were a queue: libraries look whether it is there, and some declare it, before they consume.

    An address of it is there while its client waits for a reply.
    """
    if name != REPLY_TO and channel.session.reply_tos.find(name.encode(), channel.session.vhost) is None:
        raise not_found(channel.subject("queue", name))
    channel.last_queue = name
    return None if nowait else encode.declare_ok(channel.number, name, 0, 1)


async def bind(channel: Channel, method: Queue.Bind) -> bytes | None:
    binding = _binding(channel, method)
    if channel.exchange(binding.source).definition.kind is ExchangeKind.HEADERS:
        check_match(binding.arguments)
    channel.queue(binding.destination)
    check_blocking(channel, binding)
    await channel.namespace.bind(binding)
    return None if method.nowait else channel.answer(Queue.BindOk())


async def unbind(channel: Channel, method: Queue.Unbind) -> bytes | None:
    """A no-op if the binding or the queue does not exist."""
    binding = _binding(channel, method)
    if binding.destination in channel.namespace.queues:
        channel.queue(binding.destination)  # raises where it is exclusive to another session
    await channel.namespace.unbind(binding)
    return channel.answer(Queue.UnbindOk())


def _binding(channel: Channel, method: Queue.Bind | Queue.Unbind) -> Binding:
    """Without queue and key, both are those of the queue that was declared last."""
    name = channel.queue_name(method.queue)
    key = method.routing_key
    if not method.queue and not key:
        key = name
    check_not_default(method.exchange)
    check_queue(channel.session, Operation.WRITE, name)
    check_exchange(channel.session, Operation.READ, method.exchange)
    return Binding(
        source=method.exchange,
        destination=name,
        key=key.encode(),
        arguments=dict(method.arguments or {}),
    )


async def purge(channel: Channel, method: Queue.Purge) -> bytes | None:
    name = channel.queue_name(method.queue)
    check_queue(channel.session, Operation.READ, name)
    queue = channel.queue(method.queue)
    if not isinstance(queue, LeasingQueue):
        raise not_supported("queue.purge", channel.subject("queue", queue.name))
    note_purge(channel.session, name)
    await channel.session.settled(name)
    count = queue.purge()
    return None if method.nowait else channel.answer(Queue.PurgeOk(count))


async def delete(channel: Channel, method: Queue.Delete) -> bytes | None:
    name = channel.queue_name(stripped(method.queue))
    check_queue(channel.session, Operation.DELETE, name)
    await channel.session.settled(name)
    with speaking_of(channel.subject("queue", name)):
        count = await channel.namespace.delete_queue(
            name,
            channel.session,
            if_unused=bool(method.if_unused),
            if_empty=bool(method.if_empty),
        )
    return None if method.nowait else channel.answer(Queue.DeleteOk(count))
