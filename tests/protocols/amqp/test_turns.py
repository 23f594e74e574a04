"""Clients that send very much: others have their turn in between, and nothing of it stays behind."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from pamqp.commands import Basic, Confirm, Queue

from bench.queues import frames
from posthouse.protocols.amqp.connection import AmqpConnection
from posthouse.protocols.amqp.others_turns import TURN_BYTES
from tests.protocols.amqp.rig import Rig

BODY = 1024
MESSAGE = frames.publish("", "q", bytes(BODY), 131072)
MUCH = MESSAGE * (TURN_BYTES // len(MESSAGE) + 1)
ENOUGH_TURNS = 10


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def only(rig: Rig) -> AmqpConnection:
    [connection] = rig.connections
    return connection


async def test_who_sends_much_waits_for_others() -> None:
    async with Rig() as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        connection = only(rig)
        connection.data_received(MUCH)
        paused = 0
        while connection._flow.is_paused:
            paused += 1
            await asyncio.sleep(0)
        assert 1 < paused <= ENOUGH_TURNS
        count = (await wire.call(1, Queue.Declare(queue="q", passive=True))).message_count
        assert count == len(MUCH) // len(MESSAGE)


async def test_who_sends_little_does_not() -> None:
    async with Rig() as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        connection = only(rig)
        connection.data_received(MESSAGE)
        assert not connection._flow.is_paused


async def test_reading_goes_on_after_every_turn() -> None:
    async with Rig() as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        await wire.call(1, Confirm.Select())
        count = 100 * (len(MUCH) // len(MESSAGE))
        wire.writer.write(MESSAGE * count)
        last = 0
        while last < count:
            last = (await wire.expect(1, Basic.Ack)).delivery_tag


async def test_what_is_durable_does_not_wait_for_the_collector() -> None:
    async with Rig() as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        await wire.call(1, Confirm.Select())
        with without_collector():
            only(rig).data_received(MESSAGE)
            wave = weakref.ref(rig.broker.publishing.wave)
            assert wave() is not None
            await wire.expect(1, Basic.Ack)
            for _ in range(ENOUGH_TURNS):
                await asyncio.sleep(0)
            assert wave() is None
