"""The coordinator and the queues move from broker to broker while they serve: clients of Kafka stay
connected, clients of queues connect again, and nothing is left behind."""

import asyncio
import gc
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import aio_pika
import psycopg
import pytest

from posthouse.app import App
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.queue import Queue
from posthouse.broker.transactions.transaction import Transaction
from posthouse.model.ids import TopicId
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.node import Node
from posthouse.protocols.kafka.codec.generated.create_topics import CreateTopicsResponse
from posthouse.protocols.kafka.codec.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from posthouse.protocols.kafka.codec.generated.fetch import FetchResponse
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.connection import KafkaConnection
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Address
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space
from tests.certificates import Authority
from tests.cluster.cuttable import CuttableDatabase
from tests.cluster.nodes import CALM, coordinates, node, nodes, until
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire, create_topic_request, fetch_request, produce_request

pytestmark = pytest.mark.timeout(180)

Sql = psycopg.Connection[tuple[object, ...]]
SECONDS = 60
QUEUES = scope_of_namespace("/")


def app_of(each: Node) -> App:
    app = each.parts.life.app
    assert app is not None
    return app


async def know_each_other(made: list[Node]) -> None:
    ready = [True] * len(made)
    await until(lambda: all([each.is_ready for each in one.view.brokers] == ready for one in made), SECONDS)


async def moved(sql: Sql, to: Node, made: list[Node]) -> None:
    """Wants the coordinator there, and waits until all know that it is."""
    name = to.parts.place.name
    sql.execute("SELECT want_scope('coordinator', %s)", [name])
    await until(coordinates(to), SECONDS)
    await until(
        lambda: all(one.view.holder is not None and one.view.holder.name == name for one in made), SECONDS
    )


async def queues_moved(sql: Sql, to: Node, made: list[Node]) -> None:
    """The same with the scope of the default namespace."""
    name = to.parts.place.name
    sql.execute("SELECT want_scope(%s, %s)", [QUEUES.name, name])
    await until(lambda: app_of(to).broker.holds(QUEUES), SECONDS)
    await until(lambda: [_holder_of_queues(one) for one in made] == [name] * len(made), SECONDS)


def _holder_of_queues(one: Node) -> str | None:
    holder = one.view.holder_of(QUEUES)
    return None if holder is None else holder.name


async def create(wire: Wire, name: str) -> TopicId:
    created = await wire.ask(create_topic_request(name, 1, {}), CreateTopicsResponse)
    assert created.topics[0].error_code == 0
    return TopicId(created.topics[0].topic_id)


def batch_of(value: bytes) -> bytearray:
    builder = BatchBuilder()
    builder.add(None, value, timestamp=1_700_000_000_000)
    return builder.build()


