"""A connection's order, its channels, and how it ends."""

import asyncio
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue

from posthouse.protocols.amqp.limits import AmqpLimits
from tests.protocols.amqp.rig import GatedStorage, Rig
from tests.protocols.amqp.wire import Wire


async def test_what_is_asked_for_is_done_in_order(channel: Wire) -> None:
    """Nothing is awaited between declares, binds, publishes and counts: order alone must do."""
    for number in range(50):
        name = f"q{number}"
        channel.send(1, Exchange.Declare(exchange=name, exchange_type="fanout", auto_delete=True))
        channel.send(1, Queue.Declare(queue=name))
        channel.send(1, Queue.Bind(queue=name, exchange=name))
        channel.publish(1, name, "", b"%d" % number)
        channel.send(1, Queue.Declare(queue=name, passive=True))
        channel.send(1, Basic.Get(queue=name))
        channel.send(1, Queue.Delete(queue=name))
    for number in range(50):
        await channel.expect(1, Exchange.DeclareOk)
        assert (await channel.expect(1, Queue.DeclareOk)).message_count == 0
        await channel.expect(1, Queue.BindOk)
        assert (await channel.expect(1, Queue.DeclareOk)).message_count == 1
        assert (await channel.content(1, Basic.GetOk)).body == b"%d" % number
        assert (await channel.expect(1, Queue.DeleteOk)).message_count == 0


async def test_whoever_counts_after_publishing_finds_it() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        storage.gate.clear()
        for method in (
            Queue.Declare(queue="q", passive=True),
            Queue.Declare(queue="q"),
            Queue.Purge(queue="q"),
        ):
            storage.gate.clear()
            wire.publish(1, "", "q")
            wire.send(1, method)
            await wire.nothing(0.02)
            storage.gate.set()
            assert (await wire.receive())[1].message_count > 0


async def test_channels_are_closed_and_opened_again(channel: Wire) -> None:
    await channel.call(1, Channel.Close(200, "done", 0, 0))
    await channel.call(1, Channel.Open())
    refused = await channel.refused(1, [Queue.Declare(queue="nope", passive=True)])
    assert refused.code == 404
    await channel.call(1, Channel.Open())
    await channel.call(1, Queue.Declare(exclusive=True))


async def test_what_a_client_sent_before_it_knew_of_the_close_is_ignored(channel: Wire) -> None:
    await channel.call(1, Queue.Declare(queue="q"))
    channel.publish(1, "nope", "q")
    for _ in range(3):
        channel.publish(1, "", "q", b"x" * 1000)
        channel.send(1, Basic.Ack(99))
        channel.send(1, Queue.Declare(queue="other"))
    assert (await channel.receive())[1].reply_code == 404
    channel.send(1, Basic.Publish(0, "", "q"))  # its content never comes
    channel.send(1, Channel.CloseOk())
    await channel.call(1, Channel.Open())
    assert (await channel.call(1, Queue.Declare(queue="q", passive=True))).message_count == 0
    assert (await channel.refused(1, [Queue.Declare(queue="other", passive=True)])).code == 404


async def test_both_sides_close_a_channel_at_once(channel: Wire) -> None:
    channel.publish(1, "nope", "q")
    channel.send(1, Channel.Close(200, "bye", 0, 0))
    await channel.expect(1, Channel.Close)
    await channel.expect(1, Channel.CloseOk)
    channel.send(1, Channel.CloseOk())
    await channel.call(1, Channel.Open())


async def test_no_more_channels_than_negotiated() -> None:
    async with Rig() as rig, await rig.open(channel_max=2) as wire:
        await wire.channel(7)
        wire.send(8, Channel.Open())
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (
            530,
            "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)",
        )


@pytest.mark.parametrize("method", [Queue.Declare(queue="q"), Basic.Ack(1), Channel.Close(200, "", 0, 0)])
async def test_channels_have_to_be_opened(wire: Wire, method: Any) -> None:
    wire.send(3, method)
    _, close = await wire.receive()
    assert (close.reply_code, close.reply_text) == (504, "CHANNEL_ERROR - expected 'channel.open'")


async def test_publishing_without_a_channel(wire: Wire) -> None:
    wire.publish(3, "", "q")
    _, close = await wire.receive()
    assert (close.reply_code, close.class_id, close.method_id) == (504, 60, 40)


@pytest.mark.parametrize("method", [Queue.Declare(queue="q"), Connection.Open("/")])
async def test_methods_that_channel_0_does_not_have(wire: Wire, method: Any) -> None:
    wire.send(0, method)
    _, close = await wire.receive()
    assert (close.reply_code, close.reply_text) == (
        504,
        "CHANNEL_ERROR - unexpected method in connection state running",
    )


@pytest.mark.parametrize(
    ("kind", "payload", "end", "code"),
    [
        (5, b"", b"\xce", 501),
        (1, b"\x00\x0a\x00\x32\x00\x00", b"\x00", 501),
        (3, b"x" * 131_073, b"\xce", 501),
        (3, b"x", b"\xce", 505),
        (1, b"\x00\x63\x00\x0a", b"\xce", 540),
        (1, b"\x00\x32\x00\x0a\x00", b"\xce", 501),
    ],
)
async def test_bytes_that_make_no_sense(
    channel: Wire, kind: int, payload: bytes, end: bytes, code: int
) -> None:
    await channel.call(1, Queue.Declare(queue="q"))
    channel.publish(1, "", "q")  # what came before counts
    channel.send(1, Queue.Declare(queue="q", passive=True))
    channel.raw(kind, 1, payload, end)
    assert (await channel.expect(1, Queue.DeclareOk)).message_count == 1
    _, close = await channel.receive()
    assert close.reply_code == code


