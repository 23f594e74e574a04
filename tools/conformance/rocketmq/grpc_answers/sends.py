"""Sends of every type of message, and of what is none."""

import gzip
import time
from collections.abc import Iterable, Mapping
from typing import Any

from posthouse.protocols.rocketmq.grpc.messages.definition import Message, Resource, SystemProperties
from posthouse.protocols.rocketmq.grpc.messages.enums import Encoding, MessageType
from posthouse.protocols.rocketmq.grpc.messages.service import SendMessageRequest
from posthouse.protocols.rocketmq.grpc.messages.well_known import Timestamp
from tools.conformance.rocketmq.grpc_answers.steps import Steps, connected

HOUR = 3600.0
TOO_LARGE = 5 << 20
BETWEEN = 2 << 20
"""More than a topic takes here, and less than upstream's."""
NORMAL, FIFO, DELAY = MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY
_numbers = iter(range(1, 1 << 30))


def message(
    topic: str | None = "normal",
    body: bytes = b"body",
    properties: Mapping[str, str] | None = None,
    **system: Any,
) -> Message:
    """`system` are system properties. The id differs from message to message, but not from run to run."""
    known = {
        "message_id": f"01{next(_numbers):032X}",
        "message_type": NORMAL,
        "body_encoding": Encoding.IDENTITY,
    }
    return Message(
        topic=None if topic is None else Resource(name=topic),
        user_properties=properties or {},
        system_properties=SystemProperties(
            **{**known, "born_timestamp": later(0), "born_host": "10.0.0.1", **system}
        ),
        body=body,
    )


def later(seconds: float) -> Timestamp:
    return Timestamp.from_ms(int((time.time() + seconds) * 1000))


def send(*messages: Message) -> SendMessageRequest:
    return SendMessageRequest(messages=messages)


async def run(steps: Steps) -> None:
    for name, messages in _good():
        await steps.call(f"send {name}", send(*messages))
    # Where one of them takes more than the other, offsets differ from then on.
    for name, messages in (*_bad(), *_bad_properties(), *_bad_groups_and_times()):
        await steps.call(f"send {name}", send(*messages), None, "offset")
    async with connected(steps.endpoints, "unheard of") as stranger:
        await steps.call("send by an unknown client", send(message()), stranger, "offset")
    async with connected(steps.endpoints, None) as nobody:
        await steps.call("send by a client without an id", send(message()), nobody)


def _good() -> Iterable[tuple[str, tuple[Message, ...]]]:
    yield "a message", (message(),)
    tagged = message(
        "filtered", b"red", {"own": "value"}, tag="red", keys=("k1", "k2"), trace_context="trace"
    )
    yield "a message with a tag, keys and a property", (tagged,)
    yield "two messages", (message("filtered", b"blue", tag="blue"), message("filtered", b"none"))
    twice = message()
    yield "a message with an id", (twice,)
    yield "a message with the same id", (twice,)
    yield "a compressed message", (message(body=gzip.compress(b"body" * 99), body_encoding=Encoding.GZIP),)
    yield "an ordered message", (message("ordered", message_type=FIFO, message_group="one"),)
    yield "the next ordered message", (message("ordered", message_type=FIFO, message_group="one"),)
    delayed = message("delayed", message_type=DELAY, delivery_timestamp=later(HOUR))
    yield "a message for in an hour", (delayed,)
    yield (
        "a message for an hour ago",
        (message("delayed", message_type=DELAY, delivery_timestamp=later(-HOUR)),),
    )


