"""Ordered groups: messages of one message group come one after the other; those of others do not wait."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Message
from posthouse.protocols.rocketmq.grpc.messages.service import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
)
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import StillBroker, client_of, configure
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, attempt, system


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[MessagingClient]:
    await configure(broker, "group", rocketmq_fifo_enable="true")
    async with client_of(broker) as connected:
        yield connected


async def send(client: MessagingClient, group: str, *bodies: str) -> None:
    for body in bodies:
        await client.send("orders", body.encode(), message_group=group)


def texts(messages: list[Message]) -> list[str]:
    """In the order of their delivery."""
    return [each.body.decode() for each in messages]


async def test_a_message_waits_for_those_before_it(broker: AsyncBroker, client: MessagingClient) -> None:
    async with client_of(broker, "other") as other:
        await send(client, "a", "a1", "a2", "a3")
        [first] = await client.receive("orders", most=1)
        assert texts([first]) == ["a1"]
        assert await other.receive("orders") == [] == await client.receive("orders")
        await send(client, "b", "b1", "b2")
        assert texts(await other.receive("orders")) == ["b1", "b2"]
        assert await client.ack("orders", first) == Code.OK
        assert texts(await other.receive("orders", wait=20)) == ["a2", "a3"]


async def test_an_acknowledgement_wakes_a_call(broker: AsyncBroker, client: MessagingClient) -> None:
    await send(client, "a", "a1", "a2")
    [first] = await client.receive("orders", most=1)
    async with client_of(broker, "other") as other:
        call = asyncio.create_task(other.receive("orders", wait=20))
        async with asyncio.timeout(DEADLINE):
            while not broker.app.broker.subscriptions._fetching._waiting:
                await asyncio.sleep(0.001)
        assert await client.ack("orders", first) == Code.OK
        assert texts(await call) == ["a2"]


async def test_a_message_that_comes_again_is_first(still: StillBroker) -> None:
    await configure(still, "group", rocketmq_fifo_enable="true")
    async with client_of(still) as client, client_of(still, "other") as other:
        await send(client, "a", "a1", "a2", "a3")
        assert texts(await client.receive("orders", most=2, invisible=20)) == ["a1", "a2"]
        assert await other.receive("orders") == []
        await still.advance(21)
        again = await other.receive("orders")
        assert [(each.body.decode(), attempt(each)) for each in again] == [("a1", 2), ("a2", 2), ("a3", 1)]


async def test_a_message_that_is_given_back_is_first(broker: AsyncBroker, client: MessagingClient) -> None:
    await send(client, "a", "a1", "a2")
    [first] = await client.receive("orders", most=1)
    await client.changed("orders", first, 0)
    assert texts(await client.receive("orders")) == ["a1", "a2"]


async def test_a_message_that_is_dead_is_waited_for_no_more(client: MessagingClient) -> None:
    await send(client, "a", "a1", "a2")
    [first] = await client.receive("orders", most=1)
    assert await client.forward("orders", first) == Code.OK
    assert texts(await client.receive("orders")) == ["a2"]


async def test_an_attempt_is_repeated(client: MessagingClient) -> None:
    await send(client, "a", "a1", "a2", "a3")
    assert texts(await client.receive("orders", most=2, attempt="1")) == ["a1", "a2"]
    assert texts(await client.receive("orders", most=2, attempt="1")) == ["a1", "a2"]


async def test_two_consumers_with_many_message_groups(broker: AsyncBroker, client: MessagingClient) -> None:
    names = [f"group{number}" for number in range(7)]
    for number in range(12):
        await client.send_all(
            *(client.message("orders", f"{name} {number}".encode(), message_group=name) for name in names)
        )
    got: dict[str, list[int]] = {name: [] for name in names}
    left = 12 * len(names)

    async def consume(consumer: MessagingClient, most: int) -> None:
        nonlocal left
        while left:
            messages = await consumer.receive("orders", most=most, wait=0.2)
            for message in messages:
                name, number = message.body.decode().split()
                got[name].append(int(number))
                assert await consumer.ack("orders", message) == Code.OK
            left -= len(messages)

    async with client_of(broker, "other") as other:
        await asyncio.gather(consume(client, 1), consume(client, 5), consume(other, 3))
    assert got == {name: list(range(12)) for name in names}


async def test_messages_without_a_message_group(client: MessagingClient) -> None:
    """They are one, in each queue."""
    await client.send("orders", *(b"%d" % number for number in range(8)))
    first = await client.receive("orders", most=1)
    others = await client.receive("orders")
    queue = system(first[0]).queue_id
    assert len(others) == 6
    assert all(system(each).queue_id != queue for each in others)


async def test_a_push_consumer_asks_each_queue(broker: AsyncBroker, client: MessagingClient) -> None:
    await send(client, "a", "a1")
    request = QueryAssignmentRequest(topic=client.resource("orders"), group=client.resource("group"))
    answer = await client.call(request, QueryAssignmentResponse)
    ids = [each.message_queue.id for each in answer.assignments if each.message_queue is not None]
    assert ids == [0, 1, 2, 3]
    found = {queue: texts(await client.receive("orders", queue=queue, invisible=None)) for queue in range(4)}
    assert sorted(found.values()) == [[], [], [], ["a1"]]


async def test_a_consumer_ends_with_messages(broker: AsyncBroker, client: MessagingClient) -> None:
    await send(client, "a", "a1", "a2")
    assert texts(await client.receive("orders", most=1, invisible=None)) == ["a1"]
    await client.terminate("group")
    async with client_of(broker, "other") as other:
        assert texts(await other.receive("orders")) == ["a1", "a2"]


async def test_a_group_becomes_ordered(broker: AsyncBroker, client: MessagingClient) -> None:
    """Calls that begin after the change are bound by it."""
    await configure(broker, "group", rocketmq_fifo_enable="false")
    await send(client, "a", "a1", "a2", "a3")
    [first] = await client.receive("orders", most=1)
    await configure(broker, "group", rocketmq_fifo_enable="true")
    [second] = await client.receive("orders", most=1)
    assert texts([first, second]) == ["a1", "a2"]
    assert await client.receive("orders") == []
