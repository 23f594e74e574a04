"""basic.qos, consume, cancel, get, nack, reject, recover. Publishes and acks have their own, shorter way."""

from pamqp.commands import Basic

from posthouse.broker.access.operations import Operation
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.model.errors import AccessRefused, InUse
from posthouse.protocols.amqp.arguments import (
    CLASSIC,
    QUEUE_TYPE,
    QUORUM,
    STREAM,
    check_type_has,
    consumer_priority,
)
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.consumer import ChannelConsumer
from posthouse.protocols.amqp.errors import (
    access_refused,
    not_allowed,
    not_found,
    not_implemented,
    not_supported,
    precondition_failed,
)
from posthouse.protocols.amqp.methods.answers import Answer
from posthouse.protocols.amqp.permissions import check_queue
from posthouse.protocols.amqp.reply_to import REPLY_TO
from posthouse.protocols.amqp.stream_consumer import StreamConsumer, start_of


def qos(channel: Channel, method: Basic.Qos) -> bytes:
    if method.prefetch_size:
        raise not_implemented(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.shared_prefetch = method.prefetch_count
        channel.raise_credit()
    else:
        channel.prefetch = method.prefetch_count
    return channel.answer(Basic.QosOk())


def consume(channel: Channel, method: Basic.Consume) -> Answer:
    tag = method.consumer_tag
    if tag in channel.consumers or (channel.reply_consumer is not None and channel.reply_consumer.tag == tag):
        raise not_allowed(f"attempt to reuse consumer tag '{tag}'")
    tag = tag or channel.session.names.consumer()
    if method.queue == REPLY_TO:
        return _consume_replies(channel, method, tag)
    check_queue(channel.session, Operation.READ, channel.queue_name(method.queue))
    queue = channel.queue(method.queue)
    subject = channel.subject("queue", queue.name)
    queue_type = queue.definition.arguments.get(QUEUE_TYPE, CLASSIC)
    if isinstance(queue, StreamQueue):
        return _consume_stream(channel, method, tag, queue, subject)
    assert isinstance(queue, Queue)
    check_type_has(queue_type, method.arguments or {}, subject)
    priority = consumer_priority(method.arguments or {}, subject)
    consumer = ChannelConsumer(
        channel,
        queue,
        tag,
        no_ack=bool(method.no_ack),
        prefetch=channel.prefetch,
        counts_deliveries=queue_type == QUORUM,
    )
    try:
        queue.subscribe(consumer, exclusive=bool(method.exclusive), priority=priority)
    except (AccessRefused, InUse):
        raise access_refused(f"{subject} in exclusive use") from None
    channel.consumers[tag] = consumer
    return _begin(channel, consumer, nowait=bool(method.nowait))


async def _begin(channel: Channel, consumer: ChannelConsumer, *, nowait: bool) -> None:
    """A consumer of a queue with messages gets the first ones together with consume-ok.

    RabbitMQ delivers so fast that clients rely on it: some lose messages that arrive after the consumer was
    cancelled.
    """
    await channel.session.unfinished.drained()
    if not channel.is_closed:
        await _offer(channel, consumer, nowait=nowait)


async def _offer(channel: Channel, consumer: ChannelConsumer, *, nowait: bool) -> None:
    with channel.outbox.gathering():
        if not nowait:
            channel.outbox.send(channel.answer(Basic.ConsumeOk(consumer.tag)))
        if consumer.tag in channel.consumers:  # its queue may be gone already
            consumer.is_active = True
            await consumer.queue.offer()


async def _consume_stream(
    channel: Channel, method: Basic.Consume, tag: str, queue: StreamQueue, subject: str
) -> None:
    """Any number of consumers may read a stream at the same time, also exclusive ones."""
    arguments = method.arguments or {}
    if not channel.prefetch:
        raise precondition_failed(f"consumer prefetch count is not set for '{subject}'")
    if method.no_ack:
        raise not_supported("automatic acknowledgement", subject)
    if channel.shared_prefetch:
        raise not_implemented(f"{subject} does not support global qos")
    check_type_has(STREAM, arguments, subject)
    await channel.session.unfinished.drained()
    start = await start_of(queue, arguments, subject)
    if channel.is_closed:
        return
    if queue.is_stopped:
        raise not_found(subject)
    reading = queue.reading(start)
    consumer = StreamConsumer(channel, reading, tag, no_ack=False, prefetch=channel.prefetch)
    channel.consumers[tag] = consumer
    reading.subscribe(consumer)
    await _offer(channel, consumer, nowait=bool(method.nowait))


def _consume_replies(channel: Channel, method: Basic.Consume, tag: str) -> bytes | None:
    if not method.no_ack:
        raise precondition_failed("reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise precondition_failed("reply consumer already set")
    channel.reply_consumer = channel.session.reply_tos.open(channel, tag)
    return None if method.nowait else channel.answer(Basic.ConsumeOk(tag))


def cancel(channel: Channel, method: Basic.Cancel) -> Answer:
    tag = method.consumer_tag or ""
    channel.cancel(tag)
    if method.nowait:
        return None
    return channel.after_effects(channel.answer(Basic.CancelOk(tag)))


def cancel_ok(channel: Channel, method: Basic.CancelOk) -> None:
    """The answer to basic.cancel of the broker: not needed, but some clients send it."""


def get(channel: Channel, method: Basic.Get) -> Answer:
    check_queue(channel.session, Operation.READ, channel.queue_name(method.queue))
    queue = channel.queue(method.queue)
    if not isinstance(queue, Queue):
        raise not_supported("basic.get", channel.subject("queue", queue.name))
    most = channel.session.limits.max_unacked
    if not method.no_ack and len(channel.deliveries.held) >= most:
        raise precondition_failed(
            f"{most} messages of this channel wait to be acknowledged, no more are given"
        )
    return _get(channel, queue, no_ack=bool(method.no_ack))


async def _get(channel: Channel, queue: Queue, *, no_ack: bool) -> bytes | None:
    session = channel.session
    await session.settled(queue.name)
    message = await queue.get()
    if message is None:
        return channel.answer(Basic.GetEmpty())
    if channel.is_closed:
        queue.release([message], count=False)
        return None
    exchange, properties = session.shown.of(message.headers, message.topic, message.timestamp)
    if no_ack:
        channel.deliveries.last_tag += 1
        queue.ack([message])
    else:
        channel.deliveries.hold(message)
    frame = encode.get_ok(
        channel.number,
        channel.deliveries.last_tag,
        message.redelivered,
        exchange,
        message.key or b"",
        queue.message_count,
        properties,
        message.value or b"",
        session.frame_max,
    )
    if not session.throttle.quotas.is_empty:
        session.throttle.gotten(len(frame))
    return frame


def nack(channel: Channel, method: Basic.Nack) -> None:
    channel.reject(method.delivery_tag, bool(method.multiple), bool(method.requeue))


def reject(channel: Channel, method: Basic.Reject) -> None:
    channel.reject(method.delivery_tag or 0, False, bool(method.requeue))


def recover_async(channel: Channel, method: Basic.RecoverAsync) -> None:
    _recover(channel, requeue=bool(method.requeue))


def recover(channel: Channel, method: Basic.Recover) -> bytes:
    _recover(channel, requeue=bool(method.requeue))
    return channel.answer(Basic.RecoverOk())


def _recover(channel: Channel, *, requeue: bool) -> None:
    if not requeue:
        raise not_implemented("requeue=false")
    channel.requeue_all()
