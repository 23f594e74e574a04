"""Two brokers on one shared storage: the coordinator, and a member that serves the same logs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.queue import Queue
from posthouse.broker.routing.definitions import ExchangeDefinition, ExchangeKind
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import SystemClock
from posthouse.model.errors import (
    LoginFailed,
    NotCoordinator,
    NotLeader,
    OutOfOrderSequence,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.scopes import HOUSEKEEPING, NAMESPACES, Scope, scope_of_group
from posthouse.model.topics import Topic
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.sasl import SaslLogin
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import iter_records
from posthouse.settings import Authentication, Settings
from posthouse.storage.shared.database import Database, DatabaseAway
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import definitions
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.protocols.kafka.scram_client import ScramClient
from tests.storage.shared.lost_answers import LostAnswers
from tests.storage.shared.opened import make_member, make_shared, move_scope, release_scope, take_scope

PEER = "127.0.0.1:1"
PASSWORD = "nobody-guesses-this"
SESSION = object()


class Brokers:
    """Both are started."""

    def __init__(self, coordinator: Broker, member: Broker, database: Database) -> None:
        self.coordinator = coordinator
        self.member = member
        self.database = database

    async def create(self, name: str) -> Topic:
        [topic] = await self.coordinator.create_topics([NewTopic(name=name, partitions=1)])
        assert isinstance(topic, Topic)
        return topic


@pytest.fixture
async def brokers(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Brokers]:
    clock = SystemClock()
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text(PASSWORD)
    settings = Settings(memory=True, authentication=Authentication.REQUIRED, admin_password_file=password)
    with new_database(postgres, MIGRATED) as url:
        database, objects = Database(url), MemoryObjectStore(clock)
        coordinator = Broker(await make_shared(database, objects, clock), settings, clock)
        await coordinator.start()
        await coordinator.coordinate()
        for scope in NAMESPACES:
            await coordinator.take_scope(scope)
        storage = await make_member(database, objects, clock)
        member = Broker(storage, settings, clock)
        await member.start()
        yield Brokers(coordinator, member, database)
        await member.stop()
        await coordinator.stop()


def batch(topic: Topic, value: bytes = b"value", *, producer_id: int = -1, sequence: int = -1) -> Produced:
    epoch = 0 if producer_id >= 0 else -1
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    builder.add(None, value, timestamp=1_700_000_000_000)
    return Produced(topic, 0, memoryview(builder.build()))


async def append(broker: Broker, produced: Produced) -> int:
    [result] = await broker.append([produced]).wait()
    if isinstance(result, Appended):
        return result.base_offset
    raise result


async def values(broker: Broker, topic: Topic, offset: int) -> list[bytes | None]:
    found = await broker.read(topic, 0, offset, 100_000)
    return [record.value for record in iter_records(found.data)] if found.data else []


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_both_write_to_one_log_and_read_it(brokers: Brokers) -> None:
    topic = await brokers.create("orders")
    assert await brokers.member.find_topic("orders") == topic
    for offset, broker in enumerate([brokers.member, brokers.coordinator, brokers.member]):
        assert await append(broker, batch(topic, b"%d" % offset)) == offset
    for broker in (brokers.coordinator, brokers.member):
        await broker.refresh(topic.partition_ids())
        assert broker.bounds(topic, 0).end == 3
        assert await values(broker, topic, 0) == [b"0"]
        assert await values(broker, topic, 2) == [b"2"]


async def test_a_producer_changes_its_broker(brokers: Brokers) -> None:
    topic = await brokers.create("orders")
    await brokers.member.find_topic("orders")
    producer = (await brokers.coordinator.transactions.init_producer(None, 0, owner="ann")).producer_id
    assert await append(brokers.coordinator, batch(topic, producer_id=producer, sequence=0)) == 0
    assert await append(brokers.member, batch(topic, producer_id=producer, sequence=1)) == 1
    assert await append(brokers.member, batch(topic, producer_id=producer, sequence=0)) == 0, "a repetition"
    with pytest.raises(OutOfOrderSequence):
        await append(brokers.coordinator, batch(topic, producer_id=producer, sequence=3))


@pytest.mark.parametrize("writes", ["coordinator", "member"])
async def test_a_reader_waits_for_records_that_the_other_broker_writes(brokers: Brokers, writes: str) -> None:
    topic = await brokers.create("orders")
    await brokers.member.find_topic("orders")
    pair = (brokers.coordinator, brokers.member)
    writer, reader = pair if writes == "coordinator" else pair[::-1]
    waiting = asyncio.create_task(reader.wait_for_records([(topic.partition(0), 0)], 1, 60.0))
    await asyncio.sleep(0)
    await append(writer, batch(topic))
    async with asyncio.timeout(30):
        await waiting
    assert await values(reader, topic, 0) == [b"value"]


async def test_a_topic_that_feeds_a_queue_belongs_to_the_broker_of_its_namespace(brokers: Brokers) -> None:
    topic = await brokers.create("orders")
    await append(brokers.member, batch(await brokers.member.find_topic("orders")))
    namespace = brokers.coordinator.namespaces.get("/")
    queue = await namespace.declare_queue(QueueDefinition(name="orders"), SESSION)
    with pytest.raises(NotLeader):
        await append(brokers.member, batch(topic))
    await until(lambda: brokers.member.topic("orders").scope == namespace.scope)
    assert await append(brokers.coordinator, batch(topic)) == 1
    assert queue.message_count == 1
    created = await brokers.create("amq.topic")
    assert created.scope is None, "no exchange of this name was declared"
    later = await namespace.declare_queue(QueueDefinition(name="later"), SESSION)
    assert (await brokers.create(later.name)).scope == namespace.scope
    with pytest.raises(NotLeader):
        await append(brokers.member, batch(await brokers.member.find_topic("later")))


@pytest.fixture
def lost(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> LostAnswers:
    monkeypatch.setattr(definitions, "_PAUSES", (0.0, 0.0, 0.0))
    return LostAnswers(brokers.database)


async def test_a_topic_whose_creation_was_not_answered_feeds_the_queue_of_its_name(
    brokers: Brokers, lost: LostAnswers
) -> None:
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await brokers.create("orders")
    topic = await brokers.member.find_topic("orders")
    await append(brokers.member, batch(topic))
    queue = await brokers.coordinator.namespaces.get("/").declare_queue(
        QueueDefinition(name="orders"), SESSION
    )
    with pytest.raises(NotLeader):
        await append(brokers.member, batch(topic))
    assert await append(brokers.coordinator, batch(brokers.coordinator.topic("orders"))) == 1
    assert queue.message_count == 1


async def test_the_name_of_a_topic_in_doubt_is_refused_while_the_database_does_not_tell(
    brokers: Brokers, lost: LostAnswers
) -> None:
    namespace = brokers.coordinator.namespaces.get("/")
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await brokers.create("orders")
    lost.is_silent = True
    with pytest.raises(Unavailable):
        await namespace.declare_queue(QueueDefinition(name="orders"), SESSION)
    with pytest.raises(Unavailable):
        await namespace.declare_exchange(ExchangeDefinition(name="orders", kind=ExchangeKind.FANOUT))
    with pytest.raises(Unavailable):
        await brokers.create("orders")
    with pytest.raises(Unavailable):
        await brokers.coordinator.find_topic("orders")
    lost.is_silent = False
    await until(lambda: brokers.coordinator.topics.find("orders") is not None)
    [again] = await brokers.coordinator.create_topics([NewTopic(name="orders")])
    assert isinstance(again, TopicExists)


@pytest.mark.parametrize("declared", ["before it has failed", "when it has failed"])
async def test_a_topic_is_declared_while_its_creation_fails_without_an_answer(
    brokers: Brokers, lost: LostAnswers, declared: str
) -> None:
    lost.count = 4
    creating = asyncio.create_task(brokers.create("orders"))
    await until(lambda: lost.count <= 2)
    namespace = brokers.coordinator.namespaces.get("/")
    declaring = asyncio.create_task(namespace.declare_queue(QueueDefinition(name="orders"), SESSION))
    lost.spared = declaring
    if declared == "before it has failed":
        lost.spared_from.set()
    with pytest.raises(DatabaseAway):
        await creating
    lost.spared_from.set()
    await declaring
    with pytest.raises(NotLeader):
        await append(brokers.member, batch(await brokers.member.find_topic("orders")))


async def test_a_topic_whose_deletion_did_not_count_keeps_what_the_member_writes(
    brokers: Brokers, lost: LostAnswers
) -> None:
    topic = await brokers.create("orders")
    await brokers.member.find_topic("orders")
    lost.is_silent = True
    with pytest.raises(DatabaseAway):
        await brokers.coordinator.delete_topics([topic])
    assert brokers.coordinator.topics.find("orders") is None
    await append(brokers.member, batch(topic))
    with pytest.raises(Unavailable):
        await brokers.create("orders")
    lost.is_silent = False
    [again] = await brokers.coordinator.create_topics([NewTopic(name="orders")])
    assert isinstance(again, TopicExists)
    await brokers.coordinator.refresh(topic.partition_ids())
    assert await values(brokers.coordinator, topic, 0) == [b"value"]
    await brokers.coordinator.delete_topics([await brokers.coordinator.find_topic("orders")])
    await brokers.create("orders")


async def test_a_member_removes_expired_records_but_none_that_queues_may_need(brokers: Brokers) -> None:
    """It holds all scopes of housekeeping, and knows no queue. What feeds one is left to the coordinator."""
    orders, plain = await brokers.create("orders"), await brokers.create("plain")
    for topic in (orders, plain):
        await append(brokers.coordinator, batch(topic))
    await brokers.coordinator.namespaces.get("/").declare_queue(QueueDefinition(name="orders"), SESSION)
    await append(brokers.coordinator, batch(brokers.coordinator.topic("orders")))
    ours, others = brokers.coordinator._storage, brokers.member._storage
    assert isinstance(ours, SharedStorage) and isinstance(others, SharedStorage)
    for scope in HOUSEKEEPING:
        await move_scope(brokers.database, scope, ours, others)
    assert all(map(brokers.member.holds, HOUSEKEEPING)) and not any(
        map(brokers.coordinator.holds, HOUSEKEEPING)
    )

    async def enforced(broker: Broker) -> list[int]:
        await broker.retention.enforce()
        await broker.retention.compact()
        await broker.refresh([*orders.partition_ids(), *plain.partition_ids()])
        return [broker.bounds(topic, 0).start for topic in (orders, plain)]

    assert await enforced(brokers.member) == [0, 1]
    assert await enforced(brokers.coordinator) == [1, 1], "the message behind it is not settled"
    assert await enforced(brokers.member) == [1, 1]


async def test_offsets_of_a_topic_whose_deletion_was_not_answered_are_forgotten(
    brokers: Brokers, lost: LostAnswers
) -> None:
    topic = await brokers.create("orders")
    offsets = brokers.coordinator.groups.offsets
    group = GroupId("readers")
    await brokers.coordinator.take_scope(scope_of_group(group))
    committed = NewOffset(partition=topic.partition(0), offset=0)
    assert await offsets.commit(group, MemberIdentity(member=MemberId("")), [committed]) == [None]
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await brokers.coordinator.delete_topics([topic])
    await until(lambda: not offsets.has(group))


async def test_the_member_follows_topics(brokers: Brokers) -> None:
    topic = await brokers.create("orders")
    await until(lambda: brokers.member.topics.find("orders") is not None)
    await brokers.coordinator.create_partitions("orders", 3)
    await until(lambda: brokers.member.topic("orders").partitions == 3)
    await brokers.coordinator.delete_topics([topic])
    await until(lambda: brokers.member.topics.find("orders") is None)
    with pytest.raises(UnknownTopic):
        await brokers.member.find_topic_by_id(topic.id)


async def scram(broker: Broker, user: str, password: str) -> None:
    """Raises LoginFailed."""
    authenticator = Authenticator(
        broker.access,
        PeerIdentity(peer=PEER),
        "toy",
        admitted=lambda guard: None,
        revoked=lambda: None,
    )
    login = SaslLogin(authenticator)
    assert login.begin("SCRAM-SHA-256")
    client = ScramClient("SCRAM-SHA-256", user, password)
    assert client.accepts(await login.take(client.final(await login.take(client.first()))))
    authenticator.close()


async def test_users_log_in_at_the_member_as_soon_as_they_exist(brokers: Brokers) -> None:
    users = brokers.coordinator.access.users
    for number in range(3):
        for name in ("ann", "ben"):
            await users.set_password(name, f"password {number}", iterations=MIN_ITERATIONS)
        await brokers.member.access.log_in("ann", f"password {number}", PEER)
        await scram(brokers.member, "ben", f"password {number}")
    await users.delete("ben")
    with pytest.raises(LoginFailed):
        await scram(brokers.member, "ben", "password 2")


async def test_producer_ids_are_bound_to_their_users_at_the_member_as_well(brokers: Brokers) -> None:
    producer = await brokers.coordinator.transactions.producer_ids.take("ann")
    ids = brokers.member.transactions.producer_ids
    assert ids.belongs_to(producer, "ann") and not ids.belongs_to(producer, "ben")


async def test_each_broker_assigns_producer_ids_of_its_own(brokers: Brokers) -> None:
    both = [brokers.coordinator.transactions.producer_ids, brokers.member.transactions.producer_ids]
    taken = [await ids.take("ann") for _ in range(3) for ids in both]
    assert len(set(taken)) == 6
    for ids in both:
        assert all(ids.belongs_to(each, "ann") and not ids.belongs_to(each, "ben") for each in taken)


async def test_a_member_assigns_producer_ids_while_no_broker_coordinates(brokers: Brokers) -> None:
    first = (await brokers.coordinator.transactions.init_producer(None, 0, owner="ann")).producer_id
    await brokers.coordinator.stop_coordinating()
    second = (await brokers.member.transactions.init_producer(None, 0, owner="ann")).producer_id
    assert brokers.coordinator.transactions.producer_ids.belongs_to(second, "ann") and second > first
    await brokers.coordinator.coordinate()
    third = (await brokers.coordinator.transactions.init_producer(None, 0, owner="ann")).producer_id
    assert first < third != second, "the rest of its block is not lost"


async def test_records_are_deleted_that_the_member_has_written(brokers: Brokers) -> None:
    topic = await brokers.create("orders")
    await brokers.member.find_topic("orders")
    for _ in range(2):
        await append(brokers.member, batch(topic))
    assert await brokers.coordinator.delete_records(topic, 0, None) == 2


async def test_the_member_creates_and_deletes_topics(brokers: Brokers) -> None:
    [topic] = await brokers.member.create_topics([NewTopic(name="orders")])
    assert isinstance(topic, Topic)
    assert await brokers.coordinator.find_topic("orders") == topic
    [again] = await brokers.coordinator.create_topics([NewTopic(name="orders")])
    assert isinstance(again, TopicExists)
    await append(brokers.coordinator, batch(topic))
    await brokers.member.delete_topics([topic])
    await until(lambda: brokers.coordinator.topics.find("orders") is None)


async def test_both_create_a_topic_at_once(brokers: Brokers) -> None:
    created = await asyncio.gather(
        brokers.coordinator.create_topics([NewTopic(name="orders"), NewTopic(name="a")]),
        brokers.member.create_topics([NewTopic(name="orders"), NewTopic(name="b")]),
    )
    results = [result for [result, _] in created]
    assert sum(isinstance(each, TopicExists) for each in results) == 1
    [topic] = [each for each in results if isinstance(each, Topic)]
    for name in ("a", "b"):  # what can be created is created
        assert (await brokers.member.find_topic(name)) == (await brokers.coordinator.find_topic(name))
    assert await brokers.member.find_topic("orders") == topic


async def test_a_member_creates_a_topic_that_feeds_a_queue(brokers: Brokers) -> None:
    namespace = brokers.coordinator.namespaces.get("/")
    queue = await namespace.declare_queue(QueueDefinition(name="mails", durable=False), SESSION)
    [topic] = await brokers.member.create_topics([NewTopic(name="mails")])
    assert isinstance(topic, Topic)
    with pytest.raises(NotLeader):
        await append(brokers.member, batch(topic))
    await append(brokers.coordinator, batch(await brokers.coordinator.find_topic("mails")))
    assert queue.message_count == 1
    await brokers.member.delete_topics([topic])
    await namespace.delete_queue("mails", SESSION)
    await until(lambda: not brokers.coordinator.namespaces.background)
    [topic] = await brokers.member.create_topics([NewTopic(name="mails")])
    assert isinstance(topic, Topic)
    await append(brokers.member, batch(topic))


async def test_the_member_changes_nothing_else(brokers: Brokers) -> None:
    with pytest.raises(NotLeader):
        await brokers.member.create_partitions((await brokers.create("orders")).name, 3)
    with pytest.raises(NotLeader):
        await brokers.member.access.users.set_password("eve", PASSWORD, iterations=MIN_ITERATIONS)
    with pytest.raises(NotCoordinator):
        await brokers.member.transactions.init_producer("tx", 1000)


async def test_the_holder_of_a_namespace_stores_limits_of_its_queues(
    brokers: Brokers,
) -> None:
    """It need not coordinate, and who takes the scope reads them."""
    coordinator, member = brokers.coordinator, brokers.member
    scope = coordinator.namespaces.get("/").scope
    await coordinator.namespaces.get("/").declare_queue(QueueDefinition(name="q"), SESSION)
    await _move(brokers, scope, coordinator, member)
    limits = DeliveryLimits(rate=12.5, concurrency=3)
    await member.namespaces.get("/").limits.set("q", limits)
    await _move(brokers, scope, member, coordinator)
    queue = coordinator.namespaces.get("/").queues["q"]
    assert isinstance(queue, Queue)
    assert queue.limits == limits
    assert coordinator.namespaces.get("/").limits.get("q") == limits


async def _move(brokers: Brokers, scope: Scope, holder: Broker, to: Broker) -> None:
    before, after = holder._storage, to._storage
    assert isinstance(before, SharedStorage)
    assert isinstance(after, SharedStorage)
    await holder.release_scope(scope)
    await release_scope(brokers.database, scope, before)
    await take_scope(brokers.database, scope, after)
    await to.take_scope(scope)
