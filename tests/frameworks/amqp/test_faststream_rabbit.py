"""FastStream's RabbitMQ broker: applications as its users write them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from faststream import AckPolicy, FastStream
from faststream.exceptions import NackMessage, RejectMessage
from faststream.rabbit import (
    Channel,
    ExchangeType,
    QueueType,
    RabbitBroker,
    RabbitExchange,
    RabbitMessage,
    RabbitQueue,
)
from pydantic import BaseModel

from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.clients.amqp.rabbit import Rabbit

SECONDS = 60


class Order(BaseModel):
    id: int
    amount: float


class Seen(list[Any]):
    """What handlers were called with; a test waits until there is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Condition()

    async def add(self, value: Any) -> int:
        async with self._changed:
            self.append(value)
            self._changed.notify_all()
            return len(self)

    async def has(self, count: int) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self) >= count)


@pytest.fixture
async def app(rabbit: Rabbit) -> Any:
    """Starts the broker that a test has given its handlers to; stops what was started."""
    started: list[FastStream] = []

    async def start(broker: RabbitBroker) -> RabbitBroker:
        application = FastStream(broker, logger=None)
        await application.start()
        started.append(application)
        return broker

    yield start
    for application in started:
        await application.stop()


def new(rabbit: Rabbit, **options: Any) -> RabbitBroker:
    return RabbitBroker(rabbit.url, logger=None, **options)


async def test_a_pipeline(rabbit: Rabbit, name: str, app: Any) -> None:
    """Typed messages from one queue through a handler to another, with headers and ids."""
    broker, seen = new(rabbit), Seen()

    @broker.subscriber(name)
    @broker.publisher(f"{name}-out")
    async def charge(order: Order, message: RabbitMessage) -> dict[str, Any]:
        return {"id": order.id, "total": order.amount * 2, "by": message.headers["tenant"]}

    @broker.subscriber(f"{name}-out")
    async def collect(body: dict[str, Any], message: RabbitMessage) -> None:
        await seen.add((body, message.correlation_id))

    await app(broker)
    for number in range(5):
        await broker.publish(
            Order(id=number, amount=1.5), name, headers={"tenant": "blue"}, correlation_id=f"c{number}"
        )
    await seen.has(5)
    found = sorted(seen, key=lambda each: each[1])  # handlers run side by side
    assert found == [({"id": n, "total": 3.0, "by": "blue"}, f"c{n}") for n in range(5)]


async def test_requests_and_replies(rabbit: Rabbit, name: str, app: Any) -> None:
    """By direct reply-to, and by a queue that the caller names."""
    broker, seen = new(rabbit), Seen()

    @broker.subscriber(name)
    async def double(value: int) -> int:
        return value * 2

    @broker.subscriber(f"{name}-replies")
    async def collect(value: int) -> None:
        await seen.add(value)

    await app(broker)
    replies = await asyncio.gather(*(broker.request(n, name, timeout=SECONDS) for n in range(10)))
    assert [await reply.decode() for reply in replies] == [n * 2 for n in range(10)]
    await broker.publish(21, name, reply_to=f"{name}-replies")
    await seen.has(1)
    assert list(seen) == [42]


@pytest.mark.parametrize(
    ("kind", "key", "matches"),
    [
        (ExchangeType.DIRECT, "logs.info", ["logs.info"]),
        (ExchangeType.TOPIC, "logs.*", ["logs.info", "logs.error"]),
        (ExchangeType.FANOUT, "", ["logs.info", "logs.error", "other"]),
    ],
)
async def test_exchanges(
    rabbit: Rabbit, name: str, app: Any, kind: ExchangeType, key: str, matches: list[str]
) -> None:
    broker, seen = new(rabbit), Seen()
    exchange = RabbitExchange(name, type=kind, auto_delete=True)

    @broker.subscriber(RabbitQueue(f"{name}-q", auto_delete=True, routing_key=key), exchange)
    async def collect(body: str) -> None:
        await seen.add(body)

    await app(broker)
    for sent in ("logs.info", "logs.error", "other"):
        await broker.publish(sent, routing_key=sent, exchange=exchange)
    await seen.has(len(matches))
    assert sorted(seen) == sorted(matches)


