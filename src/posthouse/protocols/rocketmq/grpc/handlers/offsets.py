"""Offsets of queues and groups, and pulls from an offset on. Groups that pull are the broker's groups, as
those of the remoting protocol; groups that receive are not."""

from collections.abc import Coroutine
from typing import Any

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.model.errors import BadRequest
from posthouse.model.ids import MemberId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.grpc.calls import StreamingCall
from posthouse.protocols.rocketmq.clients import compile_filter
from posthouse.protocols.rocketmq.grpc.converting import name_of, received_message, resource_of
from posthouse.protocols.rocketmq.grpc.handlers.receive import (
    MOST_MESSAGES,
    USUAL_MESSAGES,
    expression_of,
    poll_seconds,
)
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import MessageQueue, Status
from posthouse.protocols.rocketmq.grpc.messages.enums import QueryOffsetPolicy
from posthouse.protocols.rocketmq.grpc.messages.service import (
    GetOffsetRequest,
    GetOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryOffsetRequest,
    QueryOffsetResponse,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc
from posthouse.protocols.rocketmq.grpc.statuses import OK, Refused
from posthouse.protocols.rocketmq.reading import ReadMessages, read_messages

_NOBODY = MemberIdentity(member=MemberId(""))
_MOST_BYTES = 1024 * 1024


def get_offset(
    rpc: Rpc, request: GetOffsetRequest, answer: Answer[GetOffsetResponse]
) -> Coroutine[Any, Any, None]:
    return _get(rpc, request, answer)


async def _get(rpc: Rpc, request: GetOffsetRequest, answer: Answer[GetOffsetResponse]) -> None:
    group = rpc.group(request.group)
    _, partition = _queue(rpc, request.message_queue)
    offsets = rpc.server.broker.groups.offsets
    offsets.check_kind(group)
    await offsets.landed(group)
    committed = offsets.get(group, partition)
    if committed is None:
        raise Refused(Code.OFFSET_NOT_FOUND, f"the group {group!r} has no offset there")
    answer.give(GetOffsetResponse(status=OK, offset=committed.offset))


def update_offset(
    rpc: Rpc, request: UpdateOffsetRequest, answer: Answer[UpdateOffsetResponse]
) -> Coroutine[Any, Any, None]:
    return _update(rpc, request, answer)


async def _update(rpc: Rpc, request: UpdateOffsetRequest, answer: Answer[UpdateOffsetResponse]) -> None:
    group = rpc.group(request.group)
    _, partition = _queue(rpc, request.message_queue)
    if request.offset < 0:
        raise Refused(Code.ILLEGAL_OFFSET, f"there is no offset {request.offset}")
    new = NewOffset(partition=partition, offset=request.offset)
    [wrong] = await rpc.server.broker.groups.offsets.commit(group, _NOBODY, [new])
    if wrong is not None:
        raise wrong
    answer.give(UpdateOffsetResponse(status=OK))


def query_offset(
    rpc: Rpc, request: QueryOffsetRequest, answer: Answer[QueryOffsetResponse]
) -> Coroutine[Any, Any, None]:
    return _query(rpc, request, answer)


async def _query(rpc: Rpc, request: QueryOffsetRequest, answer: Answer[QueryOffsetResponse]) -> None:
    topic, partition = _queue(rpc, request.message_queue)
    broker = rpc.server.broker
    bounds = broker.bounds(topic, partition.index)
    offset = bounds.start
    if request.query_offset_policy == QueryOffsetPolicy.END:
        offset = bounds.stable
    elif request.query_offset_policy == QueryOffsetPolicy.TIMESTAMP:
        if request.timestamp is None:
            raise BadRequest("the timestamp is missing")
        found = await broker.find_timestamp(topic, partition.index, request.timestamp.ms)
        offset = bounds.stable if found is None else min(found.offset, bounds.stable)
    answer.give(QueryOffsetResponse(status=OK, offset=offset))


async def pull(rpc: Rpc, call: StreamingCall, request: PullMessageRequest) -> None:
    group = rpc.group(request.group)
    topic, partition = _queue(rpc, request.message_queue)
    queue = request.message_queue
    assert queue is not None
    selected = compile_filter(*expression_of(request.filter_expression))
    broker = rpc.server.broker
    deadline = broker.monotonic() + poll_seconds(rpc, request.long_polling_timeout)
    most = min(request.batch_size, MOST_MESSAGES) if request.batch_size > 0 else USUAL_MESSAGES
    offset = request.offset
    limiters = broker.group_limiters
    ticket = limiters.ticket()
    while True:
        seen = broker.bounds(topic, partition.index)
        async with limiters.reserved(group, ticket, most, deadline) as reserved:
            if not reserved.tokens:
                found = ReadMessages(offset)
                break
            found = await read_messages(
                broker,
                topic,
                partition.index,
                offset,
                selected,
                most=reserved.tokens,
                most_bytes=_MOST_BYTES,
            )
            reserved.used = len(found.messages)
        left = deadline - broker.monotonic()
        if found.messages or found.following > offset or left <= 0 or rpc.session.connection.is_finishing:
            break
        await broker.wait_for_records([(partition, seen.stable)], 1, left, stable_only=True)
    if found.messages:
        traffic = broker.traffic[topic.name]
        traffic.records_out += len(found.messages)
        traffic.bytes_out += found.size
    try:
        await _send(rpc, call, queue, found)
    finally:  # not before: a client that is not read from cannot say that it has room for the rest
        charges = rpc.session.charges
        if not charges.quotas.is_empty:
            charges.read(found.size)


async def _send(rpc: Rpc, call: StreamingCall, queue: MessageQueue, found: ReadMessages) -> None:
    call.hold(found.size)
    status = OK if found.messages else Status(code=Code.MESSAGE_NOT_FOUND, message="there is no new message")
    await call.send(PullMessageResponse(status=status).encode())
    resource = resource_of(name_of(queue.topic), queue.topic)
    for each in found.messages:
        message = received_message(
            each.message,
            resource,
            queue.id,
            each.offset,
            rpc.session.own_host,
            rpc.session.store_host,
            stored_at=each.stored_at,
            receipt=None,
            attempt=each.message.reconsume_times + 1,
            invisible_ms=None,
        )
        await call.send(PullMessageResponse(message=message).encode())
    await call.send(PullMessageResponse(next_offset=found.following).encode())


def _queue(rpc: Rpc, queue: MessageQueue | None) -> tuple[Topic, PartitionId]:
    """Raises BadRequest, UnknownTopic, UnknownPartition and AccessRefused."""
    if queue is None:
        raise BadRequest("no queue is named")
    topic = rpc.topic(queue.topic, Operation.READ)
    topic.existing_partition(queue.id)
    return topic, topic.partition(queue.id)
