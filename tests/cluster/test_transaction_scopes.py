"""Transactional ids on several brokers, with real clients, while their scopes move and brokers die."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pika
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.model.scopes import COORDINATOR, scope_of_namespace, scope_of_transactional_id
from posthouse.node import Node
from tests.cluster.nodes import CALM, nodes
from tests.cluster.scope_moves import holds, hurry, know_holders, move_scope

pytestmark = pytest.mark.timeout(240)

_SECONDS = 60
_PARTITIONS = 2
_QUEUE = "feed"


@pytest.fixture
async def made(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Node]]:
    """The first coordinates. None loses its lease, as clients of AMQP would have to connect again then."""
    hurry(monkeypatch)
    async with nodes(url, "a", "b", "c", times=CALM) as running:
        await know_holders(running)
        yield running


def _quiet(made: list[Node], **settings: Any) -> dict[str, Any]:
    servers = ",".join(str(each.listeners["kafka"]) for each in made)
    return {"bootstrap.servers": servers, "log_level": 0, **settings}


def _create(made: list[Node], *topics: str) -> None:
    admin = AdminClient(_quiet(made))
    for each in admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in topics]).values():
        each.result(_SECONDS)


def _connected(node: Node) -> pika.BlockingConnection:
    address = node.listeners["amqp"]
    return pika.BlockingConnection(pika.ConnectionParameters(host=address.host, port=address.port))


def _declare(node: Node) -> None:
    with _connected(node) as connection:
        connection.channel().queue_declare(_QUEUE, durable=True)


def _drained(node: Node, count: int) -> list[bytes]:
    """Messages of the queue, at least as many, and all that come within a second after that."""
    found: list[bytes] = []
    with _connected(node) as connection:
        channel = connection.channel()
        for method, _, body in channel.consume(_QUEUE, auto_ack=True, inactivity_timeout=1.0):
            if method is not None:
                found.append(body)
            elif len(found) >= count:
                return found
    raise AssertionError("the queue ends")


def _read(made: list[Node], topic: str, count: int) -> list[bytes]:
    reader = Consumer(_quiet(made, **{"group.id": "r", "isolation.level": "read_committed"}))
    reader.assign([TopicPartition(topic, index, 0) for index in range(_PARTITIONS)])
    found: list[bytes] = []
    while True:
        message = reader.poll(1.0)
        if message is None:
            if len(found) >= count:
                reader.close()
                return found
        elif message.error() is None:
            found.append(message.value() or b"")


class _Writer:
    """Writes to a topic and to a queue in transactions, some of which it aborts."""

    def __init__(self, made: list[Node], id: str) -> None:
        self.id = id
        self.committed: list[bytes] = []
        self.aborted = 0
        self._made = made
        self._is_over = threading.Event()
        self.task = asyncio.create_task(asyncio.to_thread(self._run))

    def end(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        producer = Producer(_quiet(self._made, **{"transactional.id": self.id}))
        producer.init_transactions(_SECONDS)
        number = 0
        while not self._is_over.is_set():
            values = [f"{self.id}-{number + each}".encode() for each in range(3)]
            number += len(values)
            self._transact(producer, values, is_kept=number % 5 != 0)

    def _transact(self, producer: Producer, values: list[bytes], *, is_kept: bool) -> None:
        producer.begin_transaction()
        for each in values:
            producer.produce("t", each, partition=each[-1] % _PARTITIONS)
            producer.produce(_QUEUE, each)
        if not is_kept:
            producer.abort_transaction(_SECONDS)
            self.aborted += 1
            return
        while True:
            try:
                producer.commit_transaction(_SECONDS)
                break
            except KafkaException as error:
                problem = error.args[0]
                assert not problem.fatal(), problem
                if problem.txn_requires_abort():
                    producer.abort_transaction(_SECONDS)
                    return
                assert problem.retriable(), problem
        self.committed += values


async def test_transactions_go_on_while_their_ids_move(url: str, made: list[Node]) -> None:
    """Every committed record is there once, in the topic and in the queue, and none of an aborted one. Most
    of the time the broker that ends one does not serve the queue, and the scope coordinator moves, too."""
    await move_scope(url, scope_of_namespace("/"), made[2])  # where it stays, while brokers share the scopes
    await asyncio.to_thread(_declare, made[2])
    await asyncio.to_thread(_create, made, "t", _QUEUE)
    writers = [_Writer(made, f"writer-{number}") for number in range(3)]
    try:
        for turn in range(3):
            for number, each in enumerate(writers):
                to = made[(turn + number) % len(made)]
                await move_scope(url, scope_of_transactional_id(each.id), to)
            await move_scope(url, COORDINATOR, made[(turn + 1) % len(made)])
            await asyncio.sleep(0.5)
    finally:
        for each in writers:
            each.end()
        await asyncio.gather(*(each.task for each in writers))
    committed = Counter(value for each in writers for value in each.committed)
    assert all(each.committed and each.aborted for each in writers)
    assert Counter(await asyncio.to_thread(_read, made, "t", len(committed))) == committed
    assert Counter(await asyncio.to_thread(_drained, made[1], len(committed))) == committed


async def test_the_broker_that_coordinates_an_id_stops(url: str, made: list[Node]) -> None:
    """Its open transaction is committed by the next one."""
    await asyncio.to_thread(_create, made, "t")
    scope = scope_of_transactional_id("w")
    await move_scope(url, scope, made[1])
    alive = [made[0], made[2]]
    producer = Producer(_quiet(alive, **{"transactional.id": "w"}))

    def begin() -> None:
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
        producer.produce("t", b"1", partition=0)
        assert producer.flush(_SECONDS) == 0

    await asyncio.to_thread(begin)
    await made[1].stop()
    await asyncio.to_thread(producer.commit_transaction, _SECONDS)
    assert any(holds(each, scope) for each in alive)
    assert await asyncio.to_thread(_read, alive, "t", 1) == [b"1"]
