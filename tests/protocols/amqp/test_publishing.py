"""Publishing: confirms, returns, and messages of every size."""

from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue

from posthouse.model.errors import StorageFenced, StorageFull
from posthouse.protocols.amqp.limits import AmqpLimits
from tests.protocols.amqp.rig import GatedStorage, Rig
from tests.protocols.amqp.wire import Wire
from tests.wire.amqp import Content


async def confirmed(wire: Wire, count: int) -> tuple[set[int], set[int]]:
    """Wait until so many publishes are settled: the numbers of those that were taken, and of the others."""
    taken: set[int] = set()
    refused: set[int] = set()
    while len(taken | refused) < count:
        _, got = await wire.receive()
        assert isinstance(got, Basic.Ack | Basic.Nack), got
        tag = got.delivery_tag
        spoken_of = range(1, tag + 1) if got.multiple else [tag]
        (taken if isinstance(got, Basic.Ack) else refused).update(set(spoken_of) - taken - refused)
    return taken, refused


async def confirming(wire: Wire, name: str = "q", **declared: Any) -> Wire:
    await wire.call(1, Queue.Declare(queue=name, **declared))
    await wire.call(1, Confirm.Select())
    return wire


async def test_every_publish_is_confirmed_once(channel: Wire) -> None:
    await confirming(channel)
    for number in range(1000):
        channel.publish(1, "", "q", b"%d" % number)
    assert await confirmed(channel, 1000) == (set(range(1, 1001)), set())
    await channel.nothing()
    assert (await channel.call(1, Queue.Declare(queue="q", passive=True))).message_count == 1000


async def test_confirm_select_twice_goes_on_counting(channel: Wire) -> None:
    await confirming(channel)
    channel.publish(1, "", "q")
    assert (await channel.expect(1, Basic.Ack)).delivery_tag == 1
    await channel.call(1, Confirm.Select())
    channel.publish(1, "", "q")
    assert (await channel.expect(1, Basic.Ack)).delivery_tag == 2


async def test_nothing_is_confirmed_before_it_is_durable() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await confirming(wire)
        storage.gate.clear()
        wire.publish(1, "", "q", b"1")
        await wire.nothing()
        wire.publish(1, "", "q", b"2")
        await wire.nothing()
        storage.gate.set()
        assert await confirmed(wire, 2) == ({1, 2}, set())


@pytest.mark.parametrize("error", [StorageFull("no space"), StorageFenced("the disk failed")])
async def test_what_cannot_be_written_is_nacked(error: Any) -> None:
    storage = GatedStorage()
    limits = AmqpLimits(storage_retry_seconds=0.05)
    async with Rig(storage=storage, limits=limits) as rig, await rig.open(capabilities={}) as wire:
        await confirming(wire)
        wire.publish(1, "", "q", b"before")
        assert await confirmed(wire, 1) == ({1}, set())
        storage.failure = error
        wire.publish(1, "", "q", b"lost")
        wire.publish(1, "", "q", b"lost, too")
        nack = await wire.expect(1, Basic.Nack)
        assert (nack.delivery_tag, nack.multiple) == (3, True)
        storage.failure = None
        wire.publish(1, "", "q", b"after")
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 4
        assert [(await wire.call(1, Basic.Get(queue="q"))).body for _ in range(2)] == [b"before", b"after"]


