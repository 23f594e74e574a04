"""Limits over all brokers: a client that is at its limit at one broker is refused at the others."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.exceptions import AMQPConnectionError

from posthouse.broker.access.quotas import Entity, Quota, Quotas
from posthouse.broker.access.shared_rate import SharedRate
from posthouse.broker.cluster_usage import ClusterUsage
from posthouse.model.usage import Limited
from posthouse.node import Node
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.settings import Address, Authentication
from tests.cluster import nodes as cluster_nodes
from tests.cluster.nodes import node_settings, nodes
from tests.protocols.kafka.access.scene import log_in
from tests.protocols.kafka.wire import Wire
from tests.served import ServedBroker

pytestmark = pytest.mark.timeout(120)

_SECONDS = 60
HOST = "127.0.0.1"
PASSWORD = "secret"


async def until(is_so: Callable[[], object]) -> None:
    await cluster_nodes.until(is_so, _SECONDS)


def usage(of: Node) -> ClusterUsage:
    app = of.parts.life.app
    assert app is not None
    return app._gate._cluster


async def know_each_other(*made: Node) -> None:
    """Each has heard a report of each other."""
    await until(lambda: all(usage(each).needs(Limited.READ, "x") == [0] * (len(made) - 1) for each in made))


@asynccontextmanager
async def connections(address: Address, count: int) -> AsyncIterator[None]:
    """Of Kafka clients that have made a request: others are closed after some seconds."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            wire = await stack.enter_async_context(Wire(str(address)))
            await asyncio.wait_for(wire.ask(MetadataRequest(topics=[]), MetadataResponse), _SECONDS)
        yield


async def is_refused(address: Address) -> bool:
    try:
        async with connections(address, 1):
            pass
    except (ConnectionError, asyncio.IncompleteReadError):
        return True
    return False


@pytest.mark.parametrize("is_coordinator_first", [True, False])
async def test_an_address_at_its_limit_is_refused_at_the_other_broker(
    url: str, is_coordinator_first: bool
) -> None:
    async with nodes(url, "a", "b", max_connections_per_address=3) as made:
        first, second = made if is_coordinator_first else reversed(made)
        address = second.listeners["kafka"]
        await know_each_other(*made)
        assert not await is_refused(address)
        async with connections(first.listeners["kafka"], 3):
            await until(lambda: usage(second).connections(Limited.ADDRESS, HOST) == 3)
            assert await is_refused(address)
        await until(lambda: usage(second).connections(Limited.ADDRESS, HOST) == 0)
        assert not await is_refused(address)


async def test_connections_that_a_member_forwards_count_once(url: str) -> None:
    async with nodes(url, "a", "b", max_connections_per_address=4) as (coordinator, member):
        await know_each_other(coordinator, member)
        app = coordinator.parts.life.app
        assert app is not None
        amqp = f"amqp://{member.listeners['amqp']}/"
        async with await aio_pika.connect(amqp), await aio_pika.connect(amqp):
            assert len(app.connections) == 2
            await until(lambda: usage(coordinator).connections(Limited.ADDRESS, HOST) == 2)
            async with connections(coordinator.listeners["kafka"], 1):
                await until(lambda: usage(member).connections(Limited.ADDRESS, HOST) == 1)
                for each in (coordinator, member):
                    assert not await is_refused(each.listeners["kafka"]), "there are three of four"
            async with connections(coordinator.listeners["kafka"], 2):
                await until(lambda: usage(member).connections(Limited.ADDRESS, HOST) == 2)
                for each in (coordinator, member):
                    assert await is_refused(each.listeners["kafka"])


async def test_the_total_is_of_each_broker(url: str) -> None:
    async with nodes(url, "a", "b", max_connections=3) as (first, second):
        await know_each_other(first, second)
        async with connections(first.listeners["kafka"], 3), connections(second.listeners["kafka"], 2):
            assert not await is_refused(second.listeners["kafka"])


async def test_brokers_that_die_take_their_connections_with_them(url: str, tmp_path: Path) -> None:
    settings = node_settings(url, "x")
    assert settings.objects is not None

    def start(name: str) -> ServedBroker:
        return ServedBroker(
            tmp_path / name,
            broker_name=name,
            database=url,
            objects=settings.objects and settings.objects.url,
            max_connections_per_address=3,
        )

    first, second = [await asyncio.to_thread(start, name) for name in "ab"]
    address = Address.parse(second.bootstrap)
    try:
        async with connections(Address.parse(first.bootstrap), 3):
            async with asyncio.timeout(_SECONDS):
                while not await is_refused(address):
                    await asyncio.sleep(0.1)
            await asyncio.to_thread(first.kill)
            async with asyncio.timeout(_SECONDS):
                while await is_refused(address):
                    await asyncio.sleep(0.1)
    finally:
        first.kill()
        second.stop()


