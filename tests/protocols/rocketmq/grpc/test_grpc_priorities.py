"""Priorities: messages with a high one are received first, as far as the topic and the group want that."""

import asyncio

import pytest

from posthouse.broker.topics import NewTopic
from posthouse.protocols.rocketmq.codec.codes import PRIORITY
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType
from posthouse.protocols.rocketmq.grpc.messages.well_known import Timestamp
from posthouse.protocols.rocketmq.priorities import SETTING
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import configure
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, bodies, system
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of


async def send(client: MessagingClient, *priorities: int, topic: str = "orders") -> None:
    """Each priority is the body of its message, too."""
    for each in priorities:
        await client.send(topic, b"%d" % each, priority=each, message_type=MessageType.PRIORITY)


async def received(client: MessagingClient, count: int, topic: str = "orders", most: int = 1) -> list[bytes]:
    """In order, of several calls."""
    found: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while len(found) < count:
            found += [each.body for each in await client.receive(topic, most=most)]
    return found


def setting(broker: AsyncBroker, topic: str = "orders") -> str | None:
    return broker.app.broker.topic(topic).overrides.get(SETTING)


@pytest.mark.parametrize("most", [1, 4, 32])
async def test_high_priorities_come_first(broker: AsyncBroker, client: MessagingClient, most: int) -> None:
    await send(client, 1, 3, 0, 2, 1, 3, 0, 2)
    assert await received(client, 8, most=most) == [b"%d" % each for each in (3, 3, 2, 2, 1, 1, 0, 0)]
    assert setting(broker) == "true"


async def test_a_priority_that_comes_later_overtakes(client: MessagingClient) -> None:
    await send(client, 1, 1, 1)
    assert await received(client, 1) == [b"1"]
    await send(client, 2)
    assert await received(client, 3) == [b"2", b"1", b"1"]


async def test_consumers_see_the_priority(client: MessagingClient) -> None:
    """As it was sent, though a topic has no more priorities than queues."""
    await send(client, 0, 7)
    [high, low] = await client.receive("orders")
    assert [system(each).priority for each in (high, low)] == [7, 0]
    assert [system(each).queue_id for each in (high, low)] == [3, 0]
    assert {system(each).message_type for each in (high, low)} == {MessageType.PRIORITY}
    assert high.user_properties == {}


async def test_a_waiting_consumer_gets_what_comes(client: MessagingClient) -> None:
    await send(client, 1)
    assert await received(client, 1) == [b"1"]
    waiting = asyncio.create_task(client.receive("orders", wait=20))
    await send(client, 0)
    assert bodies(await waiting) == [b"0"]


async def test_messages_without_a_priority_have_the_lowest(client: MessagingClient) -> None:
    await send(client, 1)
    await client.send("orders", *[b"plain"] * 8)
    await client.send("orders", b"late", delivery_timestamp=Timestamp(seconds=1))  # it was due in 1970
    found = await client.receive("orders")
    assert [system(each).queue_id for each in found] == [1, *[0] * 9]
    assert {system(each).priority for each in found[1:]} == {None}


async def test_first_messages_at_once(broker: AsyncBroker, client: MessagingClient) -> None:
    await asyncio.gather(*(send(client, each % 4) for each in range(20)))
    found = await received(client, 20, most=32)
    assert found == [b"%d" % (each // 5) for each in range(19, -1, -1)]
    assert setting(broker) == "true"


async def test_first_messages_of_one_request(client: MessagingClient) -> None:
    messages = [client.message("orders", b"%d" % each, priority=each) for each in (0, 2, 1)]
    answer = await client.send_all(*messages)
    assert answer.status is not None and answer.status.code == Code.OK and len(answer.entries) == 3
    assert await received(client, 3) == [b"2", b"1", b"0"]


async def test_of_100_receives_so_many_go_by_priority(broker: AsyncBroker, client: MessagingClient) -> None:
    """At 50, one of eight receives begins with the lowest queue. That none of 200 does has a probability of
    less than 1 in 10^11."""
    await configure(broker, "group", rocketmq_priority_factor="50")
    await send(client, 0)
    messages = [client.message("orders", b"3", priority=3) for _ in range(200)]
    await client.send_all(*messages)
    found = await received(client, 201)
    assert found.index(b"0") < 200
    await configure(broker, "group", rocketmq_priority_factor="0")
    await send(client, 3, 3, 3, 3, 0)
    assert (await received(client, 5)).index(b"0") < 4  # each of four calls begins with another queue


async def test_an_ordered_group_has_no_priorities(broker: AsyncBroker, client: MessagingClient) -> None:
    await configure(broker, "group", rocketmq_fifo_enable="true")
    await send(client, 3, 3, 3, 3, 0)
    found: list[bytes] = []
    for _ in range(4):
        for each in await client.receive("orders", most=1):
            found.append(each.body)
            await client.ack("orders", each)
    assert b"0" in found


async def test_a_topic_that_takes_no_priorities(broker: AsyncBroker, client: MessagingClient) -> None:
    no = NewTopic(name="orders", partitions=4, overrides={SETTING: "false"})
    await broker.app.broker.create_topics([no])
    assert await client.refused("orders", priority=1) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert await client.receive("orders") == []
    assert setting(broker) == "false"


async def test_what_is_refused_makes_no_priorities(broker: AsyncBroker, client: MessagingClient) -> None:
    await client.send("orders")
    assert await client.refused("orders", bytes(2 << 20), priority=1) == Code.MESSAGE_BODY_TOO_LARGE
    assert setting(broker) is None


async def test_messages_of_the_other_protocol(broker: AsyncBroker, client: MessagingClient) -> None:
    async with remoting_client_of(broker) as remoting:
        for each in (1, 3, 0, 2):
            answer = await remoting.send("orders", b"%d" % each, properties={PRIORITY: str(each)})
            assert (answer.code, answer.fields["queueId"]) == (0, str(each))
    found = await client.receive("orders")
    assert [each.body for each in found] == [b"3", b"2", b"1", b"0"]
    assert [system(each).priority for each in found] == [3, 2, 1, 0]
