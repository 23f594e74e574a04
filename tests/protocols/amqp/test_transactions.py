"""tx mode: everything together, or nothing."""

import asyncio

from pamqp.commands import Basic, Channel, Queue, Tx

from posthouse.model.errors import StorageFull
from posthouse.protocols.amqp.limits import AmqpLimits
from tests.protocols.amqp.rig import GatedStorage, Rig
from tests.protocols.amqp.wire import Wire


async def transactional(wire: Wire) -> Wire:
    await wire.call(1, Queue.Declare(queue="q"))
    await wire.call(1, Tx.Select())
    return wire


async def ready(wire: Wire, name: str = "q", channel: int = 1) -> int:
    count: int = (await wire.call(channel, Queue.Declare(queue=name, passive=True))).message_count
    return count


async def test_what_is_published_is_there_when_it_is_committed(channel: Wire) -> None:
    await transactional(channel)
    for _ in range(3):
        channel.publish(1, "", "q")
    assert await ready(channel) == 0
    await channel.call(1, Tx.Commit())
    assert await ready(channel) == 3
    channel.publish(1, "", "q")
    await channel.call(1, Tx.Rollback())
    await channel.call(1, Tx.Commit())
    assert await ready(channel) == 3


async def test_it_is_durable_when_the_commit_is_answered() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await transactional(wire)
        storage.gate.clear()
        wire.publish(1, "", "q")
        wire.send(1, Tx.Commit())
        await wire.nothing()
        storage.gate.set()
        await wire.expect(1, Tx.CommitOk)
        assert await ready(wire) == 1


async def test_acks_wait_for_the_commit_and_come_back_with_a_rollback(channel: Wire) -> None:
    await transactional(channel)
    for number in range(4):
        channel.publish(1, "", "q", b"%d" % number)
    await channel.call(1, Tx.Commit())
    for _ in range(4):
        await channel.call(1, Basic.Get(queue="q"))
    channel.send(1, Basic.Ack(2, True))
    channel.send(1, Basic.Reject(3, True))
    await channel.call(1, Tx.Rollback())
    assert await ready(channel) == 0
    channel.send(1, Basic.Ack(1))
    channel.send(1, Basic.Nack(3, True, True))
    assert await ready(channel) == 0
    await channel.call(1, Tx.Commit())
    assert await ready(channel) == 2
    await channel.call(1, Channel.Close(200, "", 0, 0))
    await channel.channel(1)
    assert await ready(channel) == 3  # 4 was never settled
    assert [(await channel.call(1, Basic.Get(queue="q"))).body for _ in range(3)] == [b"1", b"2", b"3"]


async def test_acks_that_were_not_committed_are_none(channel: Wire) -> None:
    await transactional(channel)
    channel.publish(1, "", "q")
    await channel.call(1, Tx.Commit())
    await channel.call(1, Basic.Get(queue="q"))
    channel.send(1, Basic.Ack(1))
    await channel.call(1, Channel.Close(200, "", 0, 0))
    await channel.channel(1)
    assert await ready(channel) == 1


async def test_returns_come_with_the_commit(channel: Wire) -> None:
    await transactional(channel)
    channel.publish(1, "", "nowhere", b"back", mandatory=True)
    await channel.nothing()
    channel.send(1, Tx.Commit())
    assert (await channel.content(1, Basic.Return)).body == b"back"
    await channel.expect(1, Tx.CommitOk)


async def test_a_full_queue_lets_the_whole_transaction_fail(channel: Wire) -> None:
    full = Queue.Declare(queue="full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    await channel.call(1, full)
    channel.publish(1, "", "full")
    await transactional(channel)
    channel.publish(1, "", "q")
    channel.publish(1, "", "full")
    refused = await channel.refused(1, [Tx.Commit()])
    assert (refused.channel, refused.code) == (1, 406)
    await channel.channel(2)
    assert await ready(channel, channel=2) == 0


async def test_a_commit_that_cannot_be_written_has_not_happened() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await transactional(wire)
        wire.publish(1, "", "q", b"first")
        await wire.call(1, Tx.Commit())
        await wire.call(1, Basic.Get(queue="q"))
        wire.send(1, Basic.Ack(1))
        wire.publish(1, "", "q", b"second")
        storage.failure = StorageFull("no space")
        refused = await wire.refused(1, [Tx.Commit()])
        assert refused.code == 406
        storage.failure = None
        await wire.channel(2)
        assert await ready(wire, channel=2) == 1
        assert (await wire.call(2, Basic.Get(queue="q"))).body == b"first"


async def test_a_client_that_leaves_during_its_commit() -> None:
    """Its acknowledgements are in the hands of the commit: they are not given back as well."""
    storage = GatedStorage()
    async with Rig(storage=storage) as rig:
        wire = await rig.open()
        await transactional(wire)
        wire.publish(1, "", "q", b"first")
        await wire.call(1, Tx.Commit())
        await wire.call(1, Basic.Get(queue="q"))
        wire.send(1, Basic.Ack(1))
        wire.publish(1, "", "q", b"second")
        storage.gate.clear()
        wire.send(1, Tx.Commit())
        await wire.nothing()
        wire.writer.transport.abort()
        await asyncio.sleep(0.01)
        storage.gate.set()
        while rig.connections:
            await asyncio.sleep(0.001)
        async with await rig.open() as other:
            assert await ready(other) == 1
            assert (await other.call(1, Basic.Get(queue="q"))).body == b"second"


async def test_a_transaction_has_a_largest_size() -> None:
    async with Rig(limits=AmqpLimits(max_transaction=1000)) as rig, await rig.open() as wire:
        await transactional(wire)
        wire.publish(1, "", "q", b"x" * 600)
        wire.publish(1, "", "q", b"x" * 600)
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (
            406,
            "PRECONDITION_FAILED - a transaction of 1200 bytes, where 1000 are allowed",
        )
