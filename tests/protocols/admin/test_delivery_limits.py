"""Limits on deliveries by HTTP, with real AMQP clients, and what operators see of the funnel."""

import asyncio
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aiokafka import AIOKafkaConsumer

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.ids import GroupId
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.admin.conftest import Scene
from tests.protocols.admin.metrics.scraping import scrape

Q = "/v1/queues/%2F/q"


class Workers:
    """Consumers of one queue, each on its own connection, that settle when they are told to."""

    def __init__(self) -> None:
        self.held: list[AbstractIncomingMessage] = []
        self.bodies: list[list[bytes]] = []
        self._connections: list[Any] = []
        self._more = asyncio.Event()

    async def add(self, broker: AsyncBroker, *, no_ack: bool = False) -> None:
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        self._connections.append(connection)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        bodies: list[bytes] = []
        self.bodies.append(bodies)

        async def got(message: AbstractIncomingMessage) -> None:
            bodies.append(message.body)
            if not no_ack:
                self.held.append(message)
            self._more.set()

        await (await channel.get_queue("q", ensure=False)).consume(got, no_ack=no_ack)

    @property
    def count(self) -> int:
        return sum(map(len, self.bodies))

    async def have(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.count < count:
                self._more.clear()
                await self._more.wait()

    async def ack(self) -> None:
        held, self.held = self.held, []
        for message in held:
            await message.ack()

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


async def quiet(scene: Scene) -> None:
    """The broker has sent what it could: another client's round trips came behind it."""
    for _ in range(5):
        await scene.channel.declare_queue("q", passive=True)
        await asyncio.sleep(0.01)


async def test_consumers_hold_no_more_than_the_concurrency_until_it_is_lifted(scene: Scene) -> None:
    await scene.channel.declare_queue("q")
    answered(await scene.http.put(f"{Q}/limits", json={"concurrency": 5}), 204)
    workers = Workers()
    for _ in range(3):
        await workers.add(scene.broker)
    await scene.publish(*[b"%d" % number for number in range(60)])
    for done in range(0, 30, 5):
        await workers.have(done + 5)
        await quiet(scene)
        assert workers.count == done + 5, "a prefetch of 100 for each of three consumers would take all"
        assert answered(await scene.http.get(Q))["unacked"] == 5
        await workers.ack()
    assert min(map(len, workers.bodies)) >= 5, "each gets its share"
    answered(await scene.http.delete(f"{Q}/limits"), 204)
    await workers.have(60)
    assert len({body for bodies in workers.bodies for body in bodies}) == 60
    await workers.close()


async def test_a_rate_holds_for_all_consumers_until_it_is_lifted(scene: Scene) -> None:
    """At one message in ten minutes, time plays no part."""
    await scene.channel.declare_queue("q")
    answered(await scene.http.put(f"{Q}/limits", json={"rate": 1 / 600}), 204)
    workers = Workers()
    await workers.add(scene.broker)
    await workers.add(scene.broker, no_ack=True)
    await scene.publish(*[b"x"] * 40)
    await workers.have(1)
    await workers.ack()
    await quiet(scene)
    assert workers.count == 1
    queue = await scene.channel.get_queue("q")
    assert await queue.get(fail=False) is None, "basic.get is limited, too"
    answered(await scene.http.delete(f"{Q}/limits"), 204)
    await workers.have(40)
    await workers.close()


async def test_a_fast_rate_delivers_everything(scene: Scene) -> None:
    await scene.channel.declare_queue("q")
    answered(await scene.http.put(f"{Q}/limits", json={"rate": 400}), 204)
    workers = Workers()
    await workers.add(scene.broker, no_ack=True)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await scene.publish(*[b"x"] * 200)
    await workers.have(200)
    assert loop.time() - began >= (200 - 40) / 400, "a busy machine makes it longer, never shorter"
    await workers.close()


async def test_limits_of_a_declaration(scene: Scene) -> None:
    arguments = {"x-posthouse-delivery-rate": "30/m", "x-posthouse-delivery-concurrency": 2}
    await scene.channel.declare_queue("q", arguments=arguments)
    found = answered(await scene.http.get(Q))
    assert found["limits"] == {"rate": 0.5, "burst": 1, "concurrency": 2, "held_back_seconds": 0}
    assert found["definition"]["delivery_rate"] == 0.5
    answered(await scene.http.put(f"{Q}/limits", json={"rate": 7}), 204)
    limits = answered(await scene.http.get(Q))["limits"]
    assert (limits["rate"], limits["concurrency"]) == (7, None)
    answered(await scene.http.delete(f"{Q}/limits"), 204)
    assert answered(await scene.http.get(Q))["limits"]["concurrency"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-posthouse-delivery-rate": "fast"},
        {"x-posthouse-delivery-rate": 0},
        {"x-posthouse-delivery-rate": True},
        {"x-posthouse-delivery-concurrency": 0},
        {"x-posthouse-delivery-concurrency": "2"},
        {"x-posthouse-delivery-rate": 5, "x-queue-type": "stream"},
    ],
)
async def test_wrong_limits_of_a_declaration(scene: Scene, arguments: dict[str, Any]) -> None:
    with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed, match="x-posthouse-delivery"):
        await scene.channel.declare_queue("w", durable=True, arguments=arguments)


