"""RocketMQ's frames, messages, batches, ids, properties and JSON bodies."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from posthouse.protocols.rocketmq.codec import bodies, heartbeats, routes
from posthouse.protocols.rocketmq.codec.batch_bodies import BatchMessage, decode_batch, encode_batch
from posthouse.protocols.rocketmq.codec.bodies import MessageQueue, QueueLocks
from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.errors import (
    BadBatch,
    BadBody,
    BadFrame,
    BadMessageId,
    BadProperties,
    BadStoredMessage,
)
from posthouse.protocols.rocketmq.codec.frames import FrameDecoder, encode_command
from posthouse.protocols.rocketmq.codec.heartbeats import ConsumerGroup, Heartbeat, Subscription
from posthouse.protocols.rocketmq.codec.hosts import pack_host
from posthouse.protocols.rocketmq.codec.message_ids import make_message_id, parse_message_id
from posthouse.protocols.rocketmq.codec.properties import decode_properties, encode_properties
from posthouse.protocols.rocketmq.codec.routes import BrokerRoute, QueueRoute, Route, TopicConfiguration
from posthouse.protocols.rocketmq.codec.stored_messages import (
    LONGEST_PROPERTIES,
    StoredMessage,
    decode_stored_messages,
    encode_stored_message,
)
from tests.fuzz.target import Target

MAX_FRAME: Final = 4096
MAX_HEADER: Final = 2048
_PROPERTIES: Final = "KEYS\x01k1 k2\x02TAGS\x01A\x02UNIQ_KEY\x017F0000010A2B18B4AAC2123456780001\x02"


def stream(data: bytes) -> None:
    """However a stream is cut, the same comes out of it, and no more is held than arrived."""
    if not data:
        return
    commands = _commands(data[1:], data[0] + 1)
    assert commands == _commands(data[1:], len(data))
    for command in commands[0]:
        (again,) = FrameDecoder().feed(encode_command(command))
        if not command.remark:
            again = replace(again, remark=command.remark)
        assert again == command


def _commands(data: bytes, piece: int) -> tuple[list[Command], int]:
    decoder = FrameDecoder(max_frame=MAX_FRAME, max_header=MAX_HEADER)
    commands: list[Command] = []
    faults = 0
    for start in range(0, len(data), piece):
        try:
            commands += decoder.feed(data[start : start + piece])
        except BadFrame as error:
            commands += error.commands
            faults += 1
        assert decoder.held <= len(data)
    return commands, faults


def _stream_seeds() -> Iterator[bytes]:
    fields = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "i": _PROPERTIES, "m": "false"}
    sent = Command(310, 7, fields=fields, body=b"hello")
    binary = replace(sent, serialization=Serialization.BINARY, language="GO", remark="note")
    yield b"\xff" + encode_command(sent) + encode_command(binary)
    yield b"\x05" + encode_command(binary.answer(0, fields={"msgId": "x"})) + encode_command(sent.answer(17))
    yield b"\x20" + encode_command(Command(34, -1, 2, "127", body=b"{}", serialization=Serialization.BINARY))
    odd = b'{"code":"11","language":3,"extFields":{"a":1,"b":true,"c":null},"opaque":5,"x":[{}]}'
    yield b"\x30" + (len(odd) + 4).to_bytes(4) + len(odd).to_bytes(4) + odd


def stored(data: bytes) -> None:
    try:
        messages = decode_stored_messages(data)
    except BadStoredMessage:
        return
    for message in messages:
        with suppress(BadStoredMessage):  # what was not UTF-8 may be too long now
            (again,) = decode_stored_messages(encode_stored_message(message))
            assert again == message


def _stored_seeds() -> Iterator[bytes]:
    message = StoredMessage(
        topic="orders",
        queue=3,
        queue_offset=42,
        position=1000,
        body=b"hello",
        properties=_PROPERTIES,
        born_at=1_700_000_000_000,
        born_host=bytes(8),
        stored_at=1_700_000_000_001,
        stored_host=bytes(8),
    )
    yield encode_stored_message(message) * 2
    long = replace(message, topic="t" * 130, born_host=bytes(20))
    yield encode_stored_message(long)
    yield encode_stored_message(replace(long, stored_host=bytes(20), properties="", body=b"", crc=0))


def batch(data: bytes) -> None:
    try:
        messages = decode_batch(data)
    except BadBatch:
        return
    if all(len(each.properties.encode()) <= LONGEST_PROPERTIES for each in messages):
        assert decode_batch(encode_batch(messages)) == messages


def _batch_seeds() -> Iterator[bytes]:
    first = BatchMessage(flag=5, body=b"hello", properties=_PROPERTIES)
    yield encode_batch([first])
    yield encode_batch([first, BatchMessage(flag=-1, body=b"", properties=""), first])


def names(data: bytes) -> None:
    """Properties and message ids: texts out of fields."""
    text = data.decode("utf-8", "replace")
    with suppress(BadProperties):
        properties = decode_properties(text)
        assert decode_properties(encode_properties(properties)) == properties
    with suppress(BadMessageId):
        read = parse_message_id(text)
        assert make_message_id(pack_host(read.host), read.position) == text.upper()


def _name_seeds() -> Iterator[bytes]:
    yield _PROPERTIES.encode()
    yield _PROPERTIES[:-1].encode()
    yield make_message_id(bytes(8), 1000).encode()
    yield make_message_id(bytes(20), 1000).encode()


_BODIES: Final[tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...]] = (
    (heartbeats.decode_heartbeat, heartbeats.encode_heartbeat),
    (routes.decode_route, routes.encode_route),
    (routes.decode_topic_list, routes.encode_topic_list),
    (routes.decode_topic_configuration, routes.encode_topic_configuration),
    (bodies.decode_consumer_list, bodies.encode_consumer_list),
    (bodies.decode_queue_locks, bodies.encode_queue_locks),
    (bodies.decode_locked_queues, bodies.encode_locked_queues),
    (bodies.decode_offset_table, bodies.encode_offset_table),
)


def body(data: bytes) -> None:
    for decode, encode in _BODIES:
        try:
            value = decode(data)
        except BadBody:
            continue
        assert decode(encode(value)) == value


def _body_seeds() -> Iterator[bytes]:
    queue = MessageQueue(topic="t", broker="b", queue=0)
    subscription = Subscription(topic="t", expression="A || B", tags=("A", "B"), version=1_700_000_000_000)
    group = ConsumerGroup(name="g", subscriptions=(subscription,))
    yield heartbeats.encode_heartbeat(
        Heartbeat(client="c", producer_groups=("p",), consumer_groups=(group,), fingerprint=5)
    )
    yield b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":"Any"}]}'
    route = routes.encode_route(
        Route(
            brokers=(BrokerRoute(cluster="c", name="b", addresses={0: "h:1"}),),
            queues=(QueueRoute(broker="b", read_queues=4, write_queues=4),),
        )
    )
    yield route
    yield route.replace(b'"0":', b"0:")
    yield routes.encode_topic_list(["t"])
    yield routes.encode_topic_configuration(
        TopicConfiguration(name="t", read_queues=4, write_queues=4, attributes={"a": "b"})
    )
    yield bodies.encode_consumer_list(["a", "b"])
    yield bodies.encode_queue_locks(QueueLocks(group="g", client="c", queues=(queue,)))
    yield bodies.encode_locked_queues([queue])
    yield bodies.encode_offset_table({queue: 5, replace(queue, queue=1): 6})
    yield bodies.encode_offset_list({queue: 5})


TARGETS = (
    Target(name="rocketmq-stream", run=stream, seeds=_stream_seeds),
    Target(name="rocketmq-stored", run=stored, seeds=_stored_seeds, dictionary=(b"\xda\xa3\x20\xab",)),
    Target(name="rocketmq-batch", run=batch, seeds=_batch_seeds),
    Target(name="rocketmq-names", run=names, seeds=_name_seeds, dictionary=(b"\x01", b"\x02")),
    Target(name="rocketmq-body", run=body, seeds=_body_seeds, dictionary=(b"{1:", b'{{"a":1}:', b"null")),
)
