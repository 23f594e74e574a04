"""Sends: the messages of one request, at once, later, or as half messages."""

import random
import zlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from posthouse.broker.access.operations import Operation
from posthouse.broker.half_messages.checks import FIRST_CHECK_SECONDS, LONGEST_FIRST_CHECK
from posthouse.broker.record_limits import check_record
from posthouse.model.errors import BadRequest, PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import SHARDING_KEY, TRANSACTION_PREPARED, UNIQUE_KEY
from posthouse.protocols.rocketmq.grpc.converting import name_of, sent_message
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Message as GrpcMessage
from posthouse.protocols.rocketmq.grpc.messages.definition import Status, SystemProperties
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType
from posthouse.protocols.rocketmq.grpc.messages.service import (
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc
from posthouse.protocols.rocketmq.grpc.statuses import OK, Refused, status_of
from posthouse.protocols.rocketmq.grpc.transaction_ids import group_of_topic, transaction_id
from posthouse.protocols.rocketmq.messages import record_headers, record_key
from posthouse.protocols.rocketmq.names import BROKER, check_may_write
from posthouse.protocols.rocketmq.priorities import LOWEST, has_said, queue_of, refusal
from posthouse.protocols.rocketmq.recall_handles import KEY_PURPOSE, RecallHandle
from posthouse.protocols.rocketmq.topics import DEFAULT_QUEUES

MOST_MESSAGES: Final = 1024
"""In one request."""

Done = Callable[[SendResultEntry], None]


class _Wanted(NamedTuple):
    """A message as it is to be stored."""

    id: str
    partition: int
    key: bytes | None
    value: bytes
    headers: bytes
    due_ms: int | None
    first_check_seconds: int | None
    """Of a half message."""
    has_priority: bool


def send(
    rpc: Rpc, request: SendMessageRequest, answer: Answer[SendMessageResponse]
) -> Coroutine[Any, Any, None] | None:
    if not 0 < len(request.messages) <= MOST_MESSAGES:
        raise BadRequest(f"a request has 1 to {MOST_MESSAGES} messages, and not {len(request.messages)}")
    name = name_of(request.messages[0].topic)
    if any(name_of(each.topic) != name for each in request.messages):
        raise BadRequest("the messages of a request have one topic")
    check_may_write(name)
    rpc.check_topic(name, Operation.WRITE)
    topic = rpc.server.topics.find_settled(name)
    if topic is None:
        return _create_and_send(rpc, request, answer, name)
    return _send(rpc, request, answer, name, topic)


async def _create_and_send(
    rpc: Rpc, request: SendMessageRequest, answer: Answer[SendMessageResponse], name: str
) -> None:
    topic = await rpc.server.topics.obtain(
        name, DEFAULT_QUEUES, lambda: rpc.check_topic(name, Operation.CREATE)
    )
    # Nothing is awaited in between: sends keep their order.
    if (later := _send(rpc, request, answer, name, topic)) is not None:
        await later


async def _send_with_priority(
    rpc: Rpc, request: SendMessageRequest, answer: Answer[SendMessageResponse], name: str
) -> None:
    """The first messages of the topic that have one."""
    topic = await rpc.server.topics.with_priorities(name)
    _send(rpc, request, answer, name, topic)


def _send(
    rpc: Rpc,
    request: SendMessageRequest,
    answer: Answer[SendMessageResponse],
    name: str,
    topic: Topic,
) -> Coroutine[Any, Any, None] | None:
    spread = random.randrange(topic.partitions)
    wanted = [_wanted(rpc, each, topic, spread + number) for number, each in enumerate(request.messages)]
    if any(each.has_priority for each in wanted) and not has_said(topic):
        return _send_with_priority(rpc, request, answer, name)
    entries: list[SendResultEntry | None] = [None] * len(wanted)
    left = len(wanted)

    def done(number: int, entry: SendResultEntry) -> None:
        nonlocal left
        entries[number] = entry
        left -= 1
        if not left:
            results = tuple(each for each in entries if each is not None)
            answer.give(SendMessageResponse(status=_status(results), entries=results))

    for number, each in enumerate(wanted):
        _store(rpc, topic, name, each, partial(done, number))
    return None


def _status(entries: Sequence[SendResultEntry]) -> Status | None:
    first = entries[0].status
    if all(each.status == first for each in entries):
        return first
    return Status(code=Code.MULTIPLE_RESULTS, message="the results of the messages differ")


def _wanted(rpc: Rpc, sent: GrpcMessage, topic: Topic, spread: int) -> _Wanted:
    broker = rpc.server.broker
    now = broker.now_ms()
    if not sent.body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "the message has no body")
    message = sent_message(sent, topic, now, rpc.session.host)
    system = sent.system_properties
    assert system is not None
    if system.message_type == MessageType.LITE or system.lite_topic:
        raise Refused(Code.UNSUPPORTED, "lite topics are not supported; use topics, or tags")
    is_half = system.message_type == MessageType.TRANSACTION
    due = None if system.delivery_timestamp is None else system.delivery_timestamp.ms
    if is_half and (due is not None or SHARDING_KEY in message.properties):
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "a message of a transaction has neither a delivery time nor a message group",
        )
    first_check = None
    if is_half:
        given = system.orphaned_transaction_recovery_duration
        seconds = FIRST_CHECK_SECONDS if given is None or given.ms <= 0 else given.ms // 1000
        first_check = min(seconds, LONGEST_FIRST_CHECK)
    if system.message_type == MessageType.PRIORITY or system.priority is not None:
        _check_priority(system, topic, is_alone=not is_half and due is None)
    if is_half:
        message.properties[TRANSACTION_PREPARED] = "true"
    message.due_ms = due if due is not None and due > now else None
    key, headers = record_key(message.properties), record_headers(message)
    check_record(topic, key, message.body, headers)
    return _Wanted(
        id=message.properties[UNIQUE_KEY],
        partition=_partition(system, topic, spread),
        key=key,
        value=message.body,
        headers=headers,
        due_ms=message.due_ms,
        first_check_seconds=first_check,
        has_priority=system.priority is not None,
    )


