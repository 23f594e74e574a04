"""Clients that come, go, fail and change their minds: what was confirmed is consumed, whatever they do."""

import asyncio
import random

import pytest
from pamqp.commands import Basic, Channel, Confirm, Queue

from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import Wire
from tests.wire.amqp import Content

MESSAGES = 300
PUBLISHERS = 3


class Churn:
    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = random.Random(seed)
        self.confirmed: set[bytes] = set()
        self.settled: set[bytes] = set()
        self.publishing = PUBLISHERS

    async def publish(self, number: int) -> None:
        async with await self.rig.open() as wire:
            await wire.call(1, Confirm.Select())
            unconfirmed: dict[int, bytes] = {}
            for tag in range(1, MESSAGES + 1):
                body = b"%d/%d" % (number, tag)
                unconfirmed[tag] = body
                wire.publish(1, self.random.choice(("", "amq.fanout")), "q", body)
                if self.random.random() < 0.1:
                    await asyncio.sleep(0)
            while unconfirmed:
                ack = await wire.expect(1, Basic.Ack)
                up_to = ack.delivery_tag
                spoken_of = [tag for tag in unconfirmed if tag <= up_to] if ack.multiple else [up_to]
                self.confirmed |= {unconfirmed.pop(tag) for tag in spoken_of}
        self.publishing -= 1

    @property
    def is_over(self) -> bool:
        return not self.publishing and self.confirmed <= self.settled

    async def consume(self) -> None:
        while not self.is_over:
            wire = await self.rig.open()
            try:
                await self._one_life(wire)
            finally:
                wire.writer.transport.abort()

    async def _one_life(self, wire: Wire) -> None:
        await wire.call(1, Basic.Qos(prefetch_count=self.random.choice((0, 1, 7, 50))))
        await wire.call(1, Basic.Consume(queue="q"))
        held: dict[int, bytes] = {}
        for _ in range(self.random.randint(1, 80)):
            got = await self._next(wire)
            if got is None:
                return
            held[got.method.delivery_tag] = got.body
            tag = self.random.choice(list(held))
            match self.random.randint(0, 9):
                case 0 | 1 | 2 | 3:
                    wire.send(1, Basic.Ack(tag))
                    self.settled.add(held.pop(tag))
                case 4 | 5:
                    wire.send(1, Basic.Ack(tag, True))
                    for each in [each for each in held if each <= tag]:
                        self.settled.add(held.pop(each))
                case 6:
                    wire.send(1, Basic.Nack(tag, False, True))
                    del held[tag]
                case 7:
                    wire.send(1, Basic.Reject(tag, True))
                    del held[tag]
                case 8 if self.random.random() < 0.2:
                    wire.send(1, Channel.Close(200, "", 0, 0))
                    return
        await wire.writer.drain()
        await asyncio.sleep(0.002)  # or the last acks would not be read before the connection is gone

    async def _next(self, wire: Wire) -> Content | None:
        """None where nothing comes, as when the prefetch is used up: then this life has been long enough."""
        while True:
            try:
                _, got = await wire.receive(0.05)
            except TimeoutError:
                return None
            if isinstance(got, Content):
                return got


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_that_was_confirmed_is_lost(seed: int) -> None:
    async with Rig() as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        await wire.call(1, Queue.Bind(queue="q", exchange="amq.fanout"))
        churn = Churn(rig, seed)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for number in range(PUBLISHERS):
                tasks.create_task(churn.publish(number))
            for _ in range(4):
                tasks.create_task(churn.consume())
        assert len(churn.confirmed) == MESSAGES * PUBLISHERS
        assert churn.confirmed == churn.settled
