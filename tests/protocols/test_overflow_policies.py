"""What becomes of messages that come faster than they go: the policies of docs/flow-control.md, by protocol.

What is shown by tests of one protocol alone is there; see the tables of that page.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aio_pika
import pytest
from aiokafka import AIOKafkaProducer
from pamqp.commands import Basic

from posthouse.broker.topics import NewTopic
from posthouse.model.errors import StorageFull
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.records.record import iter_records
from posthouse.settings import Address
from posthouse.storage.operations import Append, Operation
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import client as http_client
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient
from tests.protocols.rocketmq.remoting_client import client_of

ANY_PORT = Address("127.0.0.1", 0)

Send: TypeAlias = Callable[[str, bytes], Awaitable[bool]]
"""To a topic or queue; whether the broker has it."""


@asynccontextmanager
async def running(data: Path | None = None, **settings: Any) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data=data, rocketmq=ANY_PORT, rocketmq_grpc=ANY_PORT, **settings) as broker:
        yield broker


@asynccontextmanager
async def by_kafka(broker: AsyncBroker) -> AsyncIterator[Send]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.kafka, retry_backoff_ms=20)
    await producer.start()

    async def send(topic: str, body: bytes) -> bool:
        await producer.send_and_wait(topic, body)
        return True

    yield send
    await producer.stop()


@asynccontextmanager
async def by_amqp(broker: AsyncBroker) -> AsyncIterator[Send]:
    async with await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/") as connection:
        channel = await connection.channel(on_return_raises=False)

        async def send(queue: str, body: bytes) -> bool:
            try:
                answer = await channel.default_exchange.publish(
                    aio_pika.Message(body, delivery_mode=2), queue
                )
            except aio_pika.exceptions.DeliveryError:
                return False
            return isinstance(answer, Basic.Ack)

        yield send


@asynccontextmanager
async def by_rocketmq(broker: AsyncBroker) -> AsyncIterator[Send]:
    async with client_of(broker) as client:

        async def send(topic: str, body: bytes) -> bool:
            code = (await client.send(topic, body)).code
            assert code in (0, ResponseCode.SERVICE_NOT_AVAILABLE)
            return code == 0

        yield send


@asynccontextmanager
async def by_rocketmq_grpc(broker: AsyncBroker) -> AsyncIterator[Send]:
    async with MessagingClient(broker.address("rocketmq_grpc")) as client:

        async def send(topic: str, body: bytes) -> bool:
            code = await client.refused(topic, body)
            assert code in (Code.OK, Code.INTERNAL_SERVER_ERROR)
            return code == Code.OK

        yield send


@asynccontextmanager
async def by_http(broker: AsyncBroker) -> AsyncIterator[Send]:
    async with http_client(broker) as http:

        async def send(topic: str, body: bytes) -> bool:
            records = {"records": [{"value": body.decode()}]}
            answer = await http.post(f"/v1/topics/{topic}/records", json=records)
            assert answer.is_success or answer.status_code == 507, answer.text
            return answer.is_success

        yield send


WITHOUT_AMQP = {
    "kafka": by_kafka,
    "rocketmq": by_rocketmq,
    "rocketmq-grpc": by_rocketmq_grpc,
    "http": by_http,
}
PROTOCOLS = WITHOUT_AMQP | {"amqp": by_amqp}


async def create(broker: AsyncBroker, name: str, **overrides: str) -> None:
    new = NewTopic(
        name=name, partitions=1, overrides={key.replace("_", "."): text for key, text in overrides.items()}
    )
    [made] = await broker.app.broker.create_topics([new])
    assert not isinstance(made, Exception), made


async def declare(broker: AsyncBroker, name: str, **arguments: Any) -> None:
    wanted = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    async with await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/") as connection:
        await (await connection.channel()).declare_queue(name, durable=True, arguments=wanted)


async def bodies(broker: AsyncBroker, topic: str) -> list[bytes]:
    """All that the log has of it."""
    inner = broker.app.broker
    found: list[bytes] = []
    bounds = inner.bounds(inner.topic(topic), 0)
    offset = bounds.start
    while offset < bounds.end:
        part = await inner.read(inner.topic(topic), 0, offset, 4 * 1024 * 1024)
        records = [each for each in iter_records(part.data) if each.offset >= offset]
        found += [bytes(each.value or b"") for each in records]
        offset = records[-1].offset + 1
    return found


async def in_the_queue(broker: AsyncBroker, name: str = "q") -> list[bytes]:
    queue = broker.app.broker.namespaces.get("/").queues[name]
    return [bytes(message.value or b"") for message in await queue.peek(1000, 2**30)]


def numbered(count: int, size: int) -> list[bytes]:
    return [b"%04d" % number + b"x" * size for number in range(count)]


# Buffer to disk: what happens without any limit


@pytest.mark.parametrize("protocol", WITHOUT_AMQP)
async def test_a_backlog_waits_on_disk(protocol: str, tmp_path: Path) -> None:
    """Nobody consumes, and the broker is started again: everything is there, in order."""
    sent = numbered(40, 50_000)
    async with running(tmp_path) as broker:
        await create(broker, "t")
        async with PROTOCOLS[protocol](broker) as send:
            for body in sent:
                assert await send("t", body)
    async with running(tmp_path) as broker:
        assert [each[:4] for each in await bodies(broker, "t")] == [each[:4] for each in sent]


async def test_a_backlog_of_a_queue_waits_on_disk(tmp_path: Path) -> None:
    """A consumer with a full prefetch is there: no more than a window is in memory."""
    sent = numbered(160, 60_000)
    async with running(tmp_path) as broker:
        await declare(broker, "q")
        async with (
            by_amqp(broker) as send,
            await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/") as connection,
        ):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=1)
            got = asyncio.Event()

            async def take(message: Any) -> None:
                got.set()

            await (await channel.get_queue("q")).consume(take)
            for body in sent:
                assert await send("q", body)
            async with asyncio.timeout(30):
                await got.wait()
            [lane] = broker.app.broker.namespaces.get("/").queues["q"].lanes
            assert lane.ready == len(sent) - 1
            assert lane.window_bytes < sum(map(len, sent)) * 0.7
    async with running(tmp_path) as broker:
        assert [each[:4] for each in await in_the_queue(broker)] == [each[:4] for each in sent]


# Drop the oldest


@pytest.mark.parametrize("protocol", WITHOUT_AMQP)
async def test_a_topic_drops_its_oldest_segments(protocol: str, tmp_path: Path) -> None:
    sent = numbered(30, 1000)
    async with running(tmp_path, retention_check_seconds=0.05) as broker:
        await create(broker, "t", retention_bytes="5000", segment_bytes="3000")
        async with PROTOCOLS[protocol](broker) as send:
            for body in sent:
                assert await send("t", body), "producers notice nothing"
        inner = broker.app.broker
        async with asyncio.timeout(60):
            while inner.bounds(inner.topic("t"), 0).start < 20:
                await asyncio.sleep(0.01)
        left = await bodies(broker, "t")
        assert 1 <= len(left) <= 10
        assert left == sent[-len(left) :], "the newest stay"


async def test_a_queue_drops_its_oldest_messages() -> None:
    async with running() as broker:
        await declare(broker, "q", max_length=3)
        async with by_amqp(broker) as send:
            for body in numbered(8, 1):
                assert await send("q", body)
        async with asyncio.timeout(30):
            while len(left := await in_the_queue(broker)) > 3:
                await asyncio.sleep(0.01)
        assert left == numbered(8, 1)[5:]


@pytest.mark.parametrize("protocol", WITHOUT_AMQP)
async def test_a_queue_drops_its_oldest_messages_for_records_of_others(protocol: str) -> None:
    """Topics of other protocols feed a queue of the same name."""
    async with running() as broker:
        await create(broker, "q")
        await declare(broker, "q", max_length=3)
        async with PROTOCOLS[protocol](broker) as send:
            for body in numbered(8, 1):
                assert await send("q", body)
        async with asyncio.timeout(30):
            while len(left := await in_the_queue(broker)) > 3:
                await asyncio.sleep(0.01)
        assert len(left) == 3
        assert left[-1].endswith(b"0007x")


# Fail the producer, or dead-letter what is too much


async def test_a_full_queue_fails_its_publishers() -> None:
    async with running() as broker:
        await declare(broker, "q", max_length=3, overflow="reject-publish")
        async with by_amqp(broker) as send:
            assert [await send("q", body) for body in numbered(5, 1)] == [True] * 3 + [False] * 2
        assert await in_the_queue(broker) == numbered(5, 1)[:3]


async def test_a_full_queue_dead_letters_what_is_too_much() -> None:
    async with running() as broker:
        await declare(broker, "graves")
        await declare(
            broker,
            "q",
            max_length=3,
            overflow="reject-publish-dlx",
            dead_letter_exchange="",
            dead_letter_routing_key="graves",
        )
        async with by_amqp(broker) as send:
            assert [await send("q", body) for body in numbered(5, 1)] == [True] * 3 + [False] * 2
        async with asyncio.timeout(30):
            while len(dead := await in_the_queue(broker, "graves")) < 2:
                await asyncio.sleep(0.01)
        assert dead == numbered(5, 1)[3:]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx", "block"])
async def test_a_full_queue_neither_refuses_nor_blocks_producers_of_its_topic(overflow: str) -> None:
    """The topic has room: only publishers by AMQP know that there is a queue."""
    async with running() as broker:
        await create(broker, "q")
        await declare(broker, "q", max_length=3, overflow=overflow)
        async with by_kafka(broker) as send:
            for body in numbered(8, 1):
                assert await send("q", body)
        async with asyncio.timeout(30):
            while await in_the_queue(broker) != numbered(8, 1):
                await asyncio.sleep(0.01)


class FullDisk:
    """Appends fail while it is full."""

    def __init__(self, broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = broker.app.broker._storage
        self.is_full = False
        self.refused = asyncio.Event()
        commit = storage.commit

        def gated(operations: Sequence[Operation]) -> Any:
            if self.is_full and any(isinstance(each, Append) for each in operations):
                self.refused.set()
                failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                failed.set_exception(StorageFull("no space"))
                return failed
            return commit(operations)

        monkeypatch.setattr(storage, "commit", gated)


@pytest.mark.parametrize("protocol", ["rocketmq", "rocketmq-grpc", "http", "amqp"])
async def test_a_full_disk_fails_the_producer(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as broker:
        await create(broker, "t")
        await declare(broker, "t")
        async with PROTOCOLS[protocol](broker) as send:
            assert await send("t", b"before")
            disk = FullDisk(broker, monkeypatch)
            disk.is_full = True
            assert not await send("t", b"refused")
            disk.is_full = False
            async with asyncio.timeout(60):
                assert await send("t", b"after")
        assert await bodies(broker, "t") == [b"before", b"after"]


# Block the producer


async def test_a_full_disk_blocks_producers_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one that clients repeat by themselves, until their delivery timeout."""
    async with running() as broker:
        await create(broker, "t")
        async with by_kafka(broker) as send:
            disk = FullDisk(broker, monkeypatch)
            disk.is_full = True
            sending = asyncio.ensure_future(send("t", b"later"))
            for _ in range(3):
                disk.refused.clear()
                async with asyncio.timeout(60):
                    await disk.refused.wait()
            assert not sending.done()
            disk.is_full = False
            async with asyncio.timeout(60):
                assert await sending
        assert await bodies(broker, "t") == [b"later"]


async def test_a_full_queue_blocks_its_publishers_until_consumers_make_room() -> None:
    async with running() as broker:
        await declare(broker, "q", max_length=3, overflow="block")
        async with by_amqp(broker) as send:
            for body in numbered(3, 1):
                assert await send("q", body)
            waiting = asyncio.ensure_future(send("q", b"waits"))
            queue = broker.app.broker.namespaces.get("/").queues["q"]
            async with asyncio.timeout(30):
                while not queue.room._waiting:  # type: ignore[attr-defined]
                    await asyncio.sleep(0.01)
            assert not waiting.done()
            async with await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/") as connection:
                taken = await (await (await connection.channel()).get_queue("q")).get()
                await taken.ack()
                async with asyncio.timeout(60):
                    assert await waiting
        assert await in_the_queue(broker) == [*numbered(3, 1)[1:], b"waits"]