# Users


def logins(directory: Path) -> dict[str, Any]:
    password = directory / "password"
    password.touch(0o600)
    password.write_text(PASSWORD)
    return {
        "authentication": Authentication.REQUIRED,
        "admin_password_file": password,
        "max_connections_per_user": 2,
    }


async def test_a_user_at_its_limit_is_refused_at_the_other_broker(url: str, tmp_path: Path) -> None:
    async with nodes(url, "a", "b", **logins(tmp_path)) as (coordinator, member):
        await know_each_other(coordinator, member)
        there, here = (str(each.listeners["kafka"]) for each in (member, coordinator))
        amqp = f"amqp://admin:{PASSWORD}@{member.listeners['amqp']}/"
        async with Wire(there) as one, Wire(there) as two:
            await log_in(one, "admin", PASSWORD)
            await log_in(two, "admin", PASSWORD)
            await until(lambda: usage(coordinator).connections(Limited.USER, "admin") == 2)
            async with Wire(here) as three:
                with pytest.raises(AssertionError, match="max_connections_per_user"):
                    await log_in(three, "admin", PASSWORD)
            with pytest.raises(AMQPConnectionError, match=r"user connection limit \(2\) is reached"):
                await aio_pika.connect(amqp)
        await until(lambda: usage(coordinator).connections(Limited.USER, "admin") == 0)
        async with Wire(here) as four:
            await log_in(four, "admin", PASSWORD)
            async with await aio_pika.connect(amqp):
                await until(lambda: usage(coordinator).connections(Limited.USER, "admin") == 1)
                assert usage(member).connections(Limited.USER, "admin") == 1, "the member counts its own"
                async with Wire(there) as five:
                    with pytest.raises(AssertionError, match="max_connections_per_user"):
                        await log_in(five, "admin", PASSWORD)


async def test_a_connection_whose_requests_are_relayed_counts_once(url: str, tmp_path: Path) -> None:
    async with nodes(url, "a", "b", **logins(tmp_path)) as (coordinator, member):
        await know_each_other(coordinator, member)
        async with Wire(str(member.listeners["kafka"])) as one:
            await log_in(one, "admin", PASSWORD)
            request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
            await one.ask(request, DescribeProducersResponse)
            app = coordinator.parts.life.app
            assert app is not None
            assert [each.info.user for each in app.connections] == ["admin"], "the member relays"
            await until(lambda: usage(coordinator).connections(Limited.USER, "admin") == 1)
            async with Wire(str(coordinator.listeners["kafka"])) as two:
                await log_in(two, "admin", PASSWORD)
                await until(lambda: usage(member).connections(Limited.USER, "admin") == 1)
                await _create(one, "u")


async def _create(wire: Wire, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    made = await wire.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse)
    assert made.topics[0].error_code == 0


# Quotas


async def test_a_byte_rate_belongs_to_the_broker_that_is_used(url: str) -> None:
    async with nodes(url, "a", "b") as (first, second):
        await know_each_other(first, second)
        entity, rate = Entity(None, "tool"), 1000.0
        await _quotas(first).change(entity, {Quota.WRITTEN: rate})
        await until(lambda: not _quotas(second).is_empty)

        def needs(at: Node) -> list[float]:
            return usage(at).needs(Limited.WRITTEN, entity.key().decode())

        def take(at: Node, amount: float) -> float:
            return _quotas(at).take(Quota.WRITTEN, "", "tool", amount)

        def share(of: Node) -> float:
            """As of the last bytes that were taken."""
            bucket = _quotas(of)._buckets[Quota.WRITTEN, entity]
            assert isinstance(bucket, SharedRate)
            return bucket._bucket.rate

        assert take(first, 21 * rate) == pytest.approx(20, rel=0.01), "all of the rate: the other is idle"
        await until(lambda: needs(second) == [math.inf])
        assert take(second, 10.5 * rate) == pytest.approx(20, rel=0.01), "half of it: both are used"
        await until(lambda: take(first, rate) and share(first) == rate / 2)


def _quotas(of: Node) -> Quotas:
    app = of.parts.life.app
    assert app is not None
    return app.broker.access.quotas
