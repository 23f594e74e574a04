"""The delivery rate of a group holds for its pulls, of all queues and consumers together."""

import asyncio

from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.handlers.test_remoting_pull import ROCKETMQ, WAIT_MS, bodies, send
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of

GROUP = GroupId("group")


async def limit(broker: AsyncBroker, **limits: str) -> None:
    overrides = {f"posthouse.delivery.{name}": text for name, text in limits.items()}
    await broker.app.broker.group_configs.replace(GROUP, overrides)


async def in_the_line(broker: AsyncBroker, count: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while (limiter := broker.app.broker.group_limiters.find(GROUP)) is None or len(
            limiter._line
        ) != count:
            await asyncio.sleep(0.001)


async def test_a_pull_gets_what_the_rate_allows(broker: AsyncBroker, client: RemotingClient) -> None:
    await limit(broker, rate="36/h")
    await send(client, "t", *[b"%d" % number for number in range(5)])
    assert bodies(await client.pull("t")) == [b"0"]
    assert (await client.pull("t", 1)).code == ResponseCode.PULL_NOT_FOUND
    async with client_of(broker) as other:
        assert (await other.pull("t", 1)).code == ResponseCode.PULL_NOT_FOUND
        again = await other.pull("t", 1, consumerGroup="another")
        assert len(bodies(again)) == 4, "another group is not limited"
    await limit(broker)
    assert len(bodies(await client.pull("t", 1))) == 4


async def test_a_pull_that_waits_is_woken_when_the_limit_is_lifted(
    broker: AsyncBroker, client: RemotingClient
) -> None:
    await limit(broker, rate="1/h")
    await send(client, "t", b"a", b"b", b"c")
    assert bodies(await client.pull("t")) == [b"a"]
    waiting = client.start(RequestCode.PULL_MESSAGE, client.pull_fields("t", 1, wait_ms=WAIT_MS))
    await in_the_line(broker, 1)
    await limit(broker)
    async with asyncio.timeout(DEADLINE):
        assert bodies(await waiting) == [b"b", b"c"]


async def test_tokens_of_a_pull_that_finds_nothing_are_given_back(
    broker: AsyncBroker, client: RemotingClient
) -> None:
    await limit(broker, rate="1/h")
    await send(client, "t", b"a")
    assert (await client.pull("t", 1)).code == ResponseCode.PULL_NOT_FOUND
    assert bodies(await client.pull("t")) == [b"a"]


async def test_a_concurrency_says_nothing_of_pulls(broker: AsyncBroker, client: RemotingClient) -> None:
    """Nobody knows which of them are done."""
    await limit(broker, concurrency="1")
    await send(client, "t", b"a", b"b")
    assert bodies(await client.pull("t")) == [b"a", b"b"]


async def test_pulls_that_wait_for_tokens_end_with_the_broker() -> None:
    async with AsyncBroker(rocketmq=ROCKETMQ) as broker:
        client = await RemotingClient.open(broker.address("rocketmq"))
        await limit(broker, rate="1/h")
        await send(client, "t", b"a", b"b")
        assert bodies(await client.pull("t")) == [b"a"]
        fields = client.pull_fields("t", 1, wait_ms=WAIT_MS)
        pulls = [client.start(RequestCode.PULL_MESSAGE, fields) for _ in range(3)]
        await in_the_line(broker, 3)
        started = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - started < WAIT_MS / 1000
    assert {(await each).code for each in pulls} == {ResponseCode.PULL_NOT_FOUND}
    await client.close()
