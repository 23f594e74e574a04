"""Sends: single messages and batches, at once or later."""

import random
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from posthouse.broker.access.operations import Operation
from posthouse.broker.delayed_records import DelayedId
from posthouse.broker.record_limits import check_record
from posthouse.model.errors import AccessRefused, PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.batch_bodies import decode_batch
from posthouse.protocols.rocketmq.codec.codes import (
    LITE_TOPIC,
    MESSAGE_CLUSTER,
    PRIORITY,
    REPLY_TO_CLIENT,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    ResponseCode,
)
from posthouse.protocols.rocketmq.codec.message_ids import make_message_id
from posthouse.protocols.rocketmq.codec.properties import decode_properties
from posthouse.protocols.rocketmq.compressed_bodies import plain_body
from posthouse.protocols.rocketmq.delays import MOST_RETRIES, due_ms
from posthouse.protocols.rocketmq.delays import PROPERTIES as DELAYS
from posthouse.protocols.rocketmq.messages import (
    LONGEST_PROPERTIES,
    Message,
    record_headers,
    record_key,
)
from posthouse.protocols.rocketmq.names import (
    BROKER,
    CLUSTER,
    RETRY,
    check_may_write,
    dead_letter_topic,
    is_of_group,
)
from posthouse.protocols.rocketmq.positions import pack_position
from posthouse.protocols.rocketmq.priorities import (
    LOWEST,
    has_said,
    is_of_another_type,
    queue_of,
    refusal,
    stored_priority,
)
from posthouse.protocols.rocketmq.recall_handles import RecallHandle
from posthouse.protocols.rocketmq.remoting.call import Call, is_permitted
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.handlers.transactions import prepare

SHORT_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}


class _Wanted(NamedTuple):
    """A send as it was asked for."""

    topic: str
    permission: str
    """The topic that the client has named, which decides whether it may."""
    queue: int
    system_flags: int
    message: Message
    is_batch: bool
    priority: int | None


def send_v2(call: Call) -> Coroutine[Any, Any, None] | None:
    """The same with short names."""
    fields = call.request.fields
    call.request.fields = {SHORT_NAMES.get(name, name): value for name, value in fields.items()}
    return send(call)


def send_batch(call: Call) -> Coroutine[Any, Any, None] | None:
    fields = call.request.fields
    call.request.fields = {SHORT_NAMES.get(name, name): value for name, value in fields.items()}
    call.request.fields["batch"] = "true"
    return send(call)


def send(call: Call) -> Coroutine[Any, Any, None] | None:
    wanted = _wanted(call)
    if not is_permitted(call, Operation.WRITE, wanted.permission):
        raise AccessRefused(f"no permission to write to topic {wanted.permission!r}")
    server = call.connection.server
    topic = server.topics.find_settled(wanted.topic)
    if topic is None:
        return _create_and_send(call, wanted)
    return _send(call, wanted, topic)


async def _create_and_send(call: Call, wanted: _Wanted) -> None:
    queues = 1 if wanted.topic.startswith("%") else call.number("defaultTopicQueueNums", 1)

    def check() -> None:
        if not is_permitted(call, Operation.CREATE, wanted.permission):
            raise AccessRefused(f"no permission to create topic {wanted.topic!r}")

    topic = await call.connection.server.topics.obtain(wanted.topic, queues, check)
    # Nothing is awaited in between: sends keep their order.
    if (later := _send(call, wanted, topic)) is not None:
        await later


async def _send_with_priority(call: Call, wanted: _Wanted) -> None:
    """The first message of the topic that has one."""
    topic = await call.connection.server.topics.with_priorities(wanted.topic)
    _send(call, wanted, topic)


def _wanted(call: Call) -> _Wanted:
    named = name = call.text("topic")
    check_may_write(name)
    text = call.request.fields.get("properties", "")
    properties = _properties(text)
    reconsumed = call.number("reconsumeTimes", 0)
    queue = call.number("queueId", -1)
    if name.startswith(RETRY) and _is_dead(call, name.removeprefix(RETRY), reconsumed):
        name, queue = dead_letter_topic(name.removeprefix(RETRY)), 0
        properties = {key: value for key, value in properties.items() if key not in DELAYS}
    priority = None
    if PRIORITY in properties:
        if is_of_another_type(properties):
            del properties[PRIORITY]
        elif not is_of_group(name):  # they have one queue
            priority = stored_priority(properties)
    if REPLY_TO_CLIENT in properties:
        properties[MESSAGE_CLUSTER] = CLUSTER
    connection = call.connection
    message = Message(
        body=bytes(call.request.body),
        properties=properties,
        born_at=call.number("bornTimestamp", 0) or connection.server.broker.now_ms(),
        born_host=connection.host,
        flag=_int32(call.number("flag", 0)),
        reconsume_times=_int32(reconsumed),
    )
    return _Wanted(name, named, queue, call.number("sysFlag", 0), message, call.truth("batch"), priority)


def _is_dead(call: Call, group: str, reconsumed: int) -> bool:
    """Consumers send a retry themselves when the broker did not take the message back, with a count that has
    this retry in it. Those in order try again without the broker, and send only what they give up."""
    if reconsumed > call.number("maxReconsumeTimes", MOST_RETRIES):
        return True
    return call.connection.server.locks.is_used_by(group)