@pytest.mark.parametrize(
    "body",
    [{}, {"rate": 0}, {"rate": -1}, {"rate": "100/s"}, {"concurrency": 0}, {"concurrency": 1.5}, {"x": 1}],
)
async def test_wrong_limits_are_refused(scene: Scene, body: dict[str, Any]) -> None:
    await scene.channel.declare_queue("q")
    answered(await scene.http.put(f"{Q}/limits", json=body), 400)
    answered(await scene.http.put("/v1/groups/g/limits", json=body), 400)
    assert answered(await scene.http.get(Q))["limits"] is None


async def test_limits_of_what_has_none(scene: Scene) -> None:
    stream = {"x-queue-type": "stream"}
    await scene.channel.declare_queue("s", durable=True, arguments=stream)
    answered(await scene.http.put("/v1/queues/%2F/s/limits", json={"rate": 1}), 400)
    answered(await scene.http.put("/v1/queues/%2F/nowhere/limits", json={"rate": 1}), 404)
    answered(await scene.http.delete("/v1/queues/%2F/nowhere/limits"), 404)
    found = answered(await scene.http.get("/v1/queues/%2F/s"))
    assert (found["limits"], found["flow"]) == (None, None)


async def test_limits_need_a_permission() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "ann") as ann:
        inner = broker.app.broker
        for path in ("/v1/queues/%2F/q/limits", "/v1/groups/g/limits"):
            answered(await ann.put(path, json={"rate": 1}), 403)
            answered(await ann.delete(path), 403)
        acl = Acl(principal="User:ann", operation=Operation.ALTER_CONFIGS, kind=Kind.GROUP, name="g")
        await inner.access.acls.add([acl])
        answered(await ann.put("/v1/groups/g/limits", json={"rate": 1}), 204)


async def test_limits_of_a_group_are_its_settings() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        inner = broker.app.broker
        await inner.subscriptions.create(GroupId("g"))
        answered(await http.put("/v1/groups/g/limits", json={"rate": 0.5, "concurrency": 8}), 204)
        assert inner.group_configs.overrides(GroupId("g")) == {
            "posthouse.delivery.rate": "30/m",
            "posthouse.delivery.concurrency": "8",
        }
        found = answered(await http.get("/v1/groups/g"))
        assert found["limits"] == {
            "rate": 0.5,
            "burst": 1,
            "concurrency": 8,
            "held_back_seconds": 0,
            "applies": True,
        }
        answered(await http.put("/v1/groups/g/limits", json={"concurrency": 3}), 204)
        limits = answered(await http.get("/v1/groups/g"))["limits"]
        assert (limits["rate"], limits["concurrency"]) == (None, 3)
        metrics = await scrape(broker)
        assert metrics.value("posthouse_group_delivery_concurrency_limit", group="g") == 3
        assert not metrics.has("posthouse_group_delivery_rate_limit", group="g")
        assert metrics.value("posthouse_group_held_back_seconds_total", group="g") == 0
        answered(await http.delete("/v1/groups/g/limits"), 204)
        assert answered(await http.get("/v1/groups/g"))["limits"] is None


async def test_limits_of_a_consumer_group_are_told_not_to_apply() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.kafka, group_id="g")
        await consumer.start()
        answered(await http.put("/v1/groups/g/limits", json={"rate": 1}), 204)
        async with asyncio.timeout(60):
            while not (found := answered(await http.get("/v1/groups/g")))["members"]:
                await asyncio.sleep(0.01)
        assert found["limits"]["applies"] is False
        await consumer.stop()


async def test_limits_survive_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        async with await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/") as connection:
            await (await connection.channel()).declare_queue("q", durable=True)
        answered(await http.put(f"{Q}/limits", json={"rate": 100, "concurrency": 8}), 204)
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        limits = answered(await http.get(Q))["limits"]
        assert (limits["rate"], limits["burst"], limits["concurrency"]) == (100, 10, 8)


async def test_a_peak_is_seen_as_it_is_shaved(scene: Scene) -> None:
    """Sixty messages come at once, and are worked off twenty at a time."""
    await scene.channel.declare_queue("q")
    answered(await scene.http.put(f"{Q}/limits", json={"concurrency": 20}), 204)
    workers = Workers()
    await workers.add(scene.broker)
    first = answered(await scene.http.get(Q))["flow"]
    assert first == {"in_rate": None, "out_rate": None, "backlog": 0, "drain_seconds": None}
    await scene.publish(*[b"x"] * 60)
    await workers.have(20)
    grown = await _flow(scene)
    assert grown["backlog"] == 60
    assert grown["in_rate"] > 0
    assert grown["out_rate"] == 0
    assert grown["drain_seconds"] is None, "it grows"
    for count in (40, 60):
        await workers.ack()
        await workers.have(count)
    await workers.ack()
    async with asyncio.timeout(60):
        while answered(await scene.http.get(Q))["unacked"]:
            await asyncio.sleep(0.01)
    shrunk = await _flow(scene)
    assert shrunk["backlog"] == 0
    assert shrunk["drain_seconds"] == 0
    metrics = await scrape(scene.broker)
    labels = {"namespace": "/", "queue": "q"}
    assert metrics.value("posthouse_queue_delivery_concurrency_limit", **labels) == 20
    assert not metrics.has("posthouse_queue_delivery_rate_limit", **labels)
    assert metrics.value("posthouse_queue_held_back_seconds_total", **labels) > 0
    await workers.close()


async def _flow(scene: Scene) -> dict[str, Any]:
    """With rates."""
    async with asyncio.timeout(30):
        while (flow := answered(await scene.http.get(Q))["flow"])["in_rate"] is None:
            await asyncio.sleep(0.1)
    return dict(flow)
