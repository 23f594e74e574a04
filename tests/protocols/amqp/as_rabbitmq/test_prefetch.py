"""Limits of unacknowledged messages that the consumers of a channel share, and whose turn it is."""

from collections import Counter
from typing import Any

from pamqp.commands import Basic, Queue

from tests.protocols.amqp.as_rabbitmq.client import Client


async def _queue(client: Client, name: str) -> str:
    await client.ask(1, Queue.Declare(queue=name, exclusive=True))
    return name


async def test_a_shared_prefetch_starves_no_queue(client: Client, name: str) -> None:
    queues = [await _queue(client, f"{name}-{number}") for number in range(3)]
    for queue in queues:
        await client.send_all(queue, 60)
    await client.ask(2, Basic.Qos(0, 10, True))
    for queue in queues:
        client.send(2, Basic.Consume(queue=queue, consumer_tag=queue))
    got: Counter[str] = Counter()
    for _ in range(90):
        delivery = await _next_delivery(client)
        got[delivery.consumer_tag] += 1
        client.send(2, Basic.Ack(delivery.delivery_tag))
    assert all(got[queue] >= 10 for queue in queues), got


async def _next_delivery(client: Client) -> Any:
    while True:
        _, got = await client.receive()
        if not isinstance(got, Basic.ConsumeOk):
            return got.method


async def test_consumers_of_one_queue_share_the_prefetch(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.ask(2, Basic.Qos(0, 4, True))
    for number in range(5):
        await client.consume(2, name, str(number))
    await client.send_all(name, 50)
    first = await client.deliveries(4)
    assert [each.method.consumer_tag for each in first] == ["0", "1", "2", "3"]
    await client.nothing_more()
    client.send(2, Basic.Ack(2, True))
    await client.deliveries(2)
    await client.nothing_more()


async def test_each_channel_has_a_prefetch_of_its_own(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.channel(3)
    await client.ask(2, Basic.Qos(0, 2, True))
    await client.ask(3, Basic.Qos(0, 3, True))
    for channel in (2, 3):
        for number in range(2):
            await client.consume(channel, name, f"{channel}-{number}")
    await client.send_all(name, 20)
    got = Counter(each.method.consumer_tag for each in await client.deliveries(5))
    assert got == {"2-0": 1, "2-1": 1, "3-0": 2, "3-1": 1}
    await client.nothing_more()


async def test_a_consumer_without_acks_is_not_counted(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.ask(2, Basic.Qos(0, 2, True))
    await client.consume(2, name, "c", no_ack=True)
    await client.send_all(name, 20)
    assert len(await client.deliveries(20)) == 20


async def test_a_consumer_without_acks_waits_for_the_shared_prefetch(client: Client, name: str) -> None:
    counted, free = await _queue(client, name), await _queue(client, f"{name}-free")
    await client.ask(2, Basic.Qos(0, 2, True))
    await client.consume(2, counted, "counted")
    await client.consume(2, free, "free", no_ack=True)
    await client.send_all(counted, 2)
    await client.deliveries(2)
    await client.send_all(free, 3)
    await client.nothing_more()
    client.send(2, Basic.Ack(2, True))
    assert [each.method.consumer_tag for each in await client.deliveries(3)] == ["free"] * 3


async def test_one_queue_with_and_without_acks(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.ask(2, Basic.Qos(0, 2, True))
    await client.consume(2, name, "counted")
    await client.consume(2, name, "free", no_ack=True)
    await client.send_all(name, 10)
    first = await client.deliveries(3)
    assert [each.method.consumer_tag for each in first] == ["counted", "free", "counted"]
    await client.nothing_more()


async def test_messages_that_were_got_do_not_count(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.send_all(name, 10)
    await client.ask(2, Basic.Qos(0, 2, True))
    for _ in range(3):
        await client.ask(2, Basic.Get(queue=name))
    await client.consume(2, name, "c")
    await client.deliveries(2)
    await client.nothing_more()


async def test_a_changed_prefetch_holds_for_running_consumers(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.send_all(name, 20)
    await client.ask(2, Basic.Qos(0, 3, True))
    await client.consume(2, name, "c")
    await client.deliveries(3)
    await client.ask(2, Basic.Qos(0, 5, True))
    await client.deliveries(2)
    await client.nothing_more()
    await client.ask(2, Basic.Qos(0, 2, True))
    client.send(2, Basic.Ack(3, True))
    await client.nothing_more()
    client.send(2, Basic.Ack(5, True))
    await client.deliveries(2)
    await client.nothing_more()


async def test_round_robin_begins_with_the_first(client: Client, name: str) -> None:
    await _queue(client, name)
    for number in range(3):
        await client.consume(2, name, str(number))
    turns = []
    for _ in range(7):
        await client.send_all(name, 1)
        turns += [each.method.consumer_tag for each in await client.deliveries(1)]
    assert turns == ["0", "1", "2", "0", "1", "2", "0"]
    await client.send_all(name, 7)
    together = await client.deliveries(7)
    assert [each.method.consumer_tag for each in together] == ["1", "2", "0", "1", "2", "0", "1"]
    assert [each.body for each in together] == [str(number).encode() for number in range(7)]


async def test_round_robin_goes_on_when_consumers_come_and_go(client: Client, name: str) -> None:
    await _queue(client, name)
    for number in range(3):
        await client.consume(2, name, str(number))
    turns = []

    async def one() -> None:
        await client.send_all(name, 1)
        turns.extend([each.method.consumer_tag for each in await client.deliveries(1)])

    await one()
    await one()
    await client.ask(2, Basic.Cancel("0"))
    for _ in range(3):
        await one()
    await client.consume(2, name, "3")
    for _ in range(4):
        await one()
    assert turns == ["0", "1", "2", "1", "2", "1", "2", "3", "1"]


async def test_one_message_each_with_a_prefetch_of_one(client: Client, name: str) -> None:
    await _queue(client, name)
    await client.ask(2, Basic.Qos(0, 1, False))
    for number in range(3):
        await client.consume(2, name, str(number))
    await client.send_all(name, 6)
    first = await client.deliveries(3)
    assert [each.method.consumer_tag for each in first] == ["0", "1", "2"]
    assert [each.body for each in first] == [b"0", b"1", b"2"]
    for tag, consumer, body in ((2, "1", b"3"), (1, "0", b"4"), (3, "2", b"5")):
        client.send(2, Basic.Ack(tag))
        (following,) = await client.deliveries(1)
        assert (following.method.consumer_tag, following.body) == (consumer, body)
