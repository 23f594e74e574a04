"""Streams by aio-pika, unmodified."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest
from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractQueue, AbstractRobustConnection

from tests.clients.amqp.blocking import SECONDS
from tests.clients.amqp.rabbit import Rabbit
from tests.clients.amqp.streams import HEADER, STREAM, numbers


@pytest.fixture
async def connection(rabbit: Rabbit) -> AsyncIterator[AbstractRobustConnection]:
    async with await aio_pika.connect_robust(rabbit.url) as made:
        yield made


@pytest.fixture
async def stream(connection: AbstractRobustConnection, name: str) -> AsyncIterator[AbstractQueue]:
    channel = await connection.channel()
    queue = await channel.declare_queue(name, durable=True, arguments=STREAM)
    yield queue
    await queue.delete(if_unused=False, if_empty=False)


async def send(channel: AbstractChannel, queue: AbstractQueue, bodies: list[bytes]) -> None:
    await asyncio.gather(*(channel.default_exchange.publish(Message(body), queue.name) for body in bodies))


async def read(
    connection: AbstractRobustConnection, name: str, count: int, start: Any, prefetch: int
) -> list[tuple[int, bytes]]:
    """As applications do it: declare, iterate, acknowledge each when it is done."""
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=prefetch)
    queue = await channel.declare_queue(name, durable=True, arguments=STREAM)
    found: list[tuple[int, bytes]] = []
    async with queue.iterator(arguments={HEADER: start}, timeout=SECONDS) as messages:
        async for message in messages:
            async with message.process():
                offset = message.headers[HEADER]
                assert isinstance(offset, int)
                found.append((offset, message.body))
            if len(found) == count:
                break
    await channel.close()
    return found


async def test_readers_at_once(connection: AbstractRobustConnection, stream: AbstractQueue) -> None:
    channel = await connection.channel()
    await send(channel, stream, numbers(0, 100))
    readers = [
        asyncio.create_task(read(connection, stream.name, 200 - start, start, prefetch))
        for start, prefetch in ((0, 1), (0, 50), (20, 7), (100, 100), (150, 3))
    ]
    await send(channel, stream, numbers(100, 200))
    results = await asyncio.gather(*readers)
    everything = results[0]
    assert [offset for offset, _ in everything] == list(range(200))
    assert sorted(body for _, body in everything) == sorted(numbers(0, 200))
    for start, result in zip((0, 20, 100, 150), results[1:], strict=True):
        assert result == everything[start:]


@pytest.mark.usefixtures("posthouse_only")  # RabbitMQ 3.10 takes no nack, which an iterator ends with
async def test_reading_on_where_one_stopped(
    connection: AbstractRobustConnection, stream: AbstractQueue
) -> None:
    channel = await connection.channel()
    for body in numbers(0, 30):
        await channel.default_exchange.publish(Message(body), stream.name)
    found: list[tuple[int, bytes]] = []
    while len(found) < 30:
        start = found[-1][0] + 1 if found else "first"
        found += await read(connection, stream.name, 10, start, 4)
    assert found == list(enumerate(numbers(0, 30)))


@pytest.mark.usefixtures("posthouse_only")
async def test_a_rejected_message_is_no_end(connection: AbstractRobustConnection) -> None:
    """A handler that fails rejects its message, and gets the next one: as in RabbitMQ 4."""
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=1)
    queue = await channel.declare_queue("failing", durable=True, arguments=STREAM)
    seen: list[bytes] = []
    enough = asyncio.Event()

    async def handle(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process(ignore_processed=True):
            seen.append(message.body)
            if len(seen) == 3:
                enough.set()
            elif len(seen) == 2:
                await message.reject(requeue=True)

    await queue.consume(handle, arguments={HEADER: "first"})
    await send(channel, queue, [b"a"])
    await send(channel, queue, [b"b"])
    await send(channel, queue, [b"c"])
    await asyncio.wait_for(enough.wait(), SECONDS)
    assert seen == [b"a", b"b", b"c"]