def _properties(text: str) -> dict[str, str]:
    if len(text.encode()) > LONGEST_PROPERTIES:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"properties of more than {LONGEST_PROPERTIES} bytes")
    properties = decode_properties(text)
    if properties.get(LITE_TOPIC):
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "lite topics are not supported; use topics, or tags")
    return properties


def _int32(value: int) -> int:
    if not -(1 << 31) <= value < 1 << 31:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"{value} has more than 32 bits")
    return value


def _queue(wanted: _Wanted, topic: Topic) -> int:
    """The one that the client has chosen, unless the message has a priority."""
    if wanted.priority is not None and not wanted.is_batch:
        if (reason := refusal(topic)) is not None:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, reason)
        return queue_of(wanted.priority, topic)
    if wanted.queue < 0:
        return LOWEST if topic.config.rocketmq_priority_enable else random.randrange(topic.partitions)
    if wanted.queue >= topic.partitions:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"topic {wanted.topic!r} has {topic.partitions} queues, and no {wanted.queue}",
        )
    return wanted.queue


def _send(call: Call, wanted: _Wanted, topic: Topic) -> Coroutine[Any, Any, None] | None:
    queue = _queue(wanted, topic)
    body = plain_body(wanted.message.body, wanted.system_flags, topic.config.max_message_bytes)
    if wanted.is_batch:
        wanted.message.body = body
        _write_batch(call, wanted, topic, queue)
        return None
    message = wanted.message
    if wanted.priority is not None and not has_said(topic):
        check_record(topic, record_key(message.properties), body, record_headers(message))
        return _send_with_priority(call, wanted)
    message.body = body
    if message.properties.get(TRANSACTION_PREPARED) == "true":
        prepare(call, topic, queue, message)
    else:
        _write(call, wanted, topic, queue)
    return None


def _write(call: Call, wanted: _Wanted, topic: Topic, queue: int) -> None:
    """At once, or later."""
    broker = call.connection.server.broker
    message = wanted.message
    now = broker.now_ms()
    due = due_ms(message.properties, now)
    if not wanted.topic.startswith(RETRY):  # the delay of a retry is not the producer's
        message.due_ms = due
    key, body, headers = record_key(message.properties), message.body, record_headers(message)
    if due is None:

        def written(result: int | PosthouseError) -> None:
            if isinstance(result, int):
                _answer(call, wanted, queue, [result])
            else:
                call.fail(result)

        broker.record_waves.add(topic, queue, key, body, headers, now, written)
    else:

        def stored(error: PosthouseError | None) -> None:
            if error is None:
                _answer(call, wanted, queue, [0], delayed)
            else:
                call.fail(error)

        delayed = broker.delayed_records.add(topic, queue, key, body, headers, due, stored)


def _write_batch(call: Call, wanted: _Wanted, topic: Topic, queue: int) -> None:
    """All of it or, if one message is refused when it is looked at, nothing."""
    broker = call.connection.server.broker
    outer = wanted.message
    now = broker.now_ms()
    records: list[tuple[bytes | None, bytes, bytes]] = []
    for each in decode_batch(outer.body):
        properties = _properties(each.properties)
        if due_ms(properties, now) is not None:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "messages of a batch cannot be delayed")
        if stored_priority(properties) is not None and not is_of_another_type(properties):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "messages of a batch share a queue, and have no priorities"
            )
        message = Message(
            body=each.body,
            properties=properties,
            born_at=outer.born_at,
            born_host=outer.born_host,
            flag=each.flag,
            reconsume_times=outer.reconsume_times,
        )
        key, headers = record_key(properties), record_headers(message)
        check_record(topic, key, each.body, headers)
        records.append((key, each.body, headers))
    if not records:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch without messages")
    offsets: list[int] = []
    failures: list[PosthouseError] = []

    def written(result: int | PosthouseError) -> None:
        if isinstance(result, int):
            offsets.append(result)
        else:
            failures.append(result)
        if len(offsets) + len(failures) == len(records):
            if failures:
                call.fail(failures[0])
            else:
                _answer(call, wanted, queue, offsets)

    for key, body, headers in records:
        broker.record_waves.add(topic, queue, key, body, headers, now, written)


def _answer(
    call: Call, wanted: _Wanted, queue: int, offsets: list[int], delayed: DelayedId | None = None
) -> None:
    is_retry = wanted.topic.startswith(RETRY)
    host = call.connection.own_host
    ids = [make_message_id(host, pack_position(queue, each, is_retry=is_retry)) for each in offsets]
    fields = {"msgId": ",".join(ids), "queueId": str(queue), "queueOffset": str(offsets[0])}
    id = wanted.message.properties.get(UNIQUE_KEY)
    if id is not None:
        fields["transactionId"] = id
    if delayed is not None:
        handle = RecallHandle(topic=wanted.topic, broker=BROKER, message_id=id or "", delayed=delayed)
        fields["recallHandle"] = handle.encode(call.connection.server.handle_key)
    call.answer(fields=fields)
