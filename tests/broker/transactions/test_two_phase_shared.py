"""Two-phase commits on one PostgreSQL: their scope moves between two brokers, and both write to the log."""

from collections.abc import AsyncIterator

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.broker.transactions.producer_starts import NewProducer
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.broker.transactions.transaction import ProducerIdentity, TransactionState
from posthouse.model.clock import SystemClock
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.request_origins import ConnectionIdentity, CorrelatedOrigin
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Settings
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.broker.queues.test_left_referrals import ID, SCOPE, Brokers, Processor
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.shared.opened import make_member, make_shared


@pytest.fixture
async def brokers(postgres: PostgresServer) -> AsyncIterator[Brokers]:
    clock = SystemClock()
    settings = Settings(memory=True, retention_check_seconds=3600, transaction_two_phase_commit_enable=True)
    with new_database(postgres, MIGRATED) as url:
        database, objects = Database(url), MemoryObjectStore(clock)
        coordinator = Broker(await make_shared(database, objects, clock), settings, clock)
        await coordinator.start()
        await coordinator.coordinate()
        await coordinator.take_scope(SCOPE)
        member = Broker(await make_member(database, objects, clock), settings, clock)
        await member.start()
        yield Brokers(database, coordinator, member)
        await member.stop()
        await coordinator.stop()


@pytest.fixture
async def topic(brokers: Brokers) -> Topic:
    [made] = await brokers.coordinator.create_topics([NewTopic(name="orders", partitions=1)])
    assert isinstance(made, Topic)
    await brokers.member.find_topic("orders")
    return made


async def resume(brokers: Brokers) -> tuple[ProducerIdentity, ProducerIdentity | None]:
    new = NewProducer(id=ID, timeout_ms=60_000, owner="ann", is_two_phase=True)
    resumed = await brokers.holder.transactions.resume_producer(new)
    return resumed.producer, resumed.prepared


async def late(broker: Broker, topic: Topic, producer: ProducerIdentity) -> object:
    builder = BatchBuilder(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1, transactional=True
    )
    builder.add(None, b"late", timestamp=1_700_000_000_000)
    writer = TransactionalWriter(id=ID, origin=CorrelatedOrigin(ConnectionIdentity(), 1))
    produced = Produced(topic, 0, memoryview(builder.build()))
    try:
        [result] = await broker.append([produced], writer).wait()
    except PosthouseError as error:
        return error
    return result


@pytest.mark.parametrize("commit", [True, False])
async def test_it_stays_prepared_while_its_scope_moves(brokers: Brokers, topic: Topic, commit: bool) -> None:
    owner = Processor(brokers)
    await owner.begin()
    written = owner.producer
    await owner.write(topic, b"x")
    assert await resume(brokers) == (written.next_epoch, written)
    for to in (brokers.member, brokers.coordinator, brokers.member):
        await brokers.move(to)
        found = to.transactions.get(ID)
        assert (found.state, found.writer, found.owner) == (TransactionState.PREPARED, written, "ann")
        await to.transactions.abort_expired()
        for broker in (brokers.coordinator, brokers.member):
            refused = await late(broker, topic, written)
            assert isinstance(refused, PosthouseError), refused
    owner.producer, prepared = await resume(brokers)
    assert prepared == written
    await brokers.coordinator.refresh(topic.partition_ids())
    assert brokers.coordinator.bounds(topic, 0).stable == 0
    await owner.end(commit=commit)
    await brokers.coordinator.refresh(topic.partition_ids())
    bounds = brokers.coordinator.bounds(topic, 0)
    assert (bounds.stable, bounds.end) == (2, 2)
    fetched = await brokers.coordinator.read(topic, 0, 0, 2**20, stable_only=True)
    assert len(fetched.aborted) == (0 if commit else 1)
