"""A broker that does not coordinate: it serves logs, changes no state, and says so where it is asked to."""

from pathlib import Path

import pytest

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.groups.consumer_member import Beat
from posthouse.broker.topics import NewTopic
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotCoordinator, NotLeader, OffsetOutOfRange, Unavailable
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.request_origins import ConnectionIdentity, CorrelatedOrigin
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Authentication, Settings
from posthouse.storage.outcomes import OperationRefused
from tests.broker.members import CoordinatorStorage, MemberStorage, pair, started

PASSWORD = "nobody-guesses-this"


def password_file(directory: Path) -> Path:
    file = directory / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    return file


async def created(broker: Broker, name: str = "t") -> Topic:
    [topic] = await broker.create_topics([NewTopic(name=name, partitions=1)])
    assert isinstance(topic, Topic)
    return topic


def batch(topic: Topic, value: bytes = b"value", *, is_transactional: bool = False) -> Produced:
    builder = (
        BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        if is_transactional
        else BatchBuilder()
    )
    builder.add(None, value, timestamp=1_700_000_000_000)
    return Produced(topic, 0, memoryview(builder.build()))


async def test_a_member_serves_logs() -> None:
    async with pair() as brokers:
        topic = await created(brokers.coordinator)
        async with started(brokers.member) as member:
            assert not member.coordinates and brokers.coordinator.coordinates
            [appended] = await member.append([batch(member.topic("t"), b"from the member")]).wait()
            assert isinstance(appended, Appended) and appended.base_offset == 0
            found = await brokers.coordinator.read(topic, 0, 0, 1000)
            assert b"from the member" in bytes(found.data)
            await brokers.coordinator.append([batch(topic, b"from the coordinator")]).wait()
            await brokers.member_storage.refresh(topic.partition_ids())
            assert b"from the coordinator" in bytes((await member.read(topic, 0, 1, 1000)).data)


async def test_a_member_starts_and_stops_without_a_commit_of_state(tmp_path: Path) -> None:
    """Its storage would refuse one. The coordinator stores secret and password."""
    settings = {"authentication": Authentication.REQUIRED, "admin_password_file": password_file(tmp_path)}
    async with pair(**settings) as brokers, started(brokers.member) as member:
        await member.access.log_in("admin", PASSWORD, "127.0.0.1:1")
        producer_id = await brokers.coordinator.transactions.producer_ids.take("ann")
        ids = member.transactions.producer_ids
        assert ids.belongs_to(producer_id, "ann") and not ids.belongs_to(producer_id, "ben")


async def test_a_member_assigns_no_producer_id_before_it_knows_the_secret(tmp_path: Path) -> None:
    """Every user might write with an id that is not bound."""
    settings = Settings(
        memory=True, authentication=Authentication.REQUIRED, admin_password_file=password_file(tmp_path)
    )
    clock = ManualClock()
    storage = CoordinatorStorage(clock)
    member_storage = MemberStorage(storage, clock)
    member = Broker(member_storage, settings, clock)
    async with started(member):
        ids = member.transactions.producer_ids
        with pytest.raises(Unavailable):
            await ids.take("ann")
        coordinator = Broker(storage, settings, clock)
        await coordinator.start()
        await coordinator.coordinate()
        member_storage.follow()
        producer_id = await ids.take("ann")
        assert ids.belongs_to(producer_id, "ann") and not ids.belongs_to(producer_id, "ben")
        assert coordinator.transactions.producer_ids.belongs_to(producer_id, "ann")
        await coordinator.stop()


async def test_a_member_refuses_what_needs_the_coordinator() -> None:
    async with pair() as brokers:
        await created(brokers.coordinator)
        async with started(brokers.member) as member:
            group = GroupId("g")
            beat = Beat(member=MemberId("ann"), epoch=0, topics=frozenset({"t"}))
            with pytest.raises(NotCoordinator):
                member.groups.beat(group, beat)
            with pytest.raises(NotCoordinator):
                await member.transactions.init_producer("tx", 1000)
            with pytest.raises(NotCoordinator):
                await member.subscriptions.create(group)
            with pytest.raises(NotLeader):
                await member.create_partitions("t", 3)
            with pytest.raises(NotCoordinator):
                member.namespaces.get("/")


async def test_a_member_refuses_batches_of_transactions_that_are_not_admitted() -> None:
    async with pair() as brokers:
        topic = await created(brokers.coordinator)
        async with started(brokers.member) as member:
            origin = CorrelatedOrigin(ConnectionIdentity(), 1)
            writer = TransactionalWriter(id="tx", origin=origin)
            with pytest.raises(OperationRefused) as refused:
                await member.append([batch(topic, is_transactional=True)], writer).wait()
            assert isinstance(refused.value.reason, NotLeader)


async def test_a_read_above_the_end_that_is_known_asks_before_it_is_refused() -> None:
    async with pair() as brokers:
        topic = await created(brokers.coordinator)
        async with started(brokers.member) as member:
            for value in (b"first", b"second"):
                await brokers.coordinator.append([batch(topic, value)]).wait()
            assert member.bounds(topic, 0).end == 0
            assert b"second" in bytes((await member.read(topic, 0, 1, 1000)).data)
            assert member.bounds(topic, 0).end == 2
            with pytest.raises(OffsetOutOfRange):
                await member.read(topic, 0, 3, 1000)


async def test_a_read_above_the_end_is_no_error_of_the_reader_while_the_database_is_away() -> None:
    async with pair() as brokers:
        topic = await created(brokers.coordinator)
        async with started(brokers.member) as member:
            brokers.member_storage.failure = Unavailable("the database is away")
            with pytest.raises(Unavailable):
                await member.read(topic, 0, 1, 1000)
            assert not (await member.read(topic, 0, 0, 1000)).data


async def test_bounds_are_refreshed() -> None:
    async with pair() as brokers:
        topic = await created(brokers.coordinator)
        async with started(brokers.member) as member:
            await brokers.coordinator.append([batch(topic)]).wait()
            await member.refresh(topic.partition_ids())
            assert member.bounds(topic, 0).end == 1
