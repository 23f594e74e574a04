"""Receiving: messages leased to the client for a while, or a wait until there are some."""

from collections.abc import Mapping
from typing import Final

from posthouse.broker.access.operations import Operation
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.model.errors import PosthouseError, UnknownPartition
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.grpc.calls import StreamingCall
from posthouse.protocols.rocketmq.codec.heartbeats import SQL_EXPRESSION, TAG_EXPRESSION
from posthouse.protocols.rocketmq.grpc.clients import ALL
from posthouse.protocols.rocketmq.grpc.converting import name_of, received_message, resource_of
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import FilterExpression, Status
from posthouse.protocols.rocketmq.grpc.messages.definition import Message as GrpcMessage
from posthouse.protocols.rocketmq.grpc.messages.enums import FilterType
from posthouse.protocols.rocketmq.grpc.messages.service import ReceiveMessageRequest, ReceiveMessageResponse
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp
from posthouse.protocols.rocketmq.grpc.receipts import Receipt
from posthouse.protocols.rocketmq.grpc.rpc import Rpc
from posthouse.protocols.rocketmq.grpc.selection import MessageSelection
from posthouse.protocols.rocketmq.grpc.statuses import OK, Refused
from posthouse.protocols.rocketmq.priorities import in_order

MOST_MESSAGES: Final = 1024
USUAL_MESSAGES: Final = 32
LONGEST_LEASE_SECONDS: Final = 12 * 3600.0
RENEWED_SECONDS: Final = 3 * 3600.0
"""A message whose lease the broker is to renew belongs to its consumer so long, if that lives."""
LONGEST_POLL_SECONDS: Final = 60.0
_USUAL_POLL_SECONDS: Final = 20.0
_BEFORE_DEADLINE: Final = 0.3
"""Seconds that an answer may take on its way: it is given so long before the call ends."""
_ANY_QUEUE: Final = -1
_READ_BYTES: Final = 1024 * 1024

Leased = dict[PartitionId, list[int]]


def expression_of(filter: FilterExpression | None) -> tuple[str, str]:
    """Type and text."""
    if filter is None or not filter.expression:
        return ALL
    return (SQL_EXPRESSION if filter.type == FilterType.SQL else TAG_EXPRESSION), filter.expression


async def receive(rpc: Rpc, call: StreamingCall, request: ReceiveMessageRequest) -> None:
    group = rpc.group(request.group)
    queue = request.message_queue
    if queue is None:
        raise Refused(Code.BAD_REQUEST, "no queue is named")
    topic = rpc.topic(queue.topic, Operation.READ)
    partitions = await rpc.server.groups.opened(group, topic)
    clients = rpc.server.clients
    # It may have been forgotten meanwhile.
    rpc.client = clients.heard(rpc.client.id, rpc.session, rpc.client.user)
    wanted = _wanted(rpc, request, group, topic, partitions)
    selection = _selection(rpc, request, group, topic)
    broker, client = rpc.server.broker, rpc.client
    _forget_attempt(rpc, group, request.attempt_id)
    lock_seconds = _lock_seconds(request)
    wish = Wish(
        max_bytes=_READ_BYTES,
        max_records=selection.most,
        is_strict=True,
        seconds=poll_seconds(rpc, request.long_polling_timeout),
        lock_seconds=lock_seconds,
        while_connected=request.auto_renew,
        selection=selection,
    )
    found = await broker.subscriptions.fetch(
        # Who has said that it ends may still have calls: what it got now would wait for hours.
        group,
        client.id,
        wanted,
        wish,
        lambda: not call.is_ended and clients.is_known(client),
    )
    receipts = _receipts(found, client.id)
    leased: Leased = {partition: list(each) for partition, each in receipts.items()}
    if not leased:
        errors = [each for each in found.values() if isinstance(each, PosthouseError)]
        if errors:
            raise errors[0]
        status = Status(code=Code.MESSAGE_NOT_FOUND, message="there is no new message")
        await call.send(ReceiveMessageResponse(status=status).encode())
        return
    if request.attempt_id:
        client.attempted(request.attempt_id, list(leased.items()))
    is_sent = False
    size = sum(len(each.message.body) for each in selection.messages.values())
    call.hold(size)
    try:
        await call.send(ReceiveMessageResponse(status=OK).encode())
        for partition, offsets in leased.items():
            for offset in offsets:
                receipt = receipts[partition][offset]
                message = _message(rpc, request, partition, receipt, selection, lock_seconds)
                await call.send(ReceiveMessageResponse(message=message).encode())
        now = Timestamp.from_ms(broker.now_ms())
        await call.send(ReceiveMessageResponse(delivery_timestamp=now).encode())
        is_sent = True
    finally:
        # Not before: a client that is not read from cannot say that it has room for the rest.
        charges = rpc.session.charges
        if not charges.quotas.is_empty:
            charges.read(size)
        if not is_sent:  # the client has not got all of them: the call was cancelled
            broker.subscriptions.give_back(group, client.id, leased)


