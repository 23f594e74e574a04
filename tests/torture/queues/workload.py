"""Publishers and consumers of queues in several virtual hosts; in each of them two queues get the same."""

import asyncio
from functools import partial
from random import Random

from pamqp.commands import Basic, Exchange, Queue

from tests.checker.history import Deliver, Drained, Subscribe
from tests.protocols.amqp.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.queues.clients import (
    PlainConsumer,
    Publisher,
    TransactionalConsumer,
    connect,
)
from tests.torture.queues.feeding import Feeder, TransactionalFeeder
from tests.torture.queues.places import DEFAULT, EXCHANGE, FANNED, PLACES, QUEUES, SINGLE, Place
from tests.torture.recording import Recorder
from tests.torture.stream.links import decode_value, insisted
from tests.torture.workloads import Client
from tests.wire.amqp import Content

FEEDER = "feeder"
"""The transactional id of what feeds the queues of several virtual hosts at once."""
_REFERRED_SECONDS = 2.5
"""After that time queues have what the last transactions have committed: brokers look every second."""


class QueueWorkload:
    most_promises = 60

    def __init__(self, recorder: Recorder, random: Random, *, is_fed: bool = False) -> None:
        """With `is_fed` Kafka producers feed the queues, too, one of them in transactions."""
        self._recorder = recorder
        about = (recorder, random)
        self.clients: list[Client] = [
            Publisher(*about, DEFAULT),
            PlainConsumer(*about, DEFAULT, SINGLE),
        ]
        for place in PLACES:
            self.clients += [
                Publisher(*about, place),
                TransactionalConsumer(*about, place, FANNED[0]),
                PlainConsumer(*about, place, FANNED[1]),
                TransactionalConsumer(*about, place, SINGLE),
            ]
        self._feeder = TransactionalFeeder(*about, FEEDER) if is_fed else None
        if self._feeder is not None:
            self.clients += [Feeder(*about), self._feeder]

    async def prepare(self, addresses: Addresses) -> None:
        for place in PLACES:
            await insisted(partial(self._declare, addresses, place))

    async def _declare(self, addresses: Addresses, place: Place) -> None:
        async with await connect(addresses, place) as wire:
            await wire.call(1, Exchange.Declare(0, EXCHANGE, "fanout", durable=True))
            for queue in QUEUES:
                await wire.call(1, Queue.Declare(0, queue, durable=True))
            for queue in FANNED:
                await wire.call(1, Queue.Bind(0, queue, EXCHANGE, ""))
            await wire.close()

    async def finish(self, addresses: Addresses) -> None:
        if self._feeder is not None:
            await insisted(partial(self._feeder.settle, addresses))
            await asyncio.sleep(_REFERRED_SECONDS)
        process = self._recorder.process()
        for place in PLACES:
            async with await connect(addresses, place) as wire:
                for queue in QUEUES:
                    label = place.label(queue)
                    self._recorder.add(Subscribe(process, self._recorder.now(), label))
                    self._recorder.add(Drained(label, await self._drain(wire, place, queue, process)))
                await wire.close()
        if self._feeder is not None:
            self._feeder.check(self._recorder.history)

    async def _drain(self, wire: Wire, place: Place, queue: str, process: int) -> list[int]:
        values: list[int] = []
        label = place.label(queue)
        while True:
            got = await wire.call(1, Basic.Get(0, queue, no_ack=False))
            if not isinstance(got, Content):
                return values
            value = decode_value(got.body)
            values.append(value)
            redelivered = got.method.redelivered
            self._recorder.add(Deliver(process, self._recorder.now(), label, value, redelivered))
            wire.send(1, Basic.Ack(got.method.delivery_tag, False))