class Asking:
    """Asks the coordinator all the time, over one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.answers = 0
        self.is_over = False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        request = DescribeProducersRequest(topics=[TopicRequest(name="unknown", partition_indexes=[0])])
        while not self.is_over:
            pending = [self._wire.send(request) for _ in range(5)]  # some are on their way when it moves
            for each in pending:
                answer = cast("DescribeProducersResponse", await self._wire.receive(each))
                [partition] = answer.topics[0].partitions
                assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self.answers += 1

    async def more(self) -> None:
        before = self.answers
        await until(lambda: self.answers > before + 5 or self.task.done(), SECONDS)

    async def end(self) -> None:
        self.is_over = True
        await asyncio.wait_for(self.task, SECONDS)


def clients_of(each: Node, listener: str) -> set[KafkaConnection]:
    """Without those of other brokers."""
    found = [one for one in app_of(each).connections if isinstance(one, KafkaConnection)]
    return {
        one for one in found if one._listener is app_of(each).listener(listener) and one.session.way is None
    }


def tls_of(tmp_path: Path) -> tuple[dict[str, Any], ssl.SSLContext]:
    authority = Authority(tmp_path)
    identity = authority.issue()
    settings = {
        "kafka_tls": Address("127.0.0.1", 0),
        "tls_certificate": identity.certificate,
        "tls_key": identity.key,
    }
    return settings, ssl.create_default_context(cafile=str(authority.file))


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
async def test_connections_of_kafka_clients_survive_that_the_coordinator_moves(
    url: str, sql: Sql, tmp_path: Path, caplog: pytest.LogCaptureFixture, has_tls: bool
) -> None:
    caplog.set_level(logging.INFO)
    settings, context = tls_of(tmp_path)
    listener, tls = ("kafka_tls", context) if has_tls else ("kafka", None)
    async with nodes(url, "a", "b", "c", times=CALM, **settings) as made, AsyncExitStack() as stack:
        await know_each_other(made)

        async def connected(each: Node) -> Wire:
            return await stack.enter_async_context(Wire(str(each.listeners[listener]), tls))

        topic = await create(await connected(made[0]), "t")
        await until(lambda: all(app_of(each).broker.topics.find_by_id(topic) for each in made), SECONDS)
        transactions = [TransactionalWire(await connected(each), newer=True) for each in made]
        for one in transactions:
            assert await one.init() == 0
            await one.write(b"before")
        asking = [Asking(await connected(each)) for each in made]
        end = len(made)
        polls = []
        for each in made:
            wire = await connected(each)
            poll = wire.send(fetch_request((topic, 0, end), max_wait_ms=120_000, min_bytes=1))
            polls.append((wire, poll))
        await until(lambda: [len(clients_of(each, listener)) for each in made] == [4, 3, 3], SECONDS)
        clients = [clients_of(each, listener) for each in made]
        for target in (made[1], made[2], made[0]):
            await moved(sql, target, made)
            for asked in asking:
                await asked.more()
            for one in transactions:
                await one.write(b"then")
        for asked in asking:
            await asked.end()
        for number, one in enumerate(transactions):
            assert await one.end(commit=number != 1) == 0
        found = [
            cast("FetchResponse", await asyncio.wait_for(wire.receive(poll), SECONDS)) for wire, poll in polls
        ]
        assert all(each.responses[0].partitions[0].records for each in found)
        for each, before in zip(made, clients, strict=True):
            assert before == clients_of(each, listener)
        assert "gives up the coordinator" in caplog.text
        assert "closing the Kafka connection" not in caplog.text
        assert "closes all connections" not in caplog.text


def subscribers(app: App) -> list[int]:
    storage = app.broker._storage
    assert isinstance(storage, SharedStorage)
    return [
        len(storage._committer._subscribers),
        len(storage._committer._change_subscribers),
        len(storage._follower._subscribers),
        len(storage._follower._awaited),
        len(storage._definition_follower._subscribers),
    ]


def tasks() -> list[str]:
    names = (each.get_name() for each in asyncio.all_tasks())
    return sorted(each for each in names if not each.startswith("Task-"))


async def alive(made: list[Node], *kinds: type[object]) -> list[int]:
    """How many objects of these types there are. Looking for them takes longer than some renewals."""
    await asyncio.to_thread(gc.collect)
    counted = Counter(type(each) for each in gc.get_objects())
    await until(lambda: all(one.parts.life.lease and one.parts.life.lease.is_valid for one in made))
    return [counted[kind] for kind in kinds]


async def test_moves_there_and_back_leave_nothing_behind(url: str, sql: Sql) -> None:
    others = await alive([], Queue, Namespace, Transaction)  # of brokers of other tests in this process
    async with nodes(url, "a", "b", times=CALM) as made, AsyncExitStack() as stack:
        await know_each_other(made)
        first, second = made
        await queues_moved(sql, first, made)
        wires = [await stack.enter_async_context(Wire(str(each.listeners["kafka"]))) for each in made]
        wire = wires[1]
        connection = await aio_pika.connect_robust(
            f"amqp://guest:guest@{second.listeners['amqp']}/", reconnect_interval=0.1
        )
        await stack.enter_async_context(connection)
        reasons: list[str] = []
        connection.close_callbacks.add(lambda _, error: reasons.append(str(error)))
        channel = await connection.channel()
        exchange = await channel.declare_exchange("e", aio_pika.ExchangeType.FANOUT, durable=True)
        queue = await channel.declare_queue("q", durable=True)
        await queue.bind(exchange)
        transaction = TransactionalWire(wire, newer=True)
        topic = await create(wire, "t")
        assert await transaction.init() == 0
        await transaction.write(b"0")
        sent: list[bytes] = []

        async def publish() -> None:
            body = f"{len(sent)}".encode()
            while not await published(exchange, body):
                await asyncio.sleep(0.05)
            sent.append(body)

        await publish()
        source = await topic_id(second, "e")
        states = []
        for number in range(6):
            to, other = (second, first) if number % 2 == 0 else (first, second)
            await moved(sql, to, made)
            await queues_moved(sql, to, made)
            await publish()
            own = wires[made.index(to)]
            produced = await own.ask(produce_request(source, batch_of(b"by Kafka")), ProduceResponse)
            assert produced.responses[0].partition_responses[0].error_code == 0
            sent.append(b"by Kafka")
            await transaction.write(b"%d" % number)
            left = app_of(other).broker
            assert not list(left.namespaces) and not left.namespaces.sources.by_topic
            assert not left.namespaces.progress_writer._changed and not len(left.namespaces.background)
            await until(partial(is_in_queue, to, sent), SECONDS)
            if number % 2 == 1:  # both have been here before
                states.append(([subscribers(app_of(each)) for each in made], tasks()))
        assert states[1] == states[2] == states[0]
        async with asyncio.timeout(SECONDS):  # sessions that were ended may take a moment to be gone
            while await alive(made, Queue, Namespace, Transaction) != [1 + before for before in others]:
                await asyncio.sleep(0.1)
        assert await transaction.end() == 0
        found: list[bytes] = []
        while len(found) < len(sent):
            message = await queue.get(timeout=SECONDS)
            assert message is not None
            found.append(message.body)
            await message.ack()
        assert found == sent
        assert len(reasons) == 6 and all("CONNECTION_FORCED" in each for each in reasons), reasons
        fetched = await wire.ask(fetch_request((topic, 0, 0), isolation_level=1), FetchResponse)
        assert fetched.responses[0].partitions[0].high_watermark == 8


def is_in_queue(each: Node, sent: list[bytes]) -> bool:
    return app_of(each).broker.namespaces.get("/").queues["q"].message_count == len(sent)


async def published(exchange: aio_pika.abc.AbstractExchange, body: bytes) -> bool:
    try:
        await exchange.publish(aio_pika.Message(body), "")
    except (aio_pika.exceptions.AMQPError, aio_pika.exceptions.ChannelInvalidStateError, ConnectionError):
        return False  # it does not wait until the channel is open again
    return True


async def topic_id(each: Node, name: str) -> TopicId:
    broker = app_of(each).broker
    return (await broker.find_topic(name)).id


@asynccontextmanager
async def cuttable(url: str) -> AsyncIterator[tuple[CuttableDatabase, str]]:
    way = CuttableDatabase(url)
    yield way, await way.start()
    await way.stop()


async def test_a_load_that_fails_leaves_a_working_member(
    url: str, sql: Sql, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is away in the middle of it. The next attempt succeeds, and so do those of others."""
    caplog.set_level(logging.INFO)
    async with cuttable(url) as (way, own_url), nodes(url, "a") as (first,), AsyncExitStack() as stack:
        second = node(own_url, "b")
        await second.start()
        stack.push_async_callback(second.stop)
        await know_each_other([first, second])
        wire = await stack.enter_async_context(Wire(str(second.listeners["kafka"])))
        topic = await create(wire, "t")
        lease = second.parts.life.lease
        load, attempts = Namespaces.load, 0

        async def failing(namespaces: Namespaces, scope: Scope, shared: SharedState) -> None:
            nonlocal attempts
            if namespaces is app_of(second).broker.namespaces and scope == QUEUES:
                attempts += 1
                if attempts == 1:
                    way.cut()
                    asyncio.get_running_loop().call_later(0.3, way.mend)
                    assert namespaces.storage.shared_state is not None
                    await namespaces.storage.shared_state.of_owners(Space.QUEUES, [b"q"])
            await load(namespaces, scope, shared)

        await queues_moved(sql, first, [first])
        monkeypatch.setattr(Namespaces, "load", failing)
        sql.execute("SELECT want_scope(%s, 'b')", [QUEUES.name])
        await until(lambda: f"broker b cannot load {QUEUES}" in caplog.text, SECONDS)
        assert not app_of(second).broker.holds(QUEUES)
        assert not app_of(second).broker.namespaces.of_scope(QUEUES)
        await until(lambda: second.parts.life.lease is not None and not second.parts.life.lease.is_lost)
        produced = await wire.ask(produce_request(topic, batch_of(b"x")), ProduceResponse)
        assert produced.responses[0].partition_responses[0].error_code == 0
        await until(lambda: app_of(second).broker.holds(QUEUES), SECONDS)
        assert attempts >= 2
        await create(wire, "u")
        assert second.parts.life.lease is lease, "under the same lease"
        assert lease is not None and lease.holds(QUEUES)
        assert "closes all connections" not in caplog.text