def _bad() -> Iterable[tuple[str, tuple[Message, ...]]]:
    yield "no message", ()
    yield "messages to two topics", (message("normal"), message("filtered"))
    yield "a good and a bad message", (message(), message(body=b""))
    yield "without a topic", (message(None),)
    yield "to a topic without a name", (message(""),)
    yield "to an unknown topic", (message("unheard"),)
    yield "to a topic with a blank in its name", (message("an swers"),)
    yield "to SCHEDULE_TOPIC_XXXX", (message("SCHEDULE_TOPIC_XXXX"),)
    yield "to RMQ_SYS_TRACE_TOPIC", (message("RMQ_SYS_TRACE_TOPIC"),)
    yield "an empty body", (message(body=b""),)
    yield "a body of 2 MiB", (message(body=bytes(BETWEEN)),)
    yield "a body of 5 MiB", (message(body=bytes(TOO_LARGE)),)
    yield "a compressed body that is none", (message(body=b"body", body_encoding=Encoding.GZIP),)
    yield "without system properties", (Message(topic=Resource(name="normal"), body=b"body"),)
    yield "without an id", (message(message_id=""),)
    yield "an id of 300 letters", (message(message_id="i" * 300),)
    yield "without a type", (message(message_type=MessageType.MESSAGE_TYPE_UNSPECIFIED),)
    yield "an ordered message to a topic of normal ones", (message(message_type=FIFO, message_group="one"),)
    yield "a normal message to a topic of ordered ones", (message("ordered"),)
    yield "a message for a lite topic", (message(message_type=MessageType.LITE, lite_topic="lite"),)


def _bad_properties() -> Iterable[tuple[str, tuple[Message, ...]]]:
    yield "a blank tag", (message(tag=" "),)
    yield "an empty tag", (message(tag=""),)
    yield "a tag with a bar", (message(tag="red|blue"),)
    yield "a tag with a control character", (message(tag="red\x01"),)
    yield "a tag with a line feed", (message(tag="red\n"),)
    yield "a blank key", (message(keys=(" ",)),)
    yield "an empty key", (message(keys=("",)),)
    yield "a key with a blank", (message(keys=("one two",)),)
    yield "a key with a control character", (message(keys=("one\x02",)),)
    for name in (
        "TAGS",
        "KEYS",
        "UNIQ_KEY",
        "DELAY",
        "TIMER_DELIVER_MS",
        "PGROUP",
        "TRAN_MSG",
        "WAIT",
        "INSTANCE_ID",
    ):
        yield f"a property {name}", (message(properties={name: "value"}),)
    yield "a property without a name", (message(properties={"": "value"}),)
    yield "a property without a value", (message(properties={"own": ""}),)
    yield "a property with a control character in its name", (message(properties={"own\x01": "value"}),)
    yield "a property with a control character", (message(properties={"own": "value\x02"}),)
    yield "128 properties", (message(properties={f"own{each}": "value" for each in range(128)}),)
    yield "129 properties", (message(properties={f"own{each}": "value" for each in range(129)}),)
    yield "properties of 16 KiB", (message(properties={"own": "v" * ((16 << 10) - 3)}),)
    yield "properties of more than 16 KiB", (message(properties={"own": "v" * (17 << 10)}),)
    yield "properties of 40,000 bytes", (message(properties={"own": "v" * 40_000}),)


def _bad_groups_and_times() -> Iterable[tuple[str, tuple[Message, ...]]]:
    ordered: Any = {"topic": "ordered", "message_type": FIFO}
    yield "an ordered message without a message group", (message(**ordered),)
    yield "an empty message group", (message(**ordered, message_group=""),)
    yield "a blank message group", (message(**ordered, message_group=" "),)
    yield "a message group of 63 letters", (message(**ordered, message_group="g" * 63),)
    yield "a message group of 64 letters", (message(**ordered, message_group="g" * 64),)
    yield "a message group with a control character", (message(**ordered, message_group="g\x01"),)
    delayed: Any = {"topic": "delayed", "message_type": DELAY}
    yield "a delayed message without a time", (message(**delayed),)
    yield "a message for in two days", (message(**delayed, delivery_timestamp=later(48 * HOUR)),)
    yield "a message for in a year", (message(**delayed, delivery_timestamp=later(365 * 24 * HOUR)),)
    yield "a message for before 1970", (message(**delayed, delivery_timestamp=Timestamp(seconds=-5)),)
    yield "a normal message with a time", (message(delivery_timestamp=later(HOUR)),)
    both = message(**delayed, delivery_timestamp=later(HOUR), message_group="one")
    yield "a delayed message with a message group", (both,)
