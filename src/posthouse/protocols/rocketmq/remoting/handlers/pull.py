"""Pulls: the messages of one queue from an offset on, or a wait until there are some."""

from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.filters.filter import Filter
from posthouse.broker.groups.committing import NewOffset
from posthouse.model.errors import OffsetOutOfRange
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.clients import compile_filter
from posthouse.protocols.rocketmq.codec.codes import PullFlag, ResponseCode
from posthouse.protocols.rocketmq.codec.heartbeats import TAG_EXPRESSION
from posthouse.protocols.rocketmq.codec.stored_messages import encode_stored_messages
from posthouse.protocols.rocketmq.reading import ReadMessages, read_messages
from posthouse.protocols.rocketmq.remoting.answered_messages import answered_message
from posthouse.protocols.rocketmq.remoting.call import Call, check_may_consume, readable_topic
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.handlers.offsets import commit

MOST_MESSAGES: Final = 1024
MOST_BYTES: Final = 256 * 1024
"""Of bodies in one answer, as upstream; more only if one message has more."""
_MOST_SECONDS: Final = 60.0
_NO_BROKER: Final = "0"
"""The number of the broker to pull from: the only one."""


def pull(call: Call) -> Coroutine[Any, Any, None]:
    flags = call.number("sysFlag", 0)
    name, group = call.text("topic"), call.text("consumerGroup")
    check_may_consume(call, group)
    topic = readable_topic(call, name)
    partition = call.number("queueId")
    topic.existing_partition(partition)
    selected = _filter(call, flags, group, name)
    if flags & PullFlag.COMMIT_OFFSET and (offset := call.number("commitOffset", -1)) >= 0:
        commit(call.connection, group, NewOffset(partition=topic.partition(partition), offset=offset))
    return _pull(call, flags, name, group, topic, partition, selected)


def _filter(call: Call, flags: int, group: str, topic: str) -> Filter:
    if flags & PullFlag.CLASS_FILTER:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "filters that are Java classes are not supported"
        )
    if flags & PullFlag.SUBSCRIPTION:
        fields = call.request.fields
        return compile_filter(fields.get("expressionType", TAG_EXPRESSION), fields.get("subscription", "*"))
    found = call.connection.server.clients.filter_of(call.connection, group, topic)
    if found is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the client has sent no heartbeat with a subscription of the group {group!r} to {topic!r}",
        )
    return found


async def _pull(
    call: Call, flags: int, name: str, group: str, topic: Topic, partition: int, selected: Filter
) -> None:
    broker = call.connection.server.broker
    offset = call.number("queueOffset")
    most = max(1, min(call.number("maxMsgNums", 32), MOST_MESSAGES))
    most_bytes = max(1, min(call.number("maxMsgBytes", MOST_BYTES), MOST_BYTES))
    wait_seconds = min(call.number("suspendTimeoutMillis", 0) / 1000, _MOST_SECONDS)
    deadline = broker.monotonic() + wait_seconds if flags & PullFlag.SUSPEND else 0.0
    connection = call.connection
    limiters, limited = broker.group_limiters, GroupId(group)
    ticket = limiters.ticket()
    while True:
        async with limiters.reserved(limited, ticket, most, deadline) as reserved, connection.reading:
            await connection.writable()
            if not reserved.tokens:
                _answer(call, ResponseCode.PULL_NOT_FOUND, topic, partition, offset)
                return
            if (elsewhere := _redirected(call, group, topic.partition(partition), offset)) is not None:
                _answer(call, ResponseCode.PULL_OFFSET_MOVED, topic, partition, elsewhere)
                return
            seen = broker.bounds(topic, partition)
            try:
                found = await read_messages(
                    broker,
                    topic,
                    partition,
                    offset,
                    selected,
                    most=reserved.tokens,
                    most_bytes=most_bytes,
                    others=connection.server.clients.differing_filters(group, name),
                )
            except OffsetOutOfRange:
                bounds = broker.bounds(topic, partition)
                following = bounds.start if offset < bounds.start else bounds.stable
                _answer(call, ResponseCode.PULL_OFFSET_MOVED, topic, partition, following)
                return
            if found.passed_over:
                broker.traffic[topic.name].records_passed_over += found.passed_over
            reserved.used = len(found.messages)
            if found.messages:
                _answer_messages(call, name, topic, partition, found)
                return
        if found.following > offset:  # all of it was left out: the client is to know how far it has come
            _answer(call, ResponseCode.PULL_RETRY_IMMEDIATELY, topic, partition, found.following)
            return
        left = deadline - broker.monotonic()
        if left <= 0 or connection.is_finishing:
            _answer(call, ResponseCode.PULL_NOT_FOUND, topic, partition, offset)
            return
        # Again: the group may have been reset during the read, which wakes only those that wait.
        if (elsewhere := _redirected(call, group, topic.partition(partition), offset)) is not None:
            _answer(call, ResponseCode.PULL_OFFSET_MOVED, topic, partition, elsewhere)
            return
        await broker.wait_for_records([(topic.partition(partition), seen.stable)], 1, left, stable_only=True)


def _redirected(call: Call, group: str, partition: PartitionId, offset: int) -> int | None:
    """Where the consumer has to go on instead, if its group was reset."""
    server = call.connection.server
    if group not in server.resets or not server.clients.shares_offsets(call.connection, group):
        return None
    return server.resets.redirect(group, partition, offset)


def _answer_messages(call: Call, name: str, topic: Topic, partition: int, found: ReadMessages) -> None:
    connection = call.connection
    stored = [
        answered_message(connection, name, partition, each.offset, each.stored_at, each.message)
        for each in found.messages
    ]
    traffic = connection.server.broker.traffic[topic.name]
    traffic.records_out += len(stored)
    traffic.bytes_out += found.size
    body = encode_stored_messages(stored)
    _answer(call, ResponseCode.SUCCESS, topic, partition, found.following, body)


def _answer(
    call: Call, code: ResponseCode, topic: Topic, partition: int, following: int, body: bytes = b""
) -> None:
    bounds = call.connection.server.broker.bounds(topic, partition)
    call.answer(
        code,
        fields={
            "suggestWhichBrokerId": _NO_BROKER,
            "nextBeginOffset": str(following),
            "minOffset": str(bounds.start),
            "maxOffset": str(bounds.stable),
        },
        body=body,
    )
