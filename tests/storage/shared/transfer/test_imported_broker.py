"""A broker on the shared storage goes on with what clients have left in a local one, and back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from posthouse.app import App
from posthouse.client import Client
from posthouse.model.clock import SystemClock
from posthouse.model.errors import NotLeader, Unavailable
from posthouse.model.scopes import GROUPS, NAMESPACES, scope_of_namespace
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.stores import SharedStores
from posthouse.testing import AsyncBroker
from tests.served import on_any_port
from tests.storage.batches import append
from tests.storage.shared.opened import release, take_lease
from tests.storage.shared.transfer.storages import do_export, do_import


@contextmanager
def channel(address: str) -> Iterator[BlockingChannel]:
    host, port = address.split(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    try:
        made = connection.channel()
        made.confirm_delivery()
        yield made
    finally:
        connection.close()


def prepare(kafka: str, amqp: str) -> None:
    """Ten records, seven of them consumed by a group; five messages, two of them settled; a user."""
    with Client(kafka, timeout=30) as client:
        client.create_topic("orders", partitions=2)
        with client.producer("orders") as producer:
            for number in range(10):
                producer.send(b"%d" % number, partition=0)
        client.commit_offsets("readers", {("orders", 0): 7})
        client.create_user("alice", "secret of alice")
    with channel(amqp) as made:
        made.exchange_declare("events", "topic", durable=True)
        made.queue_declare("work", durable=True, arguments={"x-queue-type": "quorum"})
        made.queue_bind("work", "events", "a.#")
        for number in range(5):
            properties = pika.BasicProperties(delivery_mode=2, headers={"number": number})
            made.basic_publish("events", "a.b", b"job %d" % number, properties)
        for _ in range(2):
            method, _, _ = made.basic_get("work")
            made.basic_ack(method.delivery_tag)


def seen(kafka: str, amqp: str) -> dict[str, Any]:
    """And nothing of it changed: messages are put back."""
    with Client(kafka, timeout=30) as client:
        [offset] = client.group_offsets(client.group("readers"))
        found: dict[str, Any] = {
            "topics": sorted((each.name, each.partitions) for each in client.topics()),
            "offset": offset.committed,
            "users": [each.name for each in client.users()],
        }
    with channel(amqp) as made:
        made.exchange_declare("events", "topic", passive=True)
        jobs = []
        while (got := made.basic_get("work"))[0] is not None:
            jobs.append((got[2], got[1].headers["number"]))
        found["jobs"] = jobs
    return found


@asynccontextmanager
async def serving(stores: SharedStores) -> AsyncIterator[App]:
    lease = await take_lease(Database(stores.database._conninfo))
    app = App(on_any_port(), storage=stores.storage(lease, defaults=TopicConfig()))
    await app.start()
    for scope in (*GROUPS, *NAMESPACES):
        await app.broker.take_scope(scope)
    try:
        yield app
    finally:
        await app.stop()
        await release(stores.database, lease)


async def test_clients_go_on(tmp_path: Path, stores: SharedStores, real_clock: SystemClock) -> None:
    async with AsyncBroker(data=tmp_path / "data") as broker:
        await asyncio.to_thread(prepare, broker.kafka, broker.amqp)
        before = await asyncio.to_thread(seen, broker.kafka, broker.amqp)
        cluster_id = broker.app.broker.cluster_id
    assert before["offset"] == 7
    assert before["jobs"] == [(b"job 2", 2), (b"job 3", 3), (b"job 4", 4)]

    await do_import(tmp_path / "data", stores, real_clock)
    async with serving(stores) as app:
        kafka, amqp = str(app.listeners["kafka"]), str(app.listeners["amqp"])
        assert await asyncio.to_thread(seen, kafka, amqp) == before
        assert app.broker.cluster_id == cluster_id
        await asyncio.to_thread(publish_one, amqp)
        later = await asyncio.to_thread(seen, kafka, amqp)
    assert later["jobs"] == [*before["jobs"], (b"job 5", 5)]

    await do_export(tmp_path / "back", stores, real_clock)
    async with AsyncBroker(data=tmp_path / "back") as broker:
        assert await asyncio.to_thread(seen, broker.kafka, broker.amqp) == later
        assert broker.app.broker.cluster_id == cluster_id


async def test_other_brokers_append_once_a_coordinator_has_assigned_the_topics_of_queues(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock
) -> None:
    """The data directory does not say which topics feed queues: a record would be there and in no queue."""
    async with AsyncBroker(data=tmp_path / "data") as broker:
        await asyncio.to_thread(prepare, broker.kafka, broker.amqp)
    await do_import(tmp_path / "data", stores, real_clock)
    lease = await take_lease(stores.database, scopes=())
    member = stores.storage(lease, defaults=TopicConfig())
    with pytest.raises(Unavailable, match="no coordinator has loaded it"):
        await member.open()
    async with serving(stores):
        member = stores.storage(lease, defaults=TopicConfig())
        await member.open()
        topics = {topic.name: topic for topic in member.topics.values()}
        scope = scope_of_namespace("/")
        assert (topics["events"].scope, topics["orders"].scope) == (scope, None)
        internal = [topic for topic in topics.values() if topic.is_internal]
        assert internal and {topic.scope for topic in internal} == {scope}
        with pytest.raises(OperationRefused) as refused:
            await member.commit([append(topics["events"].partition(0), b"x")])
        assert isinstance(refused.value.reason, NotLeader)
        await member.commit([append(topics["orders"].partition(0), b"x")])
        await member.close()


def publish_one(amqp: str) -> None:
    with channel(amqp) as made:
        properties = pika.BasicProperties(delivery_mode=2, headers={"number": 5})
        made.basic_publish("events", "a.c", b"job 5", properties)
