"""Offsets of topics, and how far groups have come, as tools show them."""

from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.broker import Broker
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.administration import (
    QueueProgress,
    QueueStatistics,
    encode_progress,
    encode_topic_statistics,
)
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue
from posthouse.protocols.rocketmq.names import BROKER, client_name
from posthouse.protocols.rocketmq.reading import read_record
from posthouse.protocols.rocketmq.remoting.call import Call, check_allowed, check_may_describe
from posthouse.protocols.rocketmq.remoting.handlers.groups import topics_of

_MOST_TIMES: Final = 64
"""Queues of one answer whose last consumed message is looked up: each is a read of the log."""


def of_topic(call: Call) -> Coroutine[Any, Any, None]:
    name = call.text("topic")
    topic = call.connection.server.topics.get(name)
    check_may_describe(call, name)
    return _of_topic(call, topic)


async def _of_topic(call: Call, topic: Topic) -> None:
    broker = call.connection.server.broker
    found: dict[MessageQueue, QueueStatistics] = {}
    for queue in range(topic.partitions):
        last = await broker.find_max_timestamp(topic, queue)
        bounds = broker.bounds(topic, queue)
        found[_queue(topic, queue)] = QueueStatistics(
            start=bounds.start, end=bounds.stable, last_stored_at=0 if last is None else last.timestamp
        )
    call.answer(body=encode_topic_statistics(found))


def of_group(call: Call) -> Coroutine[Any, Any, None]:
    group = call.text("consumerGroup")
    check_allowed(call, Operation.DESCRIBE, Kind.GROUP, group)
    server = call.connection.server
    if name := call.request.fields.get("topic"):
        topics = [server.topics.get(name)]
        check_may_describe(call, name)
    else:
        topics = [
            each for each in topics_of(server, group) if call.connection.guard.sees(Kind.TOPIC, each.name)
        ]
    return _of_group(call, GroupId(group), topics)


async def _of_group(call: Call, group: GroupId, topics: list[Topic]) -> None:
    broker = call.connection.server.broker
    await broker.groups.offsets.landed(group)
    found: dict[MessageQueue, QueueProgress] = {}
    shared = broker.subscriptions.progress(group) if group in broker.subscriptions else None
    for topic in topics:
        for queue in range(topic.partitions):
            place = _place(broker, group, shared, topic, queue)
            consumed_at = 0
            if place.is_known and len(found) < _MOST_TIMES:
                async with call.connection.reading:
                    record = await read_record(broker, topic, queue, place.floor - 1)
                consumed_at = 0 if record is None else record.timestamp
            found[_queue(topic, queue)] = QueueProgress(
                end=broker.bounds(topic, queue).stable,
                committed=place.done,
                leased=place.leased,
                last_consumed_at=consumed_at,
            )
    call.answer(body=encode_progress(found))


class _Place(NamedTuple):
    """How far a group has come in a queue."""

    floor: int
    """Everything below is consumed."""
    settled_above: int = 0
    leased: int = 0
    is_known: bool = True

    @property
    def done(self) -> int:
        """The end of the queue minus this is the lag."""
        return self.floor + self.settled_above


def _place(
    broker: Broker,
    group: GroupId,
    shared: Mapping[PartitionId, SubscribedPartition] | None,
    topic: Topic,
    queue: int,
) -> _Place:
    """`shared` is the progress of a group that leases its messages."""
    partition = topic.partition(queue)
    if shared is not None:
        if (subscribed := shared.get(partition)) is not None:
            progress = subscribed.progress
            return _Place(progress.floor, progress.settled_above, subscribed.leased)
    elif (known := broker.groups.offsets.get(group, partition)) is not None:
        return _Place(known.offset)
    return _Place(broker.bounds(topic, queue).start, is_known=False)


def _queue(topic: Topic, queue: int) -> MessageQueue:
    return MessageQueue(topic=client_name(topic.name), broker=BROKER, queue=queue)
