"""Quotas: calls are answered, and the client is not read from until that is paid."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.broker.access.quotas import DEFAULT, Entity, Quota, Quotas
from posthouse.broker.topics import NewTopic
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import MessageQueue
from posthouse.protocols.rocketmq.grpc.messages.service import (
    PullMessageRequest,
    PullMessageResponse,
    QueryRouteRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from posthouse.testing import AsyncBroker
from tests.protocols.admin.metrics.scraping import scrape
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT, client_of
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient
from tests.protocols.rocketmq.grpc.signed_calls import SignedClient, add_keys, of, secured

RATE = 100_000
LARGE = b"x" * 150_000
"""Half a second more than is free."""


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with secured() as running:
        await add_keys(running)
        await running.app.broker.create_topics([NewTopic(name="t", partitions=1)])
        yield running


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[SignedClient]:
    """Of a superuser."""
    async with of(broker, "admin") as connected:
        yield connected


def quotas(broker: AsyncBroker) -> Quotas:
    return broker.app.broker.access.quotas


def is_paused(broker: AsyncBroker) -> bool:
    [connection] = broker.app.connections
    return connection.info.is_paused


async def assert_waits(broker: AsyncBroker, client: MessagingClient) -> None:
    """The next call is read, but later."""
    assert is_paused(broker)
    begun = asyncio.get_running_loop().time()
    await client.beat()
    assert asyncio.get_running_loop().time() - begun > 0.2
    assert quotas(broker).throttles == 1
    assert quotas(broker).throttled_seconds > 0.2


def pull_request(client: MessagingClient) -> PullMessageRequest:
    return PullMessageRequest(
        group=client.resource("pulling"),
        message_queue=MessageQueue(topic=client.resource("t"), id=0),
        long_polling_timeout=Duration(),
    )


async def pulled(client: MessagingClient) -> list[bytes]:
    answers = await client.responses(pull_request(client), PullMessageResponse, timeout=DEADLINE)
    return [each.message.body for each in answers if each.message is not None]


@pytest.mark.parametrize(
    "entity", [Entity("admin"), Entity("admin", "admin"), Entity(None, "admin"), Entity(DEFAULT)], ids=str
)
async def test_producers_wait(broker: AsyncBroker, client: SignedClient, entity: Entity) -> None:
    """From the first call on."""
    await quotas(broker).change(entity, {Quota.WRITTEN: RATE})
    await client.send("t", LARGE)
    await assert_waits(broker, client)


@pytest.mark.parametrize("entity", [Entity("ben"), Entity("admin", "x"), Entity(None, "x")], ids=str)
async def test_quotas_of_others(broker: AsyncBroker, client: SignedClient, entity: Entity) -> None:
    await quotas(broker).change(entity, dict.fromkeys(Quota, 1.0))
    await client.send("t", LARGE)
    assert len(await client.receive("t")) == len(await pulled(client)) == 1
    assert not is_paused(broker)
    assert quotas(broker).throttles == 0


@pytest.mark.parametrize("by", ["receive", "pull"])
async def test_consumers_wait(broker: AsyncBroker, client: SignedClient, by: str) -> None:
    await client.send("t", LARGE)
    await quotas(broker).change(Entity("admin"), {Quota.READ: RATE})
    if by == "receive":
        assert [each.body for each in await client.receive("t")] == [LARGE]
    else:
        assert await pulled(client) == [LARGE]
    await assert_waits(broker, client)


@pytest.mark.parametrize("by", ["receive", "pull"])
async def test_consumers_that_cancel_pay(broker: AsyncBroker, client: SignedClient, by: str) -> None:
    """They may have got nearly all of it."""
    for _ in range(10):
        await client.send("t", LARGE)
    await quotas(broker).change(Entity("admin"), {Quota.READ: RATE})
    request = client.receive_request("t") if by == "receive" else pull_request(client)
    call = client.stream(request)
    async with asyncio.timeout(DEADLINE):
        for _ in range(3):
            await call.read()
        call.cancel()
        while not is_paused(broker):
            await asyncio.sleep(0.01)


async def test_a_call_that_waits_is_answered(broker: AsyncBroker, client: SignedClient) -> None:
    await client.send("t", LARGE)
    assert len(await client.receive("t")) == 1
    waiting = asyncio.ensure_future(client.receive("t", wait=60))
    await quotas(broker).change(Entity("admin"), {Quota.READ: RATE})
    await pulled(client)
    assert is_paused(broker)
    topic = broker.app.broker.topic("t")
    stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    broker.app.broker.record_waves.add(topic, 0, None, b"v", b"\0", 0, stored.set_result)
    async with asyncio.timeout(DEADLINE):
        assert [each.body for each in await waiting] == [b"v"]


async def test_small_calls_are_free(broker: AsyncBroker, client: SignedClient) -> None:
    await quotas(broker).change(Entity("admin"), {Quota.WRITTEN: RATE, Quota.READ: RATE})
    for _ in range(20):
        await client.send("t", b"x" * 1000)
    assert len(await client.receive("t")) == 20
    for _ in range(300):  # neither sends nor receives
        await client.call_bytes("QueryRoute", QueryRouteRequest(topic=client.resource("t")).encode())
    assert not is_paused(broker)


async def beats(client: MessagingClient) -> None:
    await client.beat()


async def receives(client: MessagingClient) -> None:
    """In vain."""
    assert await client.receive_code("t") == Code.MESSAGE_NOT_FOUND


async def is_refused(client: MessagingClient) -> None:
    assert await client.refused("t", b"") == Code.MESSAGE_BODY_EMPTY


async def says_settings(client: MessagingClient) -> None:
    async with client.telemetry() as stream:
        await stream.settings(client.publishing("t"))


@pytest.mark.parametrize("work", [beats, receives, pulled, is_refused, says_settings])
async def test_time(
    broker: AsyncBroker, client: SignedClient, monkeypatch: pytest.MonkeyPatch, work: Any
) -> None:
    """Of the event loop, also where a call takes several turns of it, or fails."""
    await client.receive("t")
    await quotas(broker).change(Entity("admin"), {Quota.TIME: 50.0})
    seconds = iter(range(1000))
    monkeypatch.setattr("posthouse.protocols.stopwatch.time.thread_time", lambda: next(seconds) / 4)
    async with asyncio.timeout(DEADLINE):
        while not is_paused(broker):
            await work(client)
    await client.beat()
    assert quotas(broker).throttles >= 1


async def test_refused_calls_are_not_charged(broker: AsyncBroker) -> None:
    """Nobody is to spend the quota of those who log in."""
    for entity in (Entity(None, DEFAULT), Entity(DEFAULT)):
        await quotas(broker).change(entity, dict.fromkeys(Quota, 1.0))
    async with of(broker, "ann") as client:
        client.says({})
        assert await client.refused("t", LARGE) == Code.UNAUTHORIZED
        assert await client.receive_code("t") == Code.UNAUTHORIZED
        assert not is_paused(broker)


async def test_no_logins_are_required() -> None:
    async with AsyncBroker(rocketmq_grpc=ANY_PORT) as broker, client_of(broker, "mine") as client:
        await quotas(broker).change(Entity(None, "mine"), {Quota.WRITTEN: RATE})
        await client.send("t", LARGE)
        await assert_waits(broker, client)


async def test_what_consumers_get_is_counted(broker: AsyncBroker, client: SignedClient) -> None:
    async def counted() -> tuple[float, float]:
        seen = await scrape(broker, ("admin", "admin's password"))
        names = ("posthouse_topic_records_out_total", "posthouse_topic_bytes_out_total")
        records, size = [seen.value(name, topic="t") if seen.has(name, topic="t") else 0 for name in names]
        return records, size

    await client.send("t", b"x" * 1000, b"y" * 1000)
    assert await counted() == (0, 0)
    assert len(await pulled(client)) == 2
    assert await counted() == (2, 2000)
    assert len(await client.receive("t")) == 2
    assert await counted() == (4, 4000)
