"""Messages with no time to live, or hardly any: a consumer that waits gets them."""

from typing import Any

import pytest
from pamqp.commands import Basic, Queue

from tests.protocols.amqp.as_rabbitmq.client import Client


async def _queue(client: Client, name: str, **arguments: Any) -> None:
    await client.ask(1, Queue.Declare(queue=name, exclusive=True, arguments=arguments))


@pytest.mark.parametrize("ttl", [0, 1])
async def test_of_a_queue_with_a_consumer_that_waits(client: Client, name: str, ttl: int) -> None:
    await _queue(client, name, **{"x-message-ttl": ttl})
    await client.consume(2, name, "c", no_ack=True)
    await client.send_all(name, 20)
    assert [each.body for each in await client.deliveries(20)] == [
        str(number).encode() for number in range(20)
    ]


async def test_of_a_message_with_a_consumer_that_waits(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.consume(2, name, "c", no_ack=True)
    await client.send_all(name, 20, expiration="0")
    assert len(await client.deliveries(20)) == 20


async def test_without_a_consumer(client: Client, name: str) -> None:
    await _queue(client, name, **{"x-message-ttl": 0})
    for _ in range(5):
        await client.send_all(name, 1)
        assert isinstance(await client.ask(1, Basic.Get(queue=name)), Basic.GetEmpty)


async def test_only_as_many_as_the_consumers_can_take(client: Client, name: str) -> None:
    await _queue(client, f"{name}-dead")
    onward = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    await _queue(client, name, **{"x-message-ttl": 0, **onward})
    await client.ask(2, Basic.Qos(0, 1, False))
    await client.consume(2, name, "a")
    await client.consume(2, name, "b")
    await client.send_all(name, 5)
    taken = await client.deliveries(2)
    assert [(each.method.consumer_tag, each.body) for each in taken] == [("a", b"0"), ("b", b"1")]
    assert await client.count(f"{name}-dead") == 3
    client.send(2, Basic.Ack(2, True))
    await client.nothing_more()


async def test_one_that_comes_back_is_not_delivered_again(client: Client, name: str) -> None:
    await _queue(client, name, **{"x-message-ttl": 0})
    await client.consume(2, name, "c")
    await client.send_all(name, 1)
    (delivery,) = await client.deliveries(1)
    client.send(2, Basic.Reject(delivery.method.delivery_tag, True))
    await client.nothing_more()
    assert await client.count(name) == 0


async def test_one_that_its_consumer_did_not_settle_is_gone(client: Client, name: str) -> None:
    await _queue(client, name, **{"x-message-ttl": 0})
    await client.consume(2, name, "c")
    await client.send_all(name, 1)
    await client.deliveries(1)
    await client.ask(2, Basic.Cancel("c"))
    await client.ask(2, Basic.Recover(True))
    assert await client.count(name) == 0
