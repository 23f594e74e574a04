"""No answer comes before its effect."""

import pytest
from pamqp.commands import Basic, Channel, Exchange, Queue

from tests.protocols.amqp.as_rabbitmq.client import Client
from tests.protocols.amqp.as_rabbitmq.conftest import Connect
from tests.protocols.amqp.wire import Closed

TIMES = 5


async def _is_gone(client: Client, name: str, channel: int = 1, *, exchange: bool = False) -> bool:
    look: Exchange.Declare | Queue.Declare = Queue.Declare(queue=name, passive=True)
    if exchange:
        look = Exchange.Declare(exchange=name, passive=True)
    try:
        await client.ask(channel, look)
    except Closed as closed:
        assert closed.code == 404
        return True
    return False


async def _consumed(client: Client, name: str) -> None:
    """A queue that goes with its consumer on channel 2."""
    await client.ask(1, Queue.Declare(queue=name, auto_delete=True))
    await client.consume(2, name, "c")


@pytest.mark.parametrize("number", range(TIMES))
class TestAQueueThatGoesWithItsLastConsumer:
    async def test_that_is_cancelled(self, client: Client, name: str, number: int) -> None:
        await _consumed(client, name)
        await client.ask(2, Basic.Cancel("c"))
        assert await _is_gone(client, name)

    async def test_that_is_cancelled_without_an_answer(self, client: Client, name: str, number: int) -> None:
        await _consumed(client, name)
        client.send(2, Basic.Cancel("c", nowait=True))
        assert await _is_gone(client, name, channel=2)

    async def test_whose_channel_is_closed(self, client: Client, name: str, number: int) -> None:
        await _consumed(client, name)
        await client.ask(2, Channel.Close(200, "", 0, 0))
        assert await _is_gone(client, name)
        await client.channel(2)

    async def test_whose_connection_is_closed(
        self, client: Client, connect: Connect, name: str, number: int
    ) -> None:
        other = await connect()
        await _consumed(other, name)
        await other.close()
        assert await _is_gone(client, name)

    async def test_with_an_exchange_that_goes_with_it(self, client: Client, name: str, number: int) -> None:
        await client.ask(1, Exchange.Declare(exchange=name, auto_delete=True))
        await _consumed(client, name)
        await client.ask(1, Queue.Bind(queue=name, exchange=name, routing_key="k"))
        await client.ask(2, Basic.Cancel("c"))
        assert await _is_gone(client, name, exchange=True)


async def test_the_last_of_two_consumers(client: Client, name: str) -> None:
    await _consumed(client, name)
    await client.consume(1, name, "other")
    await client.ask(2, Basic.Cancel("c"))
    assert not await _is_gone(client, name)
    await client.ask(1, Basic.Cancel("other"))
    assert await _is_gone(client, name)


async def test_it_can_be_declared_again_at_once(client: Client, name: str) -> None:
    for _ in range(TIMES):
        await _consumed(client, name)
        await client.send_all(name, 1)
        await client.deliveries(1)
        client.send(2, Basic.Cancel("c", nowait=True))
        declared = await client.ask(2, Queue.Declare(queue=name, auto_delete=True))
        assert (declared.message_count, declared.consumer_count) == (0, 0)
    await client.ask(1, Queue.Delete(queue=name))


async def test_an_exclusive_queue_goes_before_its_connection_is_closed(
    client: Client, connect: Connect, name: str
) -> None:
    other = await connect()
    await other.ask(1, Queue.Declare(queue=name, exclusive=True))
    await other.close()
    assert await _is_gone(client, name)


async def test_an_exchange_goes_with_its_last_binding(client: Client, name: str) -> None:
    await client.ask(1, Queue.Declare(queue=name, exclusive=True))
    for _ in range(TIMES):
        await client.ask(2, Exchange.Declare(exchange=name, auto_delete=True))
        await client.ask(2, Queue.Bind(queue=name, exchange=name, routing_key="k"))
        await client.ask(2, Queue.Unbind(queue=name, exchange=name, routing_key="k"))
        assert await _is_gone(client, name, channel=2, exchange=True)
        await client.channel(2)


async def test_what_was_settled_is_counted(client: Client, name: str) -> None:
    await client.ask(1, Queue.Declare(queue=name, exclusive=True))
    await client.send_all(name, 6)
    await client.ask(1, Basic.Get(queue=name))
    client.send(1, Basic.Ack(1))
    assert await client.count(name) == 5
    await client.ask(1, Basic.Get(queue=name))
    assert (await client.ask(1, Queue.Purge(queue=name))).message_count == 4
    await client.ask(1, Basic.Recover(True))
    assert await client.count(name) == 1
    assert (await client.ask(1, Queue.Delete(queue=name))).message_count == 1


async def test_what_was_unacknowledged_is_there_when_its_channel_is_closed(client: Client, name: str) -> None:
    await client.ask(1, Queue.Declare(queue=name, exclusive=True))
    for number in range(1, TIMES):
        await client.send_all(name, 1)
        await client.ask(2, Basic.Get(queue=name))
        await client.ask(2, Channel.Close(200, "", 0, 0))
        assert await client.count(name) == number
        await client.channel(2)
