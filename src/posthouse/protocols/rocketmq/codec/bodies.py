"""JSON bodies about message queues: consumer lists (38), locks (41, 42) and offset tables (220).

All are written compact, since the Go client does not read blanks. Those of upstream are JSON, but for offset
tables: their keys are objects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from posthouse.protocols.rocketmq.codec.errors import BadBody
from posthouse.protocols.rocketmq.codec.lenient_json import Json, decode_json
from posthouse.protocols.rocketmq.codec.members import Members, number

encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MessageQueue:
    topic: str
    broker: str
    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLocks:
    """A request to lock queues, or to unlock them."""

    group: str
    client: str
    queues: tuple[MessageQueue, ...]
    is_for_this_broker_only: bool = False


def encode_consumer_list(clients: Iterable[str]) -> bytes:
    return encode_json({"consumerIdList": list(clients)})


def decode_consumer_list(body: bytes | memoryview) -> tuple[str, ...]:
    return Members(decode_json(body), "a list of consumers").texts("consumerIdList")


def encode_queue_locks(locks: QueueLocks) -> bytes:
    return encode_json(
        {
            "clientId": locks.client,
            "consumerGroup": locks.group,
            "mqSet": [_queue(each) for each in locks.queues],
            "onlyThisBroker": locks.is_for_this_broker_only,
        }
    )


def decode_queue_locks(body: bytes | memoryview) -> QueueLocks:
    members = Members(decode_json(body), "a request to lock queues")
    return QueueLocks(
        group=members.text("consumerGroup"),
        client=members.text("clientId"),
        queues=_read_queues(members, "mqSet"),
        is_for_this_broker_only=members.truth("onlyThisBroker"),
    )


def encode_locked_queues(queues: Iterable[MessageQueue]) -> bytes:
    """The answer to a request to lock: those that the client now holds."""
    return encode_json({"lockOKMQSet": [_queue(each) for each in queues]})


def decode_locked_queues(body: bytes | memoryview) -> tuple[MessageQueue, ...]:
    return _read_queues(Members(decode_json(body), "an answer with locked queues"), "lockOKMQSet")


def encode_offset_table(offsets: Mapping[MessageQueue, int]) -> bytes:
    """For all clients but those in C++, byte for byte as fastjson: Go's reads it with string functions."""
    return encode_by_queue(offsets)


def encode_by_queue(values: Mapping[MessageQueue, Json]) -> bytes:
    """The member `offsetTable`, whose keys are objects."""
    entries = (encode_json(_queue(queue)) + b":" + encode_json(value) for queue, value in values.items())
    return b'{"offsetTable":{' + b",".join(entries) + b"}}"


def encode_offset_list(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The same for clients in C++ (language CPP), which read strict JSON."""
    entries = [
        {
            "brokerName": queue.broker,
            "offset": offset,
            "queueId": queue.queue,
            "topic": queue.topic,
        }
        for queue, offset in offsets.items()
    ]
    return encode_json({"offsetTable": entries})


def decode_offset_table(body: bytes | memoryview) -> dict[MessageQueue, int]:
    """In either form."""
    members = Members(decode_json(body), "an offset table")
    if members.is_list("offsetTable"):
        return {_read_queue(each): each.number("offset") for each in members.objects("offsetTable")}
    return {
        _read_queue(Members(_key(key), "the key of an offset")): number(value, "an offset")
        for key, value in members.items("offsetTable")
    }


def _key(text: str) -> Json:
    try:
        return decode_json(text.encode())
    except BadBody:
        raise BadBody(f"the key of an offset is no message queue: {text[:100]}") from None


def _queue(queue: MessageQueue) -> dict[str, str | int]:
    # In the order in which fastjson writes them.
    return {"brokerName": queue.broker, "queueId": queue.queue, "topic": queue.topic}


def _read_queues(members: Members, name: str) -> tuple[MessageQueue, ...]:
    return tuple(_read_queue(each) for each in members.objects(name))


def _read_queue(members: Members) -> MessageQueue:
    return MessageQueue(
        topic=members.text("topic"), broker=members.text("brokerName"), queue=members.number("queueId")
    )
