"""What AMQP libraries do when the coordinator hands over in good order: they are told, and connect again.

Each of them knows one address, that of a broker which stays, and passes their connections on.
"""

import asyncio
import time

import aio_pika
import kombu
import pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection

from posthouse.model.scopes import scope_of_namespace
from posthouse.settings import Address
from tests.cluster.nodes import coordinates, nodes, until
from tests.cluster.scope_moves import holds, hurry, move_scope

pytestmark = pytest.mark.timeout(120)

SECONDS = 60


async def test_pika_raises_the_reason(url: str) -> None:
    async with nodes(url, "a", "b") as (first, second):
        address = second.listeners["amqp"]
        opened = asyncio.Event()
        loop = asyncio.get_running_loop()

        def talk() -> str:
            connection = pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port))
            connection.channel().queue_declare("q", durable=True)
            loop.call_soon_threadsafe(opened.set)
            deadline = time.monotonic() + SECONDS
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
                while time.monotonic() < deadline:
                    connection.process_data_events(1)
            return f"{closed.value.reply_code} {closed.value.reply_text}"

        talking = asyncio.create_task(asyncio.to_thread(talk))
        await asyncio.wait_for(opened.wait(), SECONDS)
        await first.stop()
        said = await asyncio.wait_for(talking, SECONDS)
        assert said == "320 CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"


async def test_pika_is_told_that_another_broker_serves_the_virtual_host(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    async with nodes(url, "a", "b") as (first, second):
        scope = scope_of_namespace("/")
        await until(lambda: holds(first, scope) or holds(second, scope))
        holder, other = (first, second) if holds(first, scope) else (second, first)
        address = holder.listeners["amqp"]
        opened = asyncio.Event()
        loop = asyncio.get_running_loop()

        def talk() -> str:
            connection = pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port))
            connection.channel()
            loop.call_soon_threadsafe(opened.set)
            deadline = time.monotonic() + SECONDS
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
                while time.monotonic() < deadline:
                    connection.process_data_events(1)
            return f"{closed.value.reply_code} {closed.value.reply_text}"

        talking = asyncio.create_task(asyncio.to_thread(talk))
        await asyncio.wait_for(opened.wait(), SECONDS)
        await move_scope(url, scope, other)
        said = await asyncio.wait_for(talking, SECONDS)
        assert said == "320 CONNECTION_FORCED - another broker serves the virtual host now; connect again"


async def test_aio_pika_connects_again_by_itself(url: str) -> None:
    async with nodes(url, "a", "b") as (first, second):
        connection = await aio_pika.connect_robust(_amqp(second.listeners["amqp"]), reconnect_interval=0.2)
        reasons: list[BaseException | None] = []

        def closed(_: AbstractConnection | None, error: BaseException | None) -> None:
            reasons.append(error)

        connection.close_callbacks.add(closed)
        async with connection, asyncio.timeout(SECONDS):
            channel = await connection.channel()
            queue = await channel.declare_queue("q", durable=True)
            await channel.default_exchange.publish(aio_pika.Message(b"before"), "q")
            await first.stop()
            await until(coordinates(second))
            while not await _published(channel, b"after"):
                await asyncio.sleep(0.1)
            for expected in (b"before", b"after"):
                message = await queue.get()
                assert message is not None
                assert message.body == expected
                await message.ack()
            assert "CONNECTION_FORCED" in str(reasons[0])


async def _published(channel: AbstractChannel, body: bytes) -> bool:
    try:
        await channel.default_exchange.publish(aio_pika.Message(body), "q")
    except (aio_pika.exceptions.AMQPError, aio_pika.exceptions.ChannelInvalidStateError):
        return False  # it does not wait until the channel is open again
    return True


async def test_kombu_takes_it_for_an_error_that_it_can_recover_from(url: str) -> None:
    async with nodes(url, "a", "b") as (first, second):
        address = second.listeners["amqp"]
        errors: list[str] = []
        published = asyncio.Event()
        handed_over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def talk() -> list[object]:
            with kombu.Connection(_amqp(address)) as connection:  # type: ignore[no-untyped-call]
                queue = connection.SimpleQueue("q")
                queue.put("before")
                loop.call_soon_threadsafe(published.set)
                asyncio.run_coroutine_threadsafe(handed_over.wait(), loop).result(SECONDS)

                def again(error: Exception, seconds: float) -> None:
                    errors.append(str(error))

                put = connection.ensure(
                    queue.producer, queue.producer.publish, errback=again, max_retries=100, interval_start=0.1
                )
                put("after", routing_key="q", serializer="json")
                found = connection.SimpleQueue("q")
                return [found.get(timeout=SECONDS).payload for _ in range(2)]

        talking = asyncio.create_task(asyncio.to_thread(talk))
        await asyncio.wait_for(published.wait(), SECONDS)
        await first.stop()
        await until(coordinates(second))
        handed_over.set()
        assert await asyncio.wait_for(talking, SECONDS) == ["before", "after"]
        assert any("CONNECTION_FORCED" in each for each in errors), errors


def _amqp(address: Address) -> str:
    return f"amqp://guest:guest@{address}/"