def _wanted(
    rpc: Rpc, request: ReceiveMessageRequest, group: GroupId, topic: Topic, partitions: list[PartitionId]
) -> list[PartitionId]:
    """Consumers that poll by themselves ask one queue after the other, and mean any. Only push consumers of
    an ordered group have an order for each queue."""
    queue = request.message_queue
    assert queue is not None
    if queue.id >= topic.partitions:
        raise UnknownPartition(f"topic {topic.name!r} has {topic.partitions} queues, and no {queue.id}")
    if request.auto_renew and queue.id > _ANY_QUEUE and rpc.server.groups.is_ordered(group):
        return [partitions[queue.id]]
    factor = rpc.server.groups.priority_factor(group) if topic.config.rocketmq_priority_enable else 0
    return in_order(partitions, factor, rpc.server.next_turn())


def _selection(rpc: Rpc, request: ReceiveMessageRequest, group: GroupId, topic: Topic) -> MessageSelection:
    clients = rpc.server.clients
    members = clients.joins(rpc.client, group)
    expression = expression_of(request.filter_expression)
    compiled = clients.subscribes(rpc.client, group, topic.name, *expression)
    most = request.batch_size if request.batch_size > 0 else USUAL_MESSAGES
    is_ordered = rpc.server.groups.is_ordered(group)
    return MessageSelection(
        (*expression, is_ordered),
        compiled,
        lambda: clients.filters_of(group, topic.name).values(),
        min(most, MOST_MESSAGES),
        members.order if is_ordered else None,
    )


def _lock_seconds(request: ReceiveMessageRequest) -> float:
    if request.auto_renew:
        return RENEWED_SECONDS
    given = request.invisible_duration
    seconds = 0.0 if given is None else given.ms / 1000
    if not 0 < seconds <= LONGEST_LEASE_SECONDS:
        raise Refused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"messages can be invisible for up to {LONGEST_LEASE_SECONDS:.0f} s, and not {seconds:g}",
        )
    return seconds


def poll_seconds(rpc: Rpc, given: Duration | None) -> float:
    """How long to wait for messages: shorter than the call may take."""
    seconds = _USUAL_POLL_SECONDS if given is None else min(max(given.ms / 1000, 0.0), LONGEST_POLL_SECONDS)
    left = rpc.call.remaining()
    return seconds if left is None else max(min(seconds, left - _BEFORE_DEADLINE), 0.0)


def _forget_attempt(rpc: Rpc, group: GroupId, attempt: str | None) -> None:
    """The client has not got the answer to this attempt: what it was leased then comes again now."""
    if attempt is None:
        return
    leased = rpc.client.attempts.pop(attempt, None)
    if leased is not None:
        rpc.server.broker.subscriptions.give_back(group, rpc.client.id, dict(leased))


def _receipts(
    found: Mapping[PartitionId, Taken | PosthouseError], member: MemberId
) -> dict[PartitionId, dict[int, Receipt]]:
    """Of what was leased, by offset."""
    return {
        partition: {
            offset: Receipt(partition.index, taken.generation, offset, run.deliveries, member)
            for run in taken.runs
            for offset in range(run.first, run.last + 1)
        }
        for partition, taken in found.items()
        if isinstance(taken, Taken)
    }


def _message(
    rpc: Rpc,
    request: ReceiveMessageRequest,
    partition: PartitionId,
    receipt: Receipt,
    selection: MessageSelection,
    lock_seconds: float,
) -> GrpcMessage:
    selected = selection.messages[partition, receipt.offset]
    queue = request.message_queue
    assert queue is not None
    return received_message(
        selected.message,
        resource_of(name_of(queue.topic), queue.topic),
        partition.index,
        receipt.offset,
        rpc.session.own_host,
        rpc.session.store_host,
        stored_at=selected.stored_at,
        receipt=receipt.encode(),
        attempt=receipt.deliveries + selected.message.reconsume_times,
        invisible_ms=int(lock_seconds * 1000),
    )
