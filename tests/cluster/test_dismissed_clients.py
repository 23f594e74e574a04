"""AMQP clients of a coordinator that may not answer any more: they are told why, and get no answer."""

import asyncio

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue

from posthouse.app import App
from posthouse.protocols.introduction import GuardedTransport
from tests.cluster.coordinator_app import coordinator_app
from tests.protocols.amqp.wire import Wire

pytestmark = pytest.mark.timeout(60)

REASON = (
    "CONNECTION_FORCED - this broker has lost its lease or its database, and may not serve queues; "
    "connect again"
)


async def opened(app: App) -> Wire:
    address = app.listeners["amqp"]
    wire = await Wire(address.host, address.port).open()
    await wire.channel(1)
    await wire.call(1, Queue.Declare(queue="q"))
    return wire


async def is_told(wire: Wire) -> None:
    """The next frame is the close, and the connection ends when the client agrees."""
    close = await wire.expect(0, Connection.Close)
    assert (close.reply_code, close.reply_text) == (320, REASON)
    wire.send(0, Connection.CloseOk())
    await wire.ended()


async def test_a_publisher_gets_the_reason_instead_of_a_confirm() -> None:
    async with coordinator_app() as (app, lease), await opened(app) as wire:
        await wire.call(1, Confirm.Select())
        wire.publish(1, "", "q")
        await wire.expect(1, Basic.Ack)
        lease.cut_off()
        wire.publish(1, "", "q")
        await is_told(wire)


async def test_a_consumer_gets_the_reason_instead_of_a_message() -> None:
    async with coordinator_app() as (app, lease), await opened(app) as wire, await opened(app) as other:
        await wire.call(1, Basic.Consume(queue="q"))
        lease.cut_off()
        other.publish(1, "", "q")
        await is_told(wire)


async def test_a_client_that_only_listens_is_told_soon() -> None:
    async with coordinator_app() as (app, lease), await opened(app) as wire:
        lease.cut_off()
        await is_told(wire)


async def test_a_stop_at_once_tells_all_and_waits_for_no_one_for_long() -> None:
    async with coordinator_app() as (app, lease):
        wire, silent = await opened(app), await opened(app)
        lease.is_valid = False
        stopping = asyncio.create_task(app.stop(at_once=True))
        await is_told(wire)
        await silent.expect(0, Connection.Close)
        await asyncio.wait_for(stopping, 30)
        await silent.ended()
        wire.writer.close()
        silent.writer.close()


async def test_a_client_that_goes_on_sending_reads_the_reason() -> None:
    """A socket that is closed with unread bytes is reset, and other systems than Linux drop what was sent."""
    async with coordinator_app() as (app, lease), await opened(app) as wire:
        lease.cut_off()
        wire.send(1, Channel.Flow(True))
        await wire.expect(0, Connection.Close)
        for _ in range(100):
            wire.publish(1, "", "q", bytes(10_000))
        await wire.writer.drain()
        wire.send(0, Connection.CloseOk())
        await wire.ended()


async def test_both_sides_close_at_once() -> None:
    async with coordinator_app() as (app, lease), await opened(app) as wire:
        lease.cut_off()
        wire.send(1, Channel.Flow(True))
        await wire.expect(0, Connection.Close)
        wire.send(0, Connection.Close(200, "bye", 0, 0))
        await wire.ended()


class _Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))


async def test_nothing_is_sent_behind_a_gap() -> None:
    """A broker may get its lease back at once."""
    may = True
    dismissed: list[None] = []
    transport = _Written()
    guarded = GuardedTransport(transport, lambda: may, lambda: dismissed.append(None), None)
    guarded.write(b"1")
    may = False
    guarded.write(b"2")
    may = True
    guarded.write(b"3")
    guarded.writelines([b"4"])
    assert not dismissed  # the caller is still at work
    await asyncio.sleep(0)
    assert dismissed == [None]
    guarded.write_last(b"5")
    assert transport.written == [b"1", b"5"]
