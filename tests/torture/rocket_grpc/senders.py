"""Producers of gRPC: of normal, delayed and ordered messages, each sent once."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.grpc.messages.definition import Message, Resource, SystemProperties
from posthouse.protocols.rocketmq.grpc.messages.enums import Encoding, MessageType
from posthouse.protocols.rocketmq.grpc.messages.service import SendMessageRequest, SendMessageResponse
from posthouse.protocols.rocketmq.grpc.messages.well_known import Timestamp
from tests.checker.history import Outcome, Send
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.rocket_grpc.link import GrpcLink, NotStored, check
from tests.torture.stream.links import encode_value
from tests.torture.workloads import RETRY_SECONDS

JOBS: Final = "grpc-jobs"
LANES: Final = "grpc-lanes"
MESSAGE_GROUPS: Final = ("anna", "bert", "cleo", "dora", "emil")
LONGEST_DELAY_MS: Final = 1500
NOWHERE: Final = -1
"""In place of the queue, which a producer is not told. The last look finds it."""


def message_of(topic: str, value: int, random: Random, **system: object) -> Message:
    properties = SystemProperties(
        message_id=f"{value:034X}",
        keys=(f"key-{value}",),
        body_encoding=Encoding.IDENTITY,
        **system,  # type: ignore[arg-type]
    )
    return Message(topic=Resource(name=topic), system_properties=properties, body=encode_value(value, random))


class Sender:
    """Of what has no order: one by one, some in one request, and some for later."""

    def __init__(self, recorder: Recorder, random: Random, *, delays: bool) -> None:
        self._recorder = recorder
        self._random = random
        self._process = recorder.process()
        self._ways = [self._send, self._send, self._send_some, *([self._delay] if delays else [])]
        self.delayed: set[int] = set()
        """Values that the broker has taken, to be seen later."""
        self.latest_due = 0.0

    async def live(self, addresses: Addresses) -> None:
        async with GrpcLink(addresses, f"sender-{self._process}") as link:
            while True:
                try:
                    await self._random.choice(self._ways)(link)
                except NotStored:
                    self._recorder.refused()
                    await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, link: GrpcLink) -> None:
        value = self._recorder.value()
        message = message_of(JOBS, value, self._random, message_type=MessageType.NORMAL)
        await sent(link, self._recorder, self._process, [value], [message])

    async def _send_some(self, link: GrpcLink) -> None:
        values = [self._recorder.value() for _ in range(self._random.choice((2, 5)))]
        messages = [message_of(JOBS, each, self._random, message_type=MessageType.NORMAL) for each in values]
        await sent(link, self._recorder, self._process, values, messages)

    async def _delay(self, link: GrpcLink) -> None:
        """It has no place among the others: each is of a process of its own."""
        value, delay = self._recorder.value(), self._random.randrange(1, LONGEST_DELAY_MS)
        due = Timestamp.from_ms(time.time_ns() // 1_000_000 + delay)
        kind = MessageType.DELAY
        message = message_of(JOBS, value, self._random, message_type=kind, delivery_timestamp=due)
        await sent(link, self._recorder, self._recorder.process(), [value], [message], has_offset=False)
        self.delayed.add(value)
        self.latest_due = time.monotonic() + delay / 1000


class OrderedSender:
    """Of messages with message groups; several senders share a group."""

    def __init__(self, recorder: Recorder, random: Random) -> None:
        self._recorder = recorder
        self._random = random
        self._process = recorder.process()

    async def live(self, addresses: Addresses) -> None:
        async with GrpcLink(addresses, f"sender-{self._process}") as link:
            while True:
                try:
                    await self._send(link)
                except NotStored:
                    self._recorder.refused()
                    await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, link: GrpcLink) -> None:
        values = [self._recorder.value() for _ in range(self._random.choice((1, 1, 3)))]
        group = self._random.choice(MESSAGE_GROUPS)
        messages = [
            message_of(LANES, each, self._random, message_type=MessageType.FIFO, message_group=group)
            for each in values
        ]
        await sent(link, self._recorder, self._process, values, messages)


async def sent(
    link: GrpcLink,
    recorder: Recorder,
    process: int,
    values: Sequence[int],
    messages: Sequence[Message],
    *,
    has_offset: bool = True,
    transaction: int | None = None,
) -> SendMessageResponse:
    """Send them in one request, and note what became of each. Raises NotStored, and Refused."""
    invoked = recorder.now()
    topic = messages[0].topic
    assert topic is not None
    told: list[tuple[Outcome, int | None]] = [(Outcome.UNKNOWN, None)] * len(values)
    try:
        response = await link.ask(SendMessageRequest(messages=tuple(messages)), SendMessageResponse)
        for number, entry in enumerate(response.entries):
            check("SendMessage", entry.status)
            told[number] = Outcome.OK, entry.offset if has_offset else None
        check("SendMessage", response.status)
    finally:
        now = recorder.now()
        for value, (outcome, offset) in zip(values, told, strict=True):
            place = topic.name, NOWHERE
            recorder.add(Send(process, invoked, now, place, value, outcome, offset, transaction))
    recorder.moved()
    return response
