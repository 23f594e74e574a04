"""Transactions that another broker than the coordinator commits, to topics that feed queues.

Two brokers on one PostgreSQL.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker import namespace_scopes
from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.left_referrals import Referral, stored_referral
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.referrals import Referrals
from posthouse.broker.queues.sources import Sources
from posthouse.broker.topics import NewTopic
from posthouse.broker.transactions.requests import TransactionalRequest, TransactionalWriter
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.model.clock import SystemClock
from posthouse.model.errors import NotCoordinator, OffsetOutOfRange
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import scope_of_namespace, scope_of_transactional_id
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.request_origins import ConnectionIdentity, CorrelatedOrigin
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Settings
from posthouse.storage.operations import Put
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import definition_follower
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.spaces import Space
from tests.broker.queues.rig import values_of
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.shared.opened import TestLease, make_member, make_shared, release_scope

ID = "tx"
SCOPE = scope_of_transactional_id(ID)
QUEUES = scope_of_namespace("/")
SESSION = object()


class Brokers:
    """Both are started. `referrals` are looked for by hand: nothing tells the coordinator of them."""

    def __init__(self, database: Database, coordinator: Broker, member: Broker) -> None:
        self._database = database
        self.coordinator = coordinator
        self.member = member
        self.holder = coordinator
        """Of the transactional id."""

    async def move(self, to: Broker) -> None:
        """The scope of the transactional id, as keepers do it."""
        here, there = self.holder._storage, to._storage
        assert isinstance(here, SharedStorage) and isinstance(there, SharedStorage)
        await self.holder.release_scope(SCOPE)
        await release_scope(self._database, SCOPE, here)
        lease = there._lease
        assert isinstance(lease, TestLease)
        async with await self._database.connect("tests") as connection:
            await connection.execute(
                "SELECT take_scopes(%s, %s, %s)", [lease.incarnation, lease.epoch, [SCOPE.name]]
            )
        lease.scopes.add(SCOPE)
        await to.take_scope(SCOPE)
        self.holder = to

    async def referrals(self) -> list[Referral]:
        shared = self.coordinator._storage.shared_state
        assert shared is not None
        found = map(stored_referral, await shared.of_space(Space.REFERRALS))
        return sorted(found, key=lambda each: each.first)

    async def refer(self) -> None:
        await self.coordinator.namespaces.referrals.refer()

    async def until_referred(self) -> None:
        """The coordinator begins with what is left, and does not wait for it."""
        queue = self.coordinator.namespaces.get("/").queues["orders"]
        async with asyncio.timeout(30):
            while await self.referrals() or not queue.message_count:
                await asyncio.sleep(0.01)
        assert queue.message_count == 1

    async def declare(self, name: str = "orders") -> LogQueue:
        """A queue that the records of the topic go to."""
        return await self.coordinator.namespaces.get("/").declare_queue(QueueDefinition(name=name), SESSION)


class Processor:
    """A transactional producer of one partition, at the broker that coordinates its id."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._sequence = 0
        self._serial = 0
        self._connection = ConnectionIdentity()

    @property
    def broker(self) -> Broker:
        return self._brokers.holder

    async def begin(self) -> None:
        self.producer = await self.broker.transactions.init_producer(ID, 60_000)
        self._sequence = 0

    async def write(self, topic: Topic, *values: bytes, by: Broker | None = None) -> None:
        await self.broker.transactions.add_partitions(self._request, [topic.partition(0)])
        builder = BatchBuilder(
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        for value in values:
            builder.add(None, value, timestamp=1_700_000_000_000)
        self._sequence += len(values)
        writer = TransactionalWriter(id=ID, origin=self._origin)
        produced = Produced(topic, 0, memoryview(builder.build()))
        [appended] = await (by or self.broker).append([produced], writer).wait()
        assert isinstance(appended, Appended), appended

    async def end(self, *, commit: bool = True) -> ProducerIdentity:
        return await self.broker.transactions.end(self._request, commit=commit)

    @property
    def _request(self) -> TransactionalRequest:
        return TransactionalRequest(id=ID, producer=self.producer, origin=self._origin)

    @property
    def _origin(self) -> CorrelatedOrigin:
        self._serial += 1
        return CorrelatedOrigin(self._connection, self._serial)


@pytest.fixture
async def brokers(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Brokers]:
    """The member coordinates the transactional id."""
    monkeypatch.setattr(namespace_scopes, "_HANDED_OVER_SECONDS", 3600.0)
    monkeypatch.setattr(namespace_scopes, "_RECLAIM_SECONDS", 3600.0)  # it refers, too
    monkeypatch.setattr(definition_follower, "_PAUSE_SECONDS", 3600.0)
    clock = SystemClock()
    settings = Settings(memory=True, retention_check_seconds=3600)
    with new_database(postgres, MIGRATED) as url:
        database, objects = Database(url), MemoryObjectStore(clock)
        coordinator = Broker(await make_shared(database, objects, clock), settings, clock)
        await coordinator.start()
        await coordinator.coordinate()
        await coordinator.take_scope(SCOPE)
        await coordinator.take_scope(QUEUES)
        member = Broker(await make_member(database, objects, clock), settings, clock)
        await member.start()
        running = Brokers(database, coordinator, member)
        await running.move(member)
        yield running
        await member.stop()
        await coordinator.stop()


@pytest.fixture
async def topic(brokers: Brokers) -> Topic:
    [made] = await brokers.coordinator.create_topics([NewTopic(name="orders", partitions=1)])
    assert isinstance(made, Topic)
    await brokers.member.find_topic("orders")
    return made


@pytest.fixture
async def processor(brokers: Brokers) -> Processor:
    made = Processor(brokers)
    await made.begin()
    return made


async def test_the_coordinator_refers_to_records_that_another_broker_has_committed(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    queue = await brokers.declare()
    await processor.write(topic, b"a", b"b")
    await processor.end()
    [left] = await brokers.referrals()
    assert left.first == 0 and left.producer_id == processor.producer.producer_id
    assert queue.message_count == 0
    await brokers.refer()
    assert queue.message_count == 2 and not await brokers.referrals()
    await brokers.refer()
    assert queue.message_count == 2, "once"


async def test_only_records_of_the_transaction_are_referred_to(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    queue = await brokers.declare()
    await processor.write(topic, b"aborted")
    await processor.end(commit=False)
    assert not await brokers.referrals()
    await processor.begin()
    for values in ((b"first",), (b"second", b"third")):
        await processor.write(topic, *values)
        await processor.end()
    assert [each.first for each in await brokers.referrals()] == [2, 4]
    await brokers.refer()
    assert queue.message_count == 3


async def test_a_topic_that_becomes_a_source_meanwhile(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    """The member does not know it when it commits; storage does."""
    await processor.write(topic, b"a")
    queue = await brokers.declare()
    assert brokers.member.topic("orders").scope is None
    await processor.end()
    assert len(await brokers.referrals()) == 1
    await brokers.refer()
    assert queue.message_count == 1


async def test_other_brokers_append_to_the_transaction(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    queue = await brokers.declare()
    await processor.write(topic, b"by the coordinator", by=brokers.coordinator)
    await processor.end()
    await brokers.refer()
    assert queue.message_count == 1


async def test_the_next_holder_refers_to_what_is_left(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    await brokers.declare()
    await processor.write(topic, b"a")
    await brokers.coordinator.release_scope(QUEUES)
    await processor.end()
    assert len(await brokers.referrals()) == 1
    await brokers.coordinator.take_scope(QUEUES)
    await brokers.until_referred()


async def test_the_namespace_is_given_up_while_a_transaction_is_committed(
    brokers: Brokers, topic: Topic, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the records for its queues, and has none any more when it commits."""
    await brokers.declare()
    await processor.write(topic, b"a")
    coordinator = brokers.coordinator
    await brokers.move(coordinator)
    add = Sources.add_records

    async def interrupted(sources: Sources, referral: Referral, referrals: Referrals) -> None:
        await add(sources, referral, referrals)
        monkeypatch.setattr(Sources, "add_records", add)
        await coordinator.release_scope(QUEUES)

    monkeypatch.setattr(Sources, "add_records", interrupted)
    await processor.end()
    assert len(await brokers.referrals()) == 1
    await coordinator.take_scope(QUEUES)
    await brokers.until_referred()


async def test_the_coordinator_refers_itself_to_what_it_commits(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    queue = await brokers.declare()
    await processor.write(topic, b"a")
    await brokers.move(brokers.coordinator)
    await processor.end()
    assert queue.message_count == 1 and not await brokers.referrals()


async def test_transactions_of_one_producer_reach_the_queue_in_their_order(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    """The first was left to the broker of the queue, which ends the second one itself."""
    queue = await brokers.declare()
    assert isinstance(queue, Queue)
    await processor.write(topic, b"first")
    await processor.end()
    await brokers.move(brokers.coordinator)
    await processor.begin()
    await processor.write(topic, b"second")
    await processor.end()
    assert len(await brokers.referrals()) == 2
    await brokers.refer()
    assert await values_of(queue) == [b"first", b"second"]
    await processor.write(topic, b"third")
    await processor.end()
    assert not await brokers.referrals(), "nothing is left that it could overtake"
    assert await values_of(queue) == [b"third"]


async def test_a_topic_that_is_deleted_leaves_nothing(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    await brokers.declare()
    await processor.write(topic, b"a")
    await processor.end()
    await brokers.coordinator.delete_topics([topic])
    await brokers.refer()
    assert not await brokers.referrals()


async def test_records_are_kept_until_they_are_referred_to(brokers: Brokers, processor: Processor) -> None:
    """Nothing but queues needs the records of such a topic. They are below the last stable offset, and no
    reference leads to them yet."""
    queue = await brokers.declare("jobs")
    consumed = NewTopic(name="jobs", partitions=1, overrides={"retention.consumed": "true"})
    [topic] = await brokers.coordinator.create_topics([consumed])
    assert isinstance(topic, Topic) and topic.config.retention_consumed
    await brokers.member.find_topic("jobs")
    await processor.write(topic, b"a")
    await processor.end()
    await brokers.coordinator.refresh(topic.partition_ids())
    assert brokers.coordinator.bounds(topic, 0).stable == 2
    await brokers.coordinator.namespaces.retention.reclaim()
    assert queue.message_count == 1
    assert brokers.coordinator.bounds(topic, 0).start == 0


async def test_records_that_were_deleted_meanwhile(
    brokers: Brokers, topic: Topic, processor: Processor
) -> None:
    queue = await brokers.declare()
    await processor.write(topic, b"a")
    await processor.write(topic, b"b")
    await processor.end()
    await brokers.coordinator.delete_records(topic, 0, 1)
    with pytest.raises(OffsetOutOfRange):
        await brokers.coordinator.read(topic, 0, 0, 1000)
    await brokers.refer()
    assert queue.message_count == 1


async def test_an_id_is_refused_by_brokers_that_do_not_coordinate_it(brokers: Brokers) -> None:
    with pytest.raises(NotCoordinator):
        await brokers.coordinator.transactions.init_producer(ID, 1000)
    with pytest.raises(NotCoordinator):
        await brokers.coordinator.transactions.commit_sets.commit(ID, 1, [])


def test_a_referral_is_stored_and_found_again() -> None:
    referral = Referral(partition=PartitionId(TopicId(bytes(range(16))), 7), producer_id=2**40, first=2**33)
    assert stored_referral(referral.put().key) == referral
    assert referral.removal() == Put(Space.REFERRALS, referral.put().key, None)