async def test_a_full_queue_refuses_its_messages_and_no_others(channel: Wire) -> None:
    await confirming(channel, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    await channel.call(1, Queue.Declare(queue="other"))
    for key in ("q", "q", "q", "other", "q", "other"):
        channel.publish(1, "", key)
    assert await confirmed(channel, 6) == ({1, 2, 4, 6}, {3, 5})


async def test_without_confirms_what_is_refused_is_gone(channel: Wire) -> None:
    await channel.call(
        1, Queue.Declare(queue="q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    )
    for _ in range(3):
        channel.publish(1, "", "q")
    assert (await channel.call(1, Queue.Declare(queue="q", passive=True))).message_count == 1


async def test_what_nobody_gets_is_returned_before_it_is_confirmed(channel: Wire) -> None:
    await channel.call(1, Confirm.Select())
    await channel.call(1, Exchange.Declare(exchange="x", exchange_type="topic", auto_delete=True))
    for exchange in ("", "x", "amq.headers"):
        channel.publish(1, exchange, "nowhere", b"body", mandatory=True, content_type="a/b", headers={"h": 1})
        returned = await channel.content(1, Basic.Return)
        assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
        assert (returned.method.exchange, returned.method.routing_key) == (exchange, "nowhere")
        assert (returned.body, returned.properties.headers) == (b"body", {"h": 1})
        await channel.expect(1, Basic.Ack)
    channel.publish(1, "", "nowhere")
    await channel.expect(1, Basic.Ack)


async def test_carbon_copies(channel: Wire) -> None:
    for name in ("a", "b", "c"):
        await channel.call(1, Queue.Declare(queue=name))
    channel.publish(1, "", "a", headers={"CC": ["b"], "BCC": ["c"], "h": 1})
    for name in ("a", "b", "c"):
        got = await channel.call(1, Basic.Get(queue=name))
        assert isinstance(got, Content)
        assert got.properties.headers == {"CC": ["b"], "h": 1}
        assert got.method.routing_key == "a"


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 4096, 100_000, 2_000_000])
async def test_bodies_of_every_size_in_frames_of_the_smallest(size: int) -> None:
    async with Rig() as rig, await rig.open(frame_max=4096) as wire:
        await confirming(wire)
        body = bytes(range(256)) * (size // 256 + 1)
        wire.publish(1, "", "q", body[:size], part=4000)
        await wire.expect(1, Basic.Ack)
        got = await wire.call(1, Basic.Get(queue="q"))
        assert got.body == body[:size]


async def test_a_message_that_is_too_large_ends_its_channel() -> None:
    """In RabbitMQ's words, recorded from it. Other channels go on."""
    async with Rig(limits=AmqpLimits(max_body=1000)) as rig, await rig.open() as wire:
        await confirming(wire)
        await wire.channel(2)
        wire.publish(1, "", "q", b"x" * 1001, part=300)
        wire.publish(1, "", "q", b"not looked at any more")
        where, close = await wire.receive()
        assert (where, close.reply_code, close.class_id, close.method_id) == (1, 406, 60, 40)
        text = "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000"
        assert close.reply_text == text
        assert (await wire.call(2, Queue.Declare(queue="q", passive=True))).message_count == 0
        wire.send(1, Channel.CloseOk())
        await wire.channel(1)
        wire.publish(1, "", "q", b"x" * 1000)
        assert (await wire.call(1, Queue.Declare(queue="q", passive=True))).message_count == 1


async def test_a_message_that_is_too_large_without_a_channel() -> None:
    async with Rig(limits=AmqpLimits(max_body=1000)) as rig, await rig.open() as wire:
        wire.publish(7, "", "q", b"x" * 1001)
        where, close = await wire.receive()
        assert (where, close.reply_code) == (0, 504)


async def test_own_user_id_is_allowed(channel: Wire) -> None:
    await confirming(channel)
    channel.publish(1, "", "q", user_id="guest")
    await channel.expect(1, Basic.Ack)


async def test_confirms_of_a_closed_channel_are_not_sent() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await confirming(wire)
        storage.gate.clear()
        wire.publish(1, "", "q")
        wire.publish(1, "nope", "q")
        assert (await wire.receive())[1].reply_code == 404
        wire.send(1, Channel.CloseOk())
        await wire.call(1, Channel.Open())
        storage.gate.set()
        await wire.nothing()
        assert (await wire.call(1, Queue.Declare(queue="q", passive=True))).message_count == 1
