"""Sends: the messages of one request, at once, later, or as half messages."""

import random
import zlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.half_messages.checks import FIRST_CHECK_SECONDS, LONGEST_FIRST_CHECK
from posthouse.broker.record_limits import check_record
from posthouse.model.errors import AccessRefused, BadRequest, PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import SHARDING_KEY, UNIQUE_KEY
from posthouse.protocols.rocketmq.grpc.converting import name_of, sent_message
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Message as GrpcMessage
from posthouse.protocols.rocketmq.grpc.messages.definition import Status
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
from posthouse.protocols.rocketmq.names import check_may_write, topic_name
from posthouse.protocols.rocketmq.recall_handles import KEY_PURPOSE, RecallHandle
from posthouse.protocols.rocketmq.remoting.server import BROKER
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


def send(
    rpc: Rpc, request: SendMessageRequest, answer: Answer[SendMessageResponse]
) -> Coroutine[Any, Any, None] | None:
    if not 0 < len(request.messages) <= MOST_MESSAGES:
        raise BadRequest(f"a request has 1 to {MOST_MESSAGES} messages, and not {len(request.messages)}")
    name = name_of(request.messages[0].topic)
    if any(name_of(each.topic) != name for each in request.messages):
        raise BadRequest("the messages of a request have one topic")
    check_may_write(name)
    topic = rpc.server.topics.find_settled(name)
    if topic is None:
        return _create_and_send(rpc, request, answer, name)
    _send(rpc, request, answer, name, topic)
    return None


async def _create_and_send(
    rpc: Rpc, request: SendMessageRequest, answer: Answer[SendMessageResponse], name: str
) -> None:
    def check() -> None:
        if not rpc.guard.allows(Operation.CREATE, Kind.TOPIC, topic_name(name)):
            raise AccessRefused(f"no permission to create topic {name!r}")

    topic = await rpc.server.topics.obtain(name, DEFAULT_QUEUES, check)
    _send(rpc, request, answer, name, topic)  # nothing is awaited in between: sends keep their order


def _send(
    rpc: Rpc,
    request: SendMessageRequest,
    answer: Answer[SendMessageResponse],
    name: str,
    topic: Topic,
) -> None:
    if not rpc.guard.allows(Operation.WRITE, Kind.TOPIC, topic.name):
        raise AccessRefused(f"no permission to write to topic {name!r}")
    spread = random.randrange(topic.partitions)
    wanted = [_wanted(rpc, each, topic, spread + number) for number, each in enumerate(request.messages)]
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
    kind = system.message_type
    if kind in (MessageType.LITE, MessageType.PRIORITY) or system.lite_topic or system.priority is not None:
        raise Refused(Code.UNSUPPORTED, "lite topics and priorities are not supported")
    is_half = kind == MessageType.TRANSACTION
    due = None if system.delivery_timestamp is None else system.delivery_timestamp.ms
    if is_half and (due is not None or SHARDING_KEY in message.properties):
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "a message of a transaction has neither a delivery time nor a message group",
        )
    group = message.properties.get(SHARDING_KEY)
    if (kind == MessageType.FIFO and group is None) or (kind == MessageType.DELAY and due is None):
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "an ordered message needs a message group, and a delayed one a delivery time",
        )
    first_check = None
    if is_half:
        given = system.orphaned_transaction_recovery_duration
        seconds = FIRST_CHECK_SECONDS if given is None or given.ms <= 0 else given.ms // 1000
        first_check = min(seconds, LONGEST_FIRST_CHECK)
    chosen = spread if group is None else zlib.crc32(group.encode())
    key, headers = record_key(message.properties), record_headers(message)
    check_record(topic, key, message.body, headers)
    return _Wanted(
        id=message.properties[UNIQUE_KEY],
        partition=chosen % topic.partitions,
        key=key,
        value=message.body,
        headers=headers,
        due_ms=due if due is not None and due > now else None,
        first_check_seconds=first_check,
    )


def _store(rpc: Rpc, topic: Topic, name: str, wanted: _Wanted, done: Done) -> None:
    broker = rpc.server.broker

    def failed(error: PosthouseError) -> None:
        rpc.call.metrics.errors += 1
        done(SendResultEntry(status=status_of(error)))

    def written(result: int | PosthouseError) -> None:
        if isinstance(result, PosthouseError):
            failed(result)
        else:
            id = wanted.id
            done(SendResultEntry(status=OK, message_id=id, transaction_id=id, offset=result))

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
                    transaction_id=wanted.id,
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