def _check_priority(system: SystemProperties, topic: Topic, *, is_alone: bool) -> None:
    if system.priority is None:
        reason: str | None = "the message is of type PRIORITY and has no priority"
    elif not is_alone or system.message_group is not None:
        reason = "a message with a priority has no message group or delivery time, and is in no transaction"
    else:
        reason = refusal(topic)
    if reason is not None:
        raise Refused(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, reason)


def _partition(system: SystemProperties, topic: Topic, spread: int) -> int:
    if system.priority is not None:
        return queue_of(system.priority, topic)
    if system.message_group is not None:
        return zlib.crc32(system.message_group.encode()) % topic.partitions
    return LOWEST if topic.config.rocketmq_priority_enable else spread % topic.partitions


def _store(rpc: Rpc, topic: Topic, name: str, wanted: _Wanted, done: Done) -> None:
    broker = rpc.server.broker

    def failed(error: PosthouseError) -> None:
        rpc.call.metrics.errors += 1
        done(SendResultEntry(status=status_of(error)))

    def written(result: int | PosthouseError) -> None:
        if isinstance(result, PosthouseError):
            failed(result)
        else:
            done(SendResultEntry(status=OK, message_id=wanted.id, offset=result))

    def prepared(result: int | PosthouseError) -> None:
        if isinstance(result, PosthouseError):
            failed(result)
        else:
            done(SendResultEntry(status=OK, message_id=wanted.id, transaction_id=transaction_id(result)))

    def scheduled(error: PosthouseError | None) -> None:
        if error is not None:
            failed(error)
        else:
            handle = RecallHandle(topic=name, broker=BROKER, message_id=wanted.id, delayed=delayed)
            done(
                SendResultEntry(
                    status=OK,
                    message_id=wanted.id,
                    recall_handle=handle.encode(broker.access.key(KEY_PURPOSE)),
                )
            )

    try:
        if wanted.first_check_seconds is not None:
            broker.half_messages.prepare(
                topic,
                wanted.partition,
                wanted.key,
                wanted.value,
                wanted.headers,
                group=group_of_topic(name),
                first_check_seconds=wanted.first_check_seconds,
                stored=prepared,
            )
        elif wanted.due_ms is not None:
            delayed = broker.delayed_records.add(
                topic, wanted.partition, wanted.key, wanted.value, wanted.headers, wanted.due_ms, scheduled
            )
        else:
            broker.record_waves.add(
                topic,
                wanted.partition,
                wanted.key,
                wanted.value,
                wanted.headers,
                broker.now_ms(),
                written,
            )
    except PosthouseError as error:
        failed(error)