async def test_retries_and_dead_letters(rabbit: Rabbit, name: str, app: Any) -> None:
    """A handler that nacks gets the message again; one that rejects sends it to the dead letters."""
    broker, dead = new(rabbit), Seen()
    attempts: dict[str, int] = {}
    work = RabbitQueue(
        name,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"},
    )

    @broker.subscriber(work, ack_policy=AckPolicy.NACK_ON_ERROR)
    async def handle(body: str) -> None:
        attempts[body] = attempts.get(body, 0) + 1
        if body == "flaky" and attempts[body] < 3:
            raise ValueError("try again")
        if body == "nacked" and attempts[body] < 2:
            raise NackMessage
        if body == "hopeless":
            raise RejectMessage

    @broker.subscriber(f"{name}-dead")
    async def bury(body: str, message: RabbitMessage) -> None:
        await dead.add((body, message.headers["x-death"][0]["reason"]))

    await app(broker)
    for body in ("fine", "flaky", "nacked", "hopeless"):
        await broker.publish(body, name)
    await dead.has(1)
    assert list(dead) == [("hopeless", "rejected")]
    async with asyncio.timeout(SECONDS):
        while attempts != {"fine": 1, "flaky": 3, "nacked": 2, "hopeless": 1}:
            await asyncio.sleep(0.01)


async def test_streams(rabbit: Rabbit, name: str, app: Any) -> None:
    """Two applications read all of a stream, one from the beginning and one from an offset."""
    broker, first, later = new(rabbit, default_channel=Channel(prefetch_count=5)), Seen(), Seen()
    await broker.connect()
    stream = RabbitQueue(name, queue_type=QueueType.STREAM, durable=True)
    await broker.declare_queue(stream)
    for number in range(20):
        await broker.publish({"n": number}, name)

    def reader(start: object, seen: Seen) -> Callable[..., Any]:
        @broker.subscriber(stream, consume_args={"x-stream-offset": start})
        async def read(body: dict[str, int], message: RabbitMessage) -> None:
            await seen.add((message.headers["x-stream-offset"], body["n"]))
            if body["n"] == 7:
                raise ValueError("a message that cannot be handled does not stop the reader")

        return read

    reader("first", first)
    reader(15, later)
    await app(broker)
    await asyncio.gather(first.has(20), later.has(5))
    assert sorted(first) == [(n, n) for n in range(20)]  # handlers run side by side
    assert sorted(later) == [(n, n) for n in range(15, 20)]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # tasks that aio-pika forgets when it reconnects
)
async def test_going_on_after_a_restart_of_the_broker(tmp_path: Path, name: str) -> None:
    """The application reconnects by itself; what was not acknowledged comes again."""
    seen = Seen()
    stuck = asyncio.Event()
    async with AsyncBroker(data=tmp_path, amqp=Address("127.0.0.1", 0)) as running:
        address = running.amqp
        rabbit = Rabbit(address=address, kafka=None)
        broker = new(rabbit, reconnect_interval=0.2, default_channel=Channel(prefetch_count=1))

        @broker.subscriber(RabbitQueue(name, durable=True))
        async def handle(body: str, message: RabbitMessage) -> None:
            count = await seen.add(body)
            if count == 2:
                await stuck.wait()

        application = FastStream(broker, logger=None)
        await application.start()
        await broker.publish("a", name, persist=True)
        await broker.publish("b", name, persist=True)
        await broker.publish("c", name, persist=True)
        await seen.has(2)
    host, _, port = address.rpartition(":")
    async with AsyncBroker(data=tmp_path, amqp=Address(host, int(port))):
        stuck.set()
        await seen.has(4)
        assert list(seen) == ["a", "b", "b", "c"]
        sender = await aio_pika.connect(rabbit.url)
        async with sender:
            channel = await sender.channel()
            await channel.default_exchange.publish(aio_pika.Message(b"d", content_type="text/plain"), name)
        await seen.has(5)
        await application.stop()
    assert seen[-1] == "d"
