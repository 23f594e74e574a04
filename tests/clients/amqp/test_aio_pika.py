"""aio-pika, unmodified."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue, AbstractRobustConnection
from aio_pika.exceptions import ChannelClosed, ChannelPreconditionFailed, DeliveryError, QueueEmpty
from aio_pika.patterns import RPC, Master

from tests.clients.amqp.blocking import SECONDS
from tests.clients.amqp.rabbit import Rabbit


@pytest.fixture
async def connection(rabbit: Rabbit) -> AsyncIterator[AbstractRobustConnection]:
    async with await aio_pika.connect_robust(rabbit.url) as made:
        yield made


@pytest.fixture
async def channel(connection: AbstractRobustConnection) -> AbstractChannel:
    """With confirms, as they come in aio-pika."""
    return await connection.channel()


@pytest.fixture
async def queue(channel: AbstractChannel, name: str) -> AbstractQueue:
    return await channel.declare_queue(name, exclusive=True)


async def send(channel: AbstractChannel, queue: AbstractQueue, *bodies: bytes) -> None:
    for body in bodies:
        await channel.default_exchange.publish(Message(body), queue.name)


async def bodies(queue: AbstractQueue) -> list[bytes]:
    found = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        found.append(message.body)
    return found


async def test_properties(channel: AbstractChannel, queue: AbstractQueue) -> None:
    message = Message(
        b"body",
        headers={
            "text": "a",
            "number": 7,
            "list": [1, "b"],
            "table": {"deep": True},
            "bytes": bytearray(b"\xff"),
        },
        content_type="text/plain",
        content_encoding="utf-8",
        delivery_mode=DeliveryMode.PERSISTENT,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration=60,
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    await channel.default_exchange.publish(message, queue.name)
    found = await queue.get()
    assert found is not None
    assert found.properties == message.properties
    assert (found.body, found.routing_key, found.exchange) == (b"body", queue.name, "")
    await found.ack()


async def test_iterator(channel: AbstractChannel, queue: AbstractQueue) -> None:
    await send(channel, queue, *(b"%d" % number for number in range(50)))
    await channel.set_qos(prefetch_count=5)
    found = []
    async with queue.iterator(timeout=SECONDS) as messages:
        async for message in messages:
            async with message.process():
                found.append(message.body)
            if len(found) == 50:
                break
    assert found == [b"%d" % number for number in range(50)]
    assert await bodies(queue) == []


async def test_many_publishes_at_once(channel: AbstractChannel, queue: AbstractQueue) -> None:
    """Their confirms come in any grouping."""
    await asyncio.gather(
        *(
            channel.default_exchange.publish(Message(b"%d" % number, delivery_mode=2), queue.name)
            for number in range(500)
        )
    )
    assert await bodies(queue) == [b"%d" % number for number in range(500)]


async def test_failed_processing_rejects(channel: AbstractChannel, name: str) -> None:
    dead = await channel.declare_queue(f"{name}-dead", exclusive=True)
    queue = await channel.declare_queue(
        name,
        exclusive=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name},
    )
    await send(channel, queue, b"bad")
    message = await queue.get()
    assert message is not None
    with pytest.raises(ZeroDivisionError):
        async with message.process(requeue=False):
            raise ZeroDivisionError
    async with dead.iterator(timeout=SECONDS) as messages:
        async for buried in messages:
            await buried.ack()
            assert buried.body == b"bad"
            assert buried.headers["x-first-death-reason"] == "rejected"
            break


async def test_requeue(channel: AbstractChannel, queue: AbstractQueue) -> None:
    await send(channel, queue, b"a", b"b")
    first = await queue.get()
    assert first is not None
    await first.nack(requeue=True)
    again = await queue.get()
    assert again is not None
    assert (again.body, again.redelivered) == (b"a", True)
    await again.ack()
    assert await bodies(queue) == [b"b"]


@pytest.mark.parametrize("kind", [ExchangeType.DIRECT, ExchangeType.FANOUT, ExchangeType.TOPIC])
async def test_exchanges(
    channel: AbstractChannel, queue: AbstractQueue, name: str, kind: ExchangeType
) -> None:
    exchange = await channel.declare_exchange(name, kind, auto_delete=True)
    await queue.bind(exchange, "some.key")
    await exchange.publish(Message(b"x"), "some.key")
    message = await queue.get()
    assert message is not None
    await message.ack()
    assert (message.body, message.exchange, message.routing_key) == (b"x", name, "some.key")
    await queue.unbind(exchange, "some.key")


async def test_headers_exchange(channel: AbstractChannel, queue: AbstractQueue, name: str) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.HEADERS, auto_delete=True)
    await queue.bind(exchange, arguments={"x-match": "any", "colour": "red", "size": 3})
    for colour, size in (("red", 1), ("blue", 3), ("blue", 1)):
        message = Message(colour.encode(), headers={"colour": colour, "size": size})
        await exchange.publish(message, "", mandatory=False)
    assert await bodies(queue) == [b"red", b"blue"]


async def test_exchange_to_exchange(channel: AbstractChannel, queue: AbstractQueue, name: str) -> None:
    source = await channel.declare_exchange(f"{name}-source", ExchangeType.FANOUT, auto_delete=True)
    target = await channel.declare_exchange(f"{name}-target", ExchangeType.TOPIC, auto_delete=True)
    await target.bind(source)
    await queue.bind(target, "a.*")
    await source.publish(Message(b"x"), "a.b")
    assert await bodies(queue) == [b"x"]


async def test_unroutable(connection: AbstractRobustConnection, name: str) -> None:
    channel = await connection.channel(on_return_raises=True)
    with pytest.raises(DeliveryError, match="NO_ROUTE"):
        await channel.default_exchange.publish(Message(b"lost"), f"{name}-missing", mandatory=True)


async def test_full_queue_refuses(channel: AbstractChannel, name: str) -> None:
    arguments: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = await channel.declare_queue(name, exclusive=True, arguments=arguments)
    await send(channel, queue, b"a")
    with pytest.raises(DeliveryError):
        await send(channel, queue, b"b")


async def test_transaction(connection: AbstractRobustConnection, queue: AbstractQueue) -> None:
    channel = await connection.channel(publisher_confirms=False)
    async with channel.transaction():
        await channel.default_exchange.publish(Message(b"a"), queue.name)
        assert await queue.get(fail=False) is None
    assert await bodies(queue) == [b"a"]
    with pytest.raises(ZeroDivisionError):
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"b"), queue.name)
            raise ZeroDivisionError
    assert await bodies(queue) == []


async def test_declared_otherwise(connection: AbstractRobustConnection, name: str) -> None:
    async with connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
    async with connection.channel() as channel:
        with pytest.raises(ChannelPreconditionFailed):
            await channel.declare_queue(name, exclusive=True, arguments={"x-max-length": 1})


async def test_queue_that_is_not_there(connection: AbstractRobustConnection, name: str) -> None:
    channel = await connection.channel()
    with pytest.raises(ChannelClosed, match="NOT_FOUND"):
        await channel.get_queue(name, ensure=True)


async def test_empty_queue(queue: AbstractQueue) -> None:
    with pytest.raises(QueueEmpty):
        await queue.get()


async def test_remote_calls(connection: AbstractRobustConnection, name: str) -> None:
    """aio-pika's own pattern: exclusive reply queues, and dead letters for calls that nobody takes."""

    async def multiply(*, a: int, b: int) -> int:
        return a * b

    async def fail() -> None:
        raise ValueError("on purpose")

    async with connection.channel() as serving, connection.channel() as calling:
        server, client = await RPC.create(serving), await RPC.create(calling)
        await server.register(f"{name}-multiply", multiply, auto_delete=True)
        await server.register(f"{name}-fail", fail, auto_delete=True)
        calls = (client.call(f"{name}-multiply", {"a": 6, "b": number}) for number in range(20))
        assert await asyncio.gather(*calls) == [6 * number for number in range(20)]
        with pytest.raises(ValueError, match="on purpose"):
            await client.call(f"{name}-fail")
        await client.close()
        await server.close()


