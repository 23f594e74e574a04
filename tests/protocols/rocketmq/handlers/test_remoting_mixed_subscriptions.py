"""Clients of one group that subscribe differently: the broker says which messages the group loses."""

import asyncio
import logging
from dataclasses import replace

import pytest

from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.codec.heartbeats import BROADCASTING
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of, group

DIFFERENTLY = "subscribe differently to topic t"


def passed_over(broker: AsyncBroker) -> int:
    return broker.app.broker.traffic.of("t").records_passed_over


async def send_tags(client: RemotingClient, *tags: str) -> None:
    for tag in tags:
        assert (await client.send("t", b"v", properties={"TAGS": tag}, d=1)).code == 0


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if DIFFERENTLY in message]


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


async def test_messages_that_the_group_loses(
    broker: AsyncBroker, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    await send_tags(client, "red", "blue", "green", "blue")
    async with client_of(broker) as other:
        await client.beat("one", group("group", t="red"))
        await other.beat("two", group("group", t="blue"))
        for _ in range(2):
            await client.beat("one", group("group", t="red"))
        [warning] = warnings(caplog)
        assert "group group" in warning and "clients one and two" in warning
        answer = await client.pull("t", sysFlag=0)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "4")
        assert passed_over(broker) == 2
        await other.pull("t", 1, sysFlag=0)
        assert passed_over(broker) == 2  # nobody wants the green one
        await other.pull("t", sysFlag=0)
        assert passed_over(broker) == 3
    await gone(broker, "two")
    await client.pull("t", sysFlag=0)
    assert passed_over(broker) == 3


async def gone(broker: AsyncBroker, id: str) -> None:
    """The broker has seen that the connection of this client is closed."""
    async with client_of(broker) as asking, asyncio.timeout(DEADLINE):
        while True:
            answer = await asking.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "group"})
            if id.encode() not in bytes(answer.body):
                return
            await asyncio.sleep(0.001)


async def test_a_subscription_that_changes(
    broker: AsyncBroker, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    """In a client that stays: the group has the same members as before."""
    await send_tags(client, "red", "blue")
    async with client_of(broker) as other:
        await client.beat("one", group("group", t="red"))
        await other.beat("two", group("group", t="red"))
        await client.pull("t", sysFlag=0)
        assert (warnings(caplog), passed_over(broker)) == ([], 0)
        await other.beat("two", group("group", t="blue"))
        await client.pull("t", sysFlag=0)
        assert (len(warnings(caplog)), passed_over(broker)) == (1, 1)
        await client.beat("one", group("group", t="blue"))
        await client.pull("t", sysFlag=0)
        assert (len(warnings(caplog)), passed_over(broker)) == (1, 1)


async def test_consumers_that_broadcast_lose_nothing(
    broker: AsyncBroker, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    await send_tags(client, "red", "blue")
    async with client_of(broker) as other:
        for each, id, tag in ((client, "one", "red"), (other, "two", "blue")):
            await each.beat(id, replace(group("group", t=tag), message_model=BROADCASTING))
        await client.pull("t", sysFlag=0)
    assert (warnings(caplog), passed_over(broker)) == ([], 0)


async def test_a_client_that_leaves_the_group(broker: AsyncBroker, client: RemotingClient) -> None:
    await send_tags(client, "red", "blue")
    async with client_of(broker) as other:
        await client.beat("one", group("group", t="red"))
        await other.beat("two", group("group", t="blue"))
        fields = {"clientID": "two", "consumerGroup": "group"}
        assert (await other.request(RequestCode.UNREGISTER_CLIENT, fields)).code == 0
        await client.pull("t", sysFlag=0)
    assert passed_over(broker) == 0
