"""Publishers with confirms, and consumers that settle in transactions or by plain acknowledgements."""

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Self

from pamqp.commands import Basic, Channel, Confirm, Connection, Tx

from posthouse.settings import Address
from tests.checker.history import Ack, Deliver, Outcome, Publish, Subscribe
from tests.protocols.amqp.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.queues.places import EXCHANGE, FANNED, SINGLE, Place
from tests.torture.recording import Recorder
from tests.torture.stream.links import decode_value, encode_value
from tests.torture.workloads import RETRY_SECONDS, Refused
from tests.wire.amqp import FRAME_START, Content

WINDOW = 8
PREFETCH = 20
_CHANNEL = 1


class _Link(Wire):
    def __init__(self, addresses: Addresses) -> None:
        address = Address.parse(addresses.amqp)
        super().__init__(address.host, address.port)
        self._answer_seconds = addresses.answer_seconds

    async def connect(self) -> Self:
        async with asyncio.timeout(self._answer_seconds):
            return await super().connect()

    async def _frame_start(self, seconds: float) -> bytes:
        """Not by `asyncio.wait_for`, which may forget that its task was cancelled."""
        async with asyncio.timeout(self._answer_seconds):
            return await self.reader.readexactly(FRAME_START.size)


async def connect(addresses: Addresses, place: Place) -> Wire:
    wire = _Link(addresses)
    await wire.open(vhost=place.namespace)
    await wire.channel(_CHANNEL)
    return wire


async def receive(wire: Wire) -> object:
    _, got = await wire.receive()
    if isinstance(got, Channel.Close | Connection.Close):
        raise Refused(f"{got.reply_code} {got.reply_text}")
    return got


@dataclass(slots=True)
class _Pending:
    value: int
    queues: tuple[str, ...]
    invoked: int


class Publisher:
    """Nothing is published again, so that every value has one fate."""

    def __init__(self, recorder: Recorder, random: Random, place: Place) -> None:
        self._recorder = recorder
        self._random = random
        self._place = place
        self._process = recorder.process()
        self._unconfirmed: dict[int, _Pending] = {}

    async def live(self, addresses: Addresses) -> None:
        try:
            async with await connect(addresses, self._place) as wire:
                await wire.call(_CHANNEL, Confirm.Select())
                await self._publish(wire)
        finally:
            self._settle(list(self._unconfirmed), Outcome.UNKNOWN)

    async def _publish(self, wire: Wire) -> None:
        number = 0
        while True:
            while len(self._unconfirmed) < WINDOW:
                number += 1
                self._send(wire, number)
            got = await receive(wire)
            if isinstance(got, Basic.Ack | Basic.Nack):
                assert got.delivery_tag is not None
                tags = [got.delivery_tag]
                if got.multiple:
                    tags = [tag for tag in self._unconfirmed if tag <= got.delivery_tag]
                # A broker that refuses may have failed half-way: nobody knows.
                self._settle(tags, Outcome.OK if isinstance(got, Basic.Ack) else Outcome.UNKNOWN)
                if isinstance(got, Basic.Ack):
                    self._recorder.moved()
                else:
                    self._recorder.refused()
                    await asyncio.sleep(RETRY_SECONDS)

    def _send(self, wire: Wire, number: int) -> None:
        fanned = self._random.random() < 0.5
        value = self._recorder.value()
        self._unconfirmed[number] = _Pending(value, FANNED if fanned else (SINGLE,), self._recorder.now())
        wire.publish(
            _CHANNEL,
            EXCHANGE if fanned else "",
            "" if fanned else SINGLE,
            encode_value(value, self._random),
            delivery_mode=2,
        )

    def _settle(self, tags: list[int], outcome: Outcome) -> None:
        now = self._recorder.now()
        for tag in tags:
            pending = self._unconfirmed.pop(tag)
            for queue in pending.queues:
                label = self._place.label(queue)
                self._recorder.add(
                    Publish(self._process, pending.invoked, now, label, pending.value, outcome)
                )


@dataclass(slots=True)
class _Held:
    tag: int
    value: int
    invoked: int = 0


class TransactionalConsumer:
    """Acknowledges some at a time in a transaction: once that is committed, none of them may come back."""

    def __init__(self, recorder: Recorder, random: Random, place: Place, queue: str) -> None:
        self._recorder = recorder
        self._random = random
        self._place = place
        self._queue = queue
        self._label = place.label(queue)
        self._process = recorder.process()
        self._held: deque[_Held] = deque()
        self._committing: list[_Held] = []

    async def live(self, addresses: Addresses) -> None:
        self._held.clear()
        self._recorder.add(Subscribe(self._process, self._recorder.now(), self._label))
        try:
            async with await connect(addresses, self._place) as wire:
                await wire.call(_CHANNEL, Tx.Select())
                await wire.call(_CHANNEL, Basic.Qos(0, PREFETCH, False))
                wire.send(_CHANNEL, Basic.Consume(0, self._queue, "", False, False, False, False))
                while True:
                    self._took(await receive(wire))
                    if self._held and not self._committing:
                        self._commit(wire)
        finally:
            self._record(Outcome.UNKNOWN)

    def _took(self, got: object) -> None:
        if isinstance(got, Content):
            value = decode_value(got.body)
            self._held.append(_Held(got.method.delivery_tag, value))
            self._recorder.add(
                Deliver(self._process, self._recorder.now(), self._label, value, got.method.redelivered)
            )
        elif isinstance(got, Tx.CommitOk):
            self._record(Outcome.OK)
            self._recorder.moved()

    def _commit(self, wire: Wire) -> None:
        for _ in range(min(len(self._held), self._random.randint(1, 5))):
            held = self._held.popleft()
            held.invoked = self._recorder.now()
            self._committing.append(held)
            wire.send(_CHANNEL, Basic.Ack(held.tag, False))
        wire.send(_CHANNEL, Tx.Commit())

    def _record(self, outcome: Outcome) -> None:
        now = self._recorder.now()
        for held in self._committing:
            self._recorder.add(Ack(self._process, held.invoked, now, self._label, held.value, outcome))
        self._committing = []


class PlainConsumer:
    """Acknowledges and hears nothing of it; now and then it gives a message back."""

    def __init__(self, recorder: Recorder, random: Random, place: Place, queue: str) -> None:
        self._recorder = recorder
        self._random = random
        self._place = place
        self._queue = queue
        self._label = place.label(queue)
        self._process = recorder.process()

    async def live(self, addresses: Addresses) -> None:
        self._recorder.add(Subscribe(self._process, self._recorder.now(), self._label))
        async with await connect(addresses, self._place) as wire:
            await wire.call(_CHANNEL, Basic.Qos(0, PREFETCH, False))
            wire.send(_CHANNEL, Basic.Consume(0, self._queue, "", False, False, False, False))
            while True:
                got = await receive(wire)
                if isinstance(got, Content):
                    self._took(wire, got)

    def _took(self, wire: Wire, got: Content) -> None:
        value, tag = decode_value(got.body), got.method.delivery_tag
        now = self._recorder.now()
        self._recorder.add(Deliver(self._process, now, self._label, value, got.method.redelivered))
        if not got.method.redelivered and self._random.random() < 0.1:
            wire.send(_CHANNEL, Basic.Nack(tag, False, True))
            return
        self._recorder.add(Ack(self._process, now, now, self._label, value, Outcome.UNKNOWN))
        wire.send(_CHANNEL, Basic.Ack(tag, False))
