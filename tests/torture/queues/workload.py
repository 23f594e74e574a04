"""Publishers and consumers of three queues, two of which get the same messages."""

from collections.abc import Sequence
from random import Random

from pamqp.commands import Basic, Exchange, Queue

from tests.checker.history import Deliver, Drained, Subscribe
from tests.protocols.amqp.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.queues.clients import (
    EXCHANGE,
    FANNED,
    QUEUES,
    SINGLE,
    PlainConsumer,
    Publisher,
    TransactionalConsumer,
    connect,
)
from tests.torture.recording import Recorder
from tests.torture.stream.links import decode_value
from tests.torture.workloads import Client
from tests.wire.amqp import Content


class QueueWorkload:
    most_promises = 60

    def __init__(self, recorder: Recorder, random: Random) -> None:
        self._recorder = recorder
        self.clients: Sequence[Client] = [
            Publisher(recorder, random),
            Publisher(recorder, random),
            TransactionalConsumer(recorder, random, FANNED[0]),
            PlainConsumer(recorder, random, FANNED[1]),
            TransactionalConsumer(recorder, random, SINGLE),
            PlainConsumer(recorder, random, SINGLE),
        ]

    async def prepare(self, addresses: Addresses) -> None:
        async with await connect(addresses) as wire:
            await wire.call(1, Exchange.Declare(0, EXCHANGE, "fanout", durable=True))
            for queue in QUEUES:
                await wire.call(1, Queue.Declare(0, queue, durable=True))
            for queue in FANNED:
                await wire.call(1, Queue.Bind(0, queue, EXCHANGE, ""))
            await wire.close()

    async def finish(self, addresses: Addresses) -> None:
        process = self._recorder.process()
        async with await connect(addresses) as wire:
            for queue in QUEUES:
                self._recorder.add(Subscribe(process, self._recorder.now(), queue))
                self._recorder.add(Drained(queue, await self._drain(wire, queue, process)))
            await wire.close()

    async def _drain(self, wire: Wire, queue: str, process: int) -> list[int]:
        values: list[int] = []
        while True:
            got = await wire.call(1, Basic.Get(0, queue, no_ack=False))
            if not isinstance(got, Content):
                return values
            value = decode_value(got.body)
            values.append(value)
            redelivered = got.method.redelivered
            self._recorder.add(Deliver(process, self._recorder.now(), queue, value, redelivered))
            wire.send(1, Basic.Ack(got.method.delivery_tag, False))
