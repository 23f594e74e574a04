"""Topics that feed exchanges and queues: on a shared storage only one broker writes to them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.routing.definitions import ExchangeDefinition, ExchangeKind
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock, SystemClock
from posthouse.model.errors import NotLeader, StorageFull
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Put
from tests.broker.members import CoordinatorStorage, pair, started
from tests.broker.queues.rig import SESSION, Rig, running, settle_turns

EXCHANGE = ExchangeDefinition(name="orders", kind=ExchangeKind.FANOUT)


class Gated(CoordinatorStorage):
    """Definitions wait at their gate: a change that has begun and is not durable yet."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.updates = 0
        self.began = asyncio.Event()
        self.open_gate()

    def shut_gate(self) -> None:
        self.began.clear()
        self._gate = asyncio.Event()

    def open_gate(self) -> None:
        self._gate = asyncio.Event()
        self._gate.set()

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        self.began.set()
        gate = self._gate
        await gate.wait()
        await super().create_topics(topics, state)

    async def give_topics(self, topics: Sequence[Topic], scope: Scope) -> None:
        self.updates += 1
        self.began.set()
        gate = self._gate
        await gate.wait()
        await super().give_topics(topics, scope)


def batch(topic: Topic) -> Produced:
    builder = BatchBuilder()
    builder.add(None, b"value", timestamp=1_700_000_000_000)
    return Produced(topic, 0, memoryview(builder.build()))


async def declare(rig: Rig, what: str) -> None:
    if what == "queue":
        await rig.queue("orders")
    elif what == "transient queue":
        await rig.queue("orders", durable=False, exclusive=True)
    else:
        await rig.namespace.declare_exchange(EXCHANGE)


async def create(broker: Broker, **options: Any) -> Topic:
    [made] = await broker.create_topics([NewTopic(name="orders", partitions=1, **options)])
    assert isinstance(made, Topic)
    return made


SCOPE = scope_of_namespace("/")
KINDS = pytest.mark.parametrize("what", ["queue", "transient queue", "exchange"])


@KINDS
async def test_a_topic_is_coordinated_before_a_declaration_takes_effect(what: str) -> None:
    storage = Gated()
    async with running(storage=storage) as rig:
        assert (await create(rig.broker)).scope is None
        storage.shut_gate()
        declaring = asyncio.create_task(declare(rig, what))
        await storage.began.wait()
        await settle_turns()
        assert "orders" not in rig.broker.namespaces.sources.by_topic
        storage._gate.set()
        await declaring
        assert "orders" in rig.broker.namespaces.sources.by_topic
        assert rig.broker.topic("orders").scope == SCOPE
        assert storage.topics[rig.broker.topic("orders").id].scope == SCOPE


@KINDS
async def test_a_topic_that_is_being_created_when_its_queue_is_declared(what: str) -> None:
    storage = Gated()
    async with running(storage=storage) as rig:
        storage.shut_gate()
        creating = asyncio.create_task(create(rig.broker))
        await storage.began.wait()
        declaring = asyncio.create_task(declare(rig, what))
        await settle_turns()
        storage._gate.set()
        storage.open_gate()
        await asyncio.gather(creating, declaring)
        assert rig.broker.topic("orders").scope == SCOPE


async def test_a_queue_that_is_being_declared_when_its_topic_is_created() -> None:
    storage = Gated()
    async with running(storage=storage) as rig:
        storage.shut_gate()
        declaring = asyncio.create_task(declare(rig, "queue"))
        await storage.began.wait()  # its own log is being created
        gate = storage._gate
        storage.open_gate()
        topic = await create(rig.broker)
        assert not declaring.done() and topic.scope == SCOPE
        gate.set()
        await declaring
        assert storage.updates == 0, "once is enough"


async def test_a_declaration_without_a_topic_of_its_name_updates_none() -> None:
    storage = Gated()
    async with running(storage=storage) as rig:
        for number in range(10):
            await rig.queue(f"q{number}", durable=False, exclusive=True)
        assert storage.updates == 0
        await rig.publish(b"message", key=b"q3")
        assert rig.broker.topic("q3").scope == SCOPE, "it is created as what it is"


async def test_a_declaration_fails_if_its_topic_cannot_be_made_coordinated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def full(self: Gated, topics: Sequence[Topic], scope: Scope) -> None:
        raise StorageFull("no space left")

    async with running(storage=Gated()) as rig:
        await create(rig.broker)
        monkeypatch.setattr(Gated, "give_topics", full)
        with pytest.raises(StorageFull):
            await rig.queue("orders")
        assert "orders" not in rig.namespace.queues
        assert not rig.broker.namespaces.sources.has("orders")


async def test_a_topic_stays_coordinated_and_keeps_that_through_other_changes() -> None:
    async with running(storage=Gated()) as rig:
        await create(rig.broker)
        await rig.queue("orders")
        await rig.namespace.delete_queue("orders", SESSION)
        await rig.broker.create_partitions("orders", 3)
        await rig.broker.configure_topic("orders", lambda topic: {"retention.ms": "5"})
        assert rig.broker.topic("orders").scope == SCOPE


async def test_internal_topics_are_coordinated() -> None:
    async with running(storage=Gated()) as rig:
        queue = await rig.queue("orders")
        assert queue.log.scope == SCOPE


async def test_a_broker_that_is_alone_neither_marks_nor_stores_anything() -> None:
    clock = ManualClock()
    broker = Broker(MemoryStorage(clock), Settings(memory=True), clock)
    await broker.start()
    await broker.coordinate()
    before = await create(broker)
    await broker.namespaces.get("/").declare_queue(QueueDefinition(name="orders"), SESSION)
    assert broker.topic("orders") is before
    [later] = await broker.create_topics([NewTopic(name="amq.later", partitions=1)])
    assert isinstance(later, Topic) and later.scope is None
    await broker.stop()


async def test_a_member_does_not_write_to_a_topic_that_feeds_a_queue() -> None:
    async with pair() as brokers:
        topic = await create(brokers.coordinator)
        async with started(brokers.member) as member:
            [appended] = await member.append([batch(topic)]).wait()
            assert isinstance(appended, Appended)
            namespace = brokers.coordinator.namespaces.get("/")
            queue = await namespace.declare_queue(QueueDefinition(name="orders"), SESSION)
            [refused] = await member.append([batch(topic)]).wait()
            assert isinstance(refused, NotLeader)
            assert queue.message_count == 0
            await brokers.coordinator.append([batch(topic)]).wait()
            assert queue.message_count == 1