async def test_master_and_workers(connection: AbstractRobustConnection, name: str) -> None:
    done: list[int] = []
    finished = asyncio.Event()

    async def work(*, number: int) -> None:
        done.append(number)
        if len(done) == 30:
            finished.set()

    async with connection.channel() as channel:
        await channel.set_qos(prefetch_count=3)
        master = Master(channel)
        workers = [await master.create_worker(name, work, auto_delete=True) for _ in range(3)]
        for number in range(30):
            await master.create_task(name, {"number": number})
        await asyncio.wait_for(finished.wait(), SECONDS)
        for worker in workers:
            await worker.close()
    assert sorted(done) == list(range(30))


async def test_robust_connection_comes_back(rabbit: Rabbit, name: str) -> None:
    """When its connection is cut it reconnects, declares everything anew and goes on consuming."""
    received: asyncio.Queue[bytes] = asyncio.Queue()
    reconnected = asyncio.Event()

    async def receive(message: AbstractIncomingMessage) -> None:
        await message.ack()
        received.put_nowait(message.body)

    connection = await aio_pika.connect_robust(rabbit.url, reconnect_interval=0.05)
    connection.reconnect_callbacks.add(lambda *_: reconnected.set())
    channel = await connection.channel()
    queue = await channel.declare_queue(name, auto_delete=True)
    await queue.consume(receive)
    assert connection.transport is not None
    await connection.transport.connection.close(ConnectionResetError("cut by the test"))
    await asyncio.wait_for(reconnected.wait(), SECONDS)
    await channel.default_exchange.publish(Message(b"after"), name)
    assert await asyncio.wait_for(received.get(), SECONDS) == b"after"
    await connection.close()