async def test_exclusive_queues_are_gone_when_the_close_is_answered() -> None:
    async with Rig() as rig, await rig.open() as other:
        wire = await rig.open()
        await wire.call(1, Queue.Declare(queue="mine", exclusive=True))
        refused = await other.refused(1, [Basic.Get(queue="mine")])
        assert refused.code == 405
        await wire.close()
        await other.channel(1)
        await other.call(1, Queue.Declare(queue="mine", exclusive=True))


async def test_exclusive_queues_go_with_a_lost_connection() -> None:
    async with Rig() as rig, await rig.open() as other:
        wire = await rig.open()
        await wire.call(1, Queue.Declare(queue="mine", exclusive=True))
        wire.writer.transport.abort()
        while len(rig.connections) > 1:
            await asyncio.sleep(0.001)
        refused = await other.refused(1, [Queue.Declare(queue="mine", passive=True)])
        assert refused.code == 404


async def test_a_queue_that_is_declared_while_its_connection_is_lost() -> None:
    async with Rig() as rig, await rig.open() as other:
        for number in range(20):
            wire = await rig.open()
            wire.send(1, Queue.Declare(queue=f"mine{number}", exclusive=True))
            await wire.writer.drain()
            await asyncio.sleep(number / 20_000)
            wire.writer.transport.abort()
        while len(rig.connections) > 1:
            await asyncio.sleep(0.001)
        assert [name for name in rig.broker.namespaces.get("/").queues if name.startswith("mine")] == []
        await other.call(1, Queue.Declare(queue="mine1", exclusive=True))


async def test_a_client_that_closed_may_still_be_sending() -> None:
    async with Rig() as rig:
        wire = await rig.open()
        wire.send(0, Connection.Close(200, "bye", 0, 0))
        for _ in range(200):
            wire.publish(1, "", "q", b"x" * 10_000)
        await wire.writer.drain()
        await wire.expect(0, Connection.CloseOk)
        await wire.nothing()
        for _ in range(200):
            wire.publish(1, "", "q", b"x" * 10_000)
        await wire.writer.drain()
        wire.writer.write_eof()
        await wire.ended()
        assert not rig.connections


async def test_a_client_that_closed_has_to_hang_up() -> None:
    async with Rig(limits=AmqpLimits(lingering_seconds=0.02)) as rig:
        wire = await rig.open()
        await wire.call(0, Connection.Close(200, "bye", 0, 0))
        await wire.ended()


async def test_whoever_does_not_agree_to_a_close_is_let_go() -> None:
    async with Rig(limits=AmqpLimits(closing_seconds=0.05)) as rig, await rig.open() as wire:
        wire.send(0, Connection.Open("/"))
        await wire.expect(0, Connection.Close)
        wire.send(2, Channel.Open())
        await wire.ended()


async def test_a_stop_answers_what_was_asked_and_then_says_why() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig, await rig.open() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        await wire.call(1, Confirm.Select())
        storage.gate.clear()
        wire.publish(1, "", "q")
        await wire.nothing()
        rig.listener.close()
        wire.publish(1, "", "q", b"too late")
        await wire.nothing()
        storage.gate.set()
        assert (await wire.expect(1, Basic.Ack)).delivery_tag == 1
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (
            320,
            "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
        )
        wire.send(0, Connection.CloseOk())
        await wire.ended()
        assert not rig.connections
        assert rig.queue("q").message_count == 1


async def test_a_stop_does_not_wait_for_those_who_do_not_look() -> None:
    async with Rig(limits=AmqpLimits(finishing_seconds=1.0)) as rig:
        idle, closed = await rig.open(), await rig.open()
        await closed.call(0, Connection.Close(200, "bye", 0, 0))
        rig.listener.close()
        left = {len(rig.connections)}
        while rig.connections:
            left.add(len(rig.connections))
            await asyncio.sleep(0.001)
        assert 1 in left, "the closed one does not wait for the idle one"
        assert (await idle.receive())[1].reply_code == 320


async def test_a_stop_does_not_wait_for_those_who_never_logged_in() -> None:
    async with Rig() as rig:
        wire = await rig.wire().connect()
        await asyncio.sleep(0.01)
        rig.listener.close()
        await wire.ended()


async def test_messages_of_consumers_are_back_after_a_stop() -> None:
    async with Rig() as rig:
        wire = await rig.open()
        await wire.call(1, Queue.Declare(queue="q"))
        wire.publish(1, "", "q")
        await wire.call(1, Basic.Consume(queue="q"))
        await wire.content(1)
        rig.listener.close()
        await wire.expect(0, Connection.Close)
        wire.send(0, Connection.CloseOk())
        await wire.ended()
        await rig.listener.drained(1.0)
        assert rig.queue("q").message_count == 1


async def test_a_failure_of_ours_is_logged_and_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, channel: Wire
) -> None:
    await channel.call(1, Queue.Declare(queue="q"))

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr("posthouse.broker.queues.namespace.Namespace.publish", broken)
    channel.publish(1, "", "q")
    _, close = await channel.receive()
    assert (close.reply_code, close.reply_text) == (
        541,
        "INTERNAL_ERROR - the broker failed; its log says why",
    )
    assert "of all things" in caplog.text
