"""Clients that send faster than it can be stored, or do not take what they are sent."""

import asyncio

from pamqp.commands import Basic, Channel, Confirm, Connection, Queue

from posthouse.model.errors import StorageFull
from posthouse.protocols.amqp.limits import AmqpLimits
from tests.protocols.amqp.rig import GatedStorage, Rig
from tests.protocols.amqp.wire import Wire

KIB = 1024


async def test_reading_pauses_while_too_much_is_not_durable() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage, buffer=100 * KIB) as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        await wire.call(1, Confirm.Select())
        storage.gate.clear()
        for _ in range(1000):
            wire.publish(1, "", "q", b"x" * 10 * KIB)
        connection = await rig.paused()
        await asyncio.sleep(0.05)
        # What one read from the socket brings may exceed the limit, but nothing more.
        assert connection._conversation.unfinished.size < 600 * KIB
        storage.gate.set()
        last = 0
        while last < 1000:
            last = (await wire.expect(1, Basic.Ack)).delivery_tag
        assert not connection._flow.is_paused
        assert connection._conversation.unfinished.size == 0


async def test_what_waits_behind_a_slow_method_is_bounded() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        storage.gate.clear()
        wire.publish(1, "", "q")
        wire.send(1, Queue.Declare(queue="q", passive=True))
        for _ in range(20_000):
            wire.publish(1, "", "q", b"x" * 100)
        connection = await rig.paused()
        await asyncio.sleep(0.05)
        assert 0 < len(connection._conversation.waiting) < 5000
        storage.gate.set()
        assert (await wire.expect(1, Queue.DeclareOk)).message_count == 1
        assert (await wire.call(1, Queue.Declare(queue="q", passive=True))).message_count == 20_001


async def full_queue(wire: Wire, count: int, size: int) -> None:
    await wire.call(1, Queue.Declare(queue="q"))
    for _ in range(count):
        wire.publish(1, "", "q", b"x" * size)
    await wire.call(1, Queue.Declare(queue="q", passive=True))


async def test_a_consumer_that_does_not_read_is_not_delivered_to() -> None:
    async with Rig(buffer=100 * KIB) as rig, await rig.open() as wire:
        await full_queue(wire, 3000, 10 * KIB)
        slow = await rig.open()
        slow.reader._limit = 1  # type: ignore[attr-defined]
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        slow.send(1, Basic.Consume(queue="q", no_ack=True))
        slow.send(1, Channel.Flow(True))
        while not any(each._outbox.is_congested for each in rig.connections):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        left = rig.queue("q").message_count
        assert left > 1000  # what the sockets took, and no more
        await asyncio.sleep(0.05)
        assert rig.queue("q").message_count == left
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        slow.reader._limit = 2**20  # type: ignore[attr-defined]
        received = 0
        while received < 3000:
            _, got = await slow.receive()
            received += hasattr(got, "body")
        assert rig.queue("q").message_count == 0


async def test_a_client_that_does_not_read_may_still_publish() -> None:
    """Many clients write without reading; to stop both would leave each waiting for the other."""
    async with Rig(buffer=50 * KIB) as rig, await rig.open() as wire:
        await full_queue(wire, 3000, 10 * KIB)
        slow = await rig.open()
        await slow.call(1, Queue.Declare(queue="mine"))
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        slow.send(1, Basic.Consume(queue="q"))
        while not any(each._outbox.is_congested for each in rig.connections):
            await asyncio.sleep(0.001)
        for _ in range(1000):
            slow.publish(1, "", "mine", b"y" * KIB)
        while rig.queue("mine").message_count < 1000:
            await asyncio.sleep(0.001)
        slow.writer.transport.abort()


async def test_whoever_takes_no_answers_is_not_read_from() -> None:
    async with Rig(buffer=50 * KIB) as rig, await rig.open() as wire:
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(3000):
            wire.publish(1, "", "nowhere", b"x" * 10 * KIB, mandatory=True)
        [connection] = rig.connections
        while not connection._outbox.is_overfull:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert connection._flow.is_paused
        assert connection._transport.get_write_buffer_size() < 1000 * KIB
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(3000):
            await wire.content(1, Basic.Return)
        while connection._flow.is_paused:
            await asyncio.sleep(0.001)


async def blocking_queue(rig: Rig, **negotiated: dict[str, bool]) -> Wire:
    wire = await rig.open(**negotiated)
    await wire.call(1, Queue.Declare(queue="q", arguments={"x-max-length": 2, "x-overflow": "block"}))
    await wire.call(1, Confirm.Select())
    for number in range(5):
        wire.publish(1, "", "q", b"%d" % number)
    return wire


async def test_a_full_queue_may_block_its_publishers() -> None:
    async with Rig() as rig, await blocking_queue(rig) as wire, await rig.open() as other:
        _, blocked = await wire.receive()
        assert (blocked.name, blocked.reason) == ("Connection.Blocked", "a queue is full")
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 2
        await wire.nothing()
        assert rig.queue("q").message_count == 2
        # Others go on.
        await other.call(1, Queue.Declare(queue="other"))
        other.publish(1, "", "other")
        await other.call(1, Basic.Consume(queue="q", no_ack=True))
        assert [(await other.content(1)).body for _ in range(5)] == [b"%d" % number for number in range(5)]
        last = unblocked = 0
        while last < 5 or not unblocked:
            _, got = await wire.receive()
            if isinstance(got, Basic.Ack):
                last = got.delivery_tag
            unblocked += isinstance(got, Connection.Unblocked)
        assert not any(each._flow.is_paused for each in rig.connections)


async def test_a_client_that_would_not_understand_is_blocked_without_a_word() -> None:
    async with Rig() as rig, await blocking_queue(rig, capabilities={}) as wire, await rig.open() as other:
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 2
        await wire.nothing()
        await other.call(1, Queue.Purge(queue="q"))
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 4


async def test_a_blocked_client_may_leave() -> None:
    async with Rig() as rig:
        wire = await blocking_queue(rig)
        await wire.expect(0, Connection.Blocked)
        await rig.paused()
        rig.connections[0].abort()
        while rig.connections:
            await asyncio.sleep(0.001)
        async with await rig.open() as other:
            await other.call(1, Queue.Purge(queue="q"))
            assert rig.queue("q").message_count == 0


async def test_a_blocked_client_goes_on_when_the_queue_is_gone() -> None:
    async with Rig() as rig, await blocking_queue(rig, capabilities={}) as wire, await rig.open() as other:
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 2
        await other.call(1, Queue.Delete(queue="q"))
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 5


async def test_publishers_are_blocked_while_there_is_no_space() -> None:
    storage = GatedStorage()
    limits = AmqpLimits(storage_retry_seconds=0.1)
    async with Rig(storage=storage, limits=limits) as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        await wire.call(1, Confirm.Select())
        storage.failure = StorageFull("no space")
        wire.publish(1, "", "q")
        await wire.expect(1, Basic.Nack)
        assert (await wire.expect(0, Connection.Blocked)).reason == "low on disk"
        wire.publish(1, "", "q")
        assert (await rig.paused())._heartbeats.is_excused
        storage.failure = None
        await wire.expect(0, Connection.Unblocked)
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 2
