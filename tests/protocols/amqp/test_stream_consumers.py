"""Readers of a stream that do not keep up hold back neither the others nor the broker's memory."""

import asyncio
from typing import Any

from pamqp.commands import Basic, Channel, Queue

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.quotas import Entity, Quota
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.protocols.amqp.limits import AmqpLimits
from tests.protocols.amqp.guarded import GuardedRig
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import Wire

KIB = 1024
STREAM: dict[str, Any] = {"x-queue-type": "stream"}


def read(prefetch: int, start: Any = "first") -> list[Any]:
    return [
        Basic.Qos(prefetch_count=prefetch),
        Basic.Consume(queue="s", arguments={"x-stream-offset": start}),
    ]


async def filled(wire: Wire, count: int, size: int) -> None:
    await wire.call(1, Queue.Declare(queue="s", durable=True, arguments=STREAM))
    for _ in range(count):
        wire.publish(1, "", "s", b"x" * size)
    await wire.call(1, Queue.Declare(queue="s", passive=True))


async def bodies(wire: Wire, count: int) -> int:
    """How many bytes came with so many messages."""
    received = size = 0
    while received < count:
        _, got = await wire.receive()
        if hasattr(got, "body"):
            received += 1
            size += len(got.body)
    return size


async def test_a_reader_that_does_not_read_is_not_delivered_to() -> None:
    async with Rig(buffer=100 * KIB) as rig, await rig.open() as wire:
        await filled(wire, 2000, 10 * KIB)
        slow = await rig.open()
        slow.reader._limit = 1  # type: ignore[attr-defined]
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for method in read(60_000):
            slow.send(1, method)
        slow.send(1, Channel.Flow(True))
        while not any(each._outbox.is_congested for each in rig.connections):
            await asyncio.sleep(0.001)
        for method in read(10_000):
            await wire.call(1, method)
        assert await bodies(wire, 2000) == 2000 * 10 * KIB, "others are not held back"
        held = max(each._outbox.unsent for each in rig.connections)
        assert held < 2000 * 10 * KIB / 4
        stream = rig.broker.namespaces.get("/").queues["s"]
        assert isinstance(stream, StreamQueue)
        assert all(reading._window._size < 2048 * KIB for reading in stream._readings)
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        slow.reader._limit = 2**20  # type: ignore[attr-defined]
        assert await bodies(slow, 2000) == 2000 * 10 * KIB
        await slow.close()


async def test_no_more_than_a_channel_may_hold() -> None:
    async with Rig(limits=AmqpLimits(max_unacked=7)) as rig, await rig.open() as wire:
        await filled(wire, 20, 10)
        for method in read(100):
            await wire.call(1, method)
        last = [(await wire.content(1)).method.delivery_tag for _ in range(7)][-1]
        await wire.nothing()
        wire.send(1, Basic.Ack(delivery_tag=last, multiple=True))
        assert [(await wire.content(1)).method.delivery_tag for _ in range(7)][-1] == 14
        await wire.nothing()


async def test_a_stream_that_is_deleted_while_a_reader_is_looking_for_its_offset() -> None:
    async with Rig() as rig, await rig.open() as wire, await rig.open() as other:
        await filled(wire, 5, 10)
        await wire.call(1, Basic.Qos(prefetch_count=1))
        wire.send(1, Basic.Consume(queue="s", arguments={"x-stream-offset": "last"}))
        other.send(1, Queue.Delete(queue="s"))
        await other.expect(1, Queue.DeleteOk)
        while True:
            _, got = await wire.receive()
            if isinstance(got, Basic.Cancel | Channel.Close):
                break
        assert "s" not in rig.broker.namespaces.get("/").queues


async def test_a_reader_waits_until_its_quota_is_paid() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (Operation.ALL, "*"))
        async with await rig.log_in() as admin, await rig.log_in("ann") as wire:
            await filled(admin, 160, KIB)
            await rig.broker.access.quotas.change(Entity("ann"), {Quota.READ: 100_000})
            begun = asyncio.get_running_loop().time()
            for method in read(1000):
                await wire.call(1, method)
            await bodies(wire, 160)
            assert asyncio.get_running_loop().time() - begun > 0.3


async def test_who_may_not_read_the_topic_may_not_read_the_stream() -> None:
    async with GuardedRig() as rig:
        await rig.with_user("ann", (Operation.WRITE, "s"), (Operation.DESCRIBE, "s"))
        async with await rig.log_in() as admin, await rig.log_in("ann") as wire:
            await filled(admin, 1, 10)
            wire.publish(1, "", "s", b"may write")
            refused = await wire.refused(1, read(10))
            assert refused.code == 403
            assert (await admin.call(1, Queue.Declare(queue="s", passive=True))).message_count == 2
