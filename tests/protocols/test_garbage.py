"""What is gone, connections and requests, leaves nothing behind for the collector, which comes seldom."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from pamqp.commands import Basic, Confirm, Queue

from posthouse.protocols.amqp.codec.framing import PROTOCOL
from posthouse.protocols.kafka.connection import KafkaConnection
from posthouse.testing import AsyncBroker
from tests.hostile.peers import GoodClient
from tests.protocols.amqp.rig import GatedStorage, Rig
from tests.protocols.kafka.wire import Wire, fetch_request

HALF_A_FRAME = b"\0\0\xea\x60begun"
HEALTH = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
BEGINNINGS = [("kafka", HALF_A_FRAME), ("amqp", PROTOCOL), ("admin", HEALTH[:10]), ("admin", HEALTH)]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def is_gone(connection: Callable[[], object | None]) -> bool:
    end = asyncio.get_running_loop().time() + 5
    while connection() is not None and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.001)
    return connection() is None


@pytest.mark.parametrize("users", [{}, {"admin": "secret"}], ids=["open", "guarded"])
@pytest.mark.parametrize(("protocol", "begin"), BEGINNINGS)
async def test_who_only_began(protocol: str, begin: bytes, users: dict[str, str]) -> None:
    async with AsyncBroker(users=users) as broker:
        host, _, port = getattr(broker, protocol).rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(begin)
        while not broker.app.connections:
            await asyncio.sleep(0.001)
        [connection] = map(weakref.ref, broker.app.connections)
        writer.close()
        assert await is_gone(connection)


@pytest.mark.parametrize("politely", [True, False])
async def test_who_published_and_consumed(politely: bool) -> None:
    async with Rig() as rig:
        wire = await rig.open()
        await wire.call(1, Queue.Declare(queue="q"))
        await wire.call(1, Confirm.Select())
        await wire.call(1, Basic.Consume(queue="q"))
        wire.publish(1, "", "q", b"body")
        await wire.expect(1, Basic.Ack)
        [connection] = map(weakref.ref, rig.connections)
        if politely:
            await wire.close()
        else:
            wire.writer.close()
        assert await is_gone(connection)


async def test_requests_that_are_answered() -> None:
    """A produce request has its records with it."""

    def produce(times: int, topic: str) -> None:
        host, _, port = broker.kafka.rpartition(":")
        with GoodClient((host, int(port)), topic) as client:
            for _ in range(times):
                client.produce_one()

    async with AsyncBroker() as broker:
        await asyncio.to_thread(produce, 10, "before")
        gc.collect()
        await asyncio.to_thread(produce, 100, "counted")
        assert gc.collect() < 100


async def test_a_consumer_that_is_lost_in_the_middle_of_a_long_poll() -> None:
    async with AsyncBroker() as broker:
        async with Wire(broker.kafka) as wire:
            topic = await wire.create_topic()
            wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=60_000))
            [found] = broker.app.connections
            assert isinstance(found, KafkaConnection)
            while found._pipeline.task is None:
                await asyncio.sleep(0.001)
            connection = weakref.ref(found)
            del found
        assert await is_gone(connection)


async def test_a_lost_publisher_takes_no_memory_budget_when_its_last_wave_ends() -> None:
    storage = GatedStorage()
    async with Rig(storage=storage) as rig:
        wire = await rig.open()
        await wire.call(1, Queue.Declare(queue="q"))
        [connection] = rig.connections
        budget = connection._shared.budget
        storage.gate.clear()
        wire.publish(1, "", "q", b"x" * 90_000)
        while budget.room == budget.limit:
            await asyncio.sleep(0.001)
        connection.connection_lost(None)
        assert budget.room == budget.limit
        connection.regulate()  # as the end of a wave does, before the conversation has ended
        assert budget.room == budget.limit
        storage.gate.set()
        wire.writer.close()
