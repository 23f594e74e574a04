"""Quotas: requests are answered, and the client is not read from until it is paid."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.access.quotas import DEFAULT, Entity, Quota, Quotas
from posthouse.protocols.rocketmq.remoting.connection import RemotingConnection
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.conftest import ROCKETMQ
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient, client_of
from tests.protocols.rocketmq.signed_client import SignedClient, signed_client_of

USERS = {"ann": "ann's password", "ben": "ben's password"}
RATE = 100_000
LARGE = b"x" * 150_000
"""Half a second more than is free."""


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    """Where `ann` is a superuser with an access key."""
    async with AsyncBroker(rocketmq=ROCKETMQ, users=USERS) as running:
        await running.app.broker.access.access_keys.add("ann", "key", secret=USERS["ann"])
        yield running


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[SignedClient]:
    async with signed_client_of(broker, "key", USERS["ann"]) as connected:
        yield connected


def quotas(broker: AsyncBroker) -> Quotas:
    return broker.app.broker.access.quotas


def is_paused(broker: AsyncBroker) -> bool:
    [connection] = broker.app.connections
    assert isinstance(connection, RemotingConnection)
    return connection.info.is_paused


async def assert_waits(broker: AsyncBroker, client: RemotingClient) -> None:
    """The next request is read, but later."""
    assert is_paused(broker)
    begun = asyncio.get_running_loop().time()
    await client.request(105, {"topic": "t"})
    assert asyncio.get_running_loop().time() - begun > 0.2
    assert quotas(broker).throttles == 1
    assert quotas(broker).throttled_seconds > 0.2


@pytest.mark.parametrize(
    "entity", [Entity("ann"), Entity("ann", "mine"), Entity(None, "mine"), Entity(DEFAULT)], ids=str
)
async def test_producers_wait(broker: AsyncBroker, client: SignedClient, entity: Entity) -> None:
    await client.beat("mine")
    await client.send("t", b"the topic is there", d=1)
    await quotas(broker).change(entity, {Quota.WRITTEN: RATE})
    assert (await client.send("t", LARGE)).code == 0
    await assert_waits(broker, client)


@pytest.mark.parametrize("entity", [Entity("ben"), Entity("ann", "theirs"), Entity(None, "theirs")], ids=str)
async def test_quotas_of_others(broker: AsyncBroker, client: SignedClient, entity: Entity) -> None:
    await client.beat("mine")
    await client.beat("theirs")  # the name that it gave itself first counts
    await quotas(broker).change(entity, dict.fromkeys(Quota, 1.0))
    assert (await client.send("t", LARGE, d=1)).code == 0
    assert (await client.pull("t")).code == 0
    assert not is_paused(broker)
    assert quotas(broker).throttles == 0


async def test_consumers_wait(broker: AsyncBroker, client: SignedClient) -> None:
    await client.send("t", LARGE, d=1)
    await quotas(broker).change(Entity("ann"), {Quota.READ: RATE})
    assert len(await client.messages("t")) == 1
    await assert_waits(broker, client)


async def test_a_pull_that_waits_is_answered(broker: AsyncBroker, client: SignedClient) -> None:
    await client.send("t", LARGE, d=1)
    await quotas(broker).change(Entity("ann"), {Quota.READ: RATE})
    waiting = client.start(11, client.pull_fields("t", 1, wait_ms=30_000))
    await client.messages("t")
    assert is_paused(broker)
    topic = broker.app.broker.topic("t")
    stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    broker.app.broker.record_waves.add(topic, 0, None, b"v", b"\0", 0, stored.set_result)
    async with asyncio.timeout(DEADLINE):
        assert (await waiting).code == 0


async def test_small_requests_are_free(broker: AsyncBroker, client: SignedClient) -> None:
    await quotas(broker).change(Entity("ann"), {Quota.WRITTEN: RATE, Quota.READ: RATE})
    for _ in range(20):
        assert (await client.send("t", b"x" * 1000, d=1)).code == 0
    assert len(await client.messages("t")) == 20
    for _ in range(2000):  # neither sends nor pulls
        client.oneway(105, {"topic": "t"})
    await client.request(105, {"topic": "t"})
    assert not is_paused(broker)


@pytest.mark.parametrize("code", [105, 11])
async def test_time(
    broker: AsyncBroker, client: SignedClient, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Of the event loop, also where a request takes several turns of it."""
    await client.send("t", b"v", d=1)
    await client.pull("t")
    await quotas(broker).change(Entity("ann"), {Quota.TIME: 50.0})
    seconds = iter(range(1000))
    monkeypatch.setattr("posthouse.protocols.stopwatch.time.thread_time", lambda: next(seconds) / 4)
    fields = client.pull_fields("t") if code == 11 else {"topic": "t"}
    while not is_paused(broker):
        await client.request(code, fields)
    await client.request(105, {"topic": "t"})
    assert quotas(broker).throttles >= 1


async def test_refused_requests_are_not_charged(broker: AsyncBroker) -> None:
    """Nobody is to spend the quota of those who log in."""
    await quotas(broker).change(Entity(None, DEFAULT), {Quota.WRITTEN: 1.0})
    await quotas(broker).change(Entity(DEFAULT), {Quota.WRITTEN: 1.0})
    async with client_of(broker) as client:
        assert (await client.send("t", LARGE)).code == 16
        assert not is_paused(broker)


async def test_no_logins_are_required() -> None:
    async with AsyncBroker(rocketmq=ROCKETMQ) as broker, client_of(broker) as client:
        await client.beat("mine")
        await quotas(broker).change(Entity(None, "mine"), {Quota.WRITTEN: RATE})
        assert (await client.send("t", LARGE, d=1)).code == 0
        await assert_waits(broker, client)
