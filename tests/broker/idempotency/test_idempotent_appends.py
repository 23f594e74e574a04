"""Appends with an idempotency key, on every storage: once, with the answer of the first time."""

import asyncio
import errno
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.idempotency.idempotent_appends import KeyedAppend
from posthouse.broker.idempotency.key_log import TOPIC_NAME
from posthouse.broker.idempotency.keyed_producer import IdempotencyKey, KeyedProducer
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import (
    IdempotencyKeyReused,
    InvalidPartitions,
    RecordTooLarge,
    StorageFull,
    TooManyKeys,
    UnknownPartition,
)
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import iter_records
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.faults import FaultyDisk
from tests.storage.shared.opened import make_member, make_shared

SETTINGS = Settings(memory=True, idempotency_keys_max=1000)
Items = Sequence[tuple[int | None, bytes]]
"""Partition, or None for one that follows from the key; and the value."""


async def started(storage: Storage, clock: ManualClock, settings: Settings = SETTINGS) -> Broker:
    broker = Broker(storage, settings, clock)
    await broker.start()
    await broker.coordinate()
    return broker


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "file", "shared"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    if request.param == "shared":
        with new_database(request.getfixturevalue("postgres"), MIGRATED) as url:
            shared = await make_shared(Database(url), MemoryObjectStore(clock), clock)
            running = await started(shared, clock)
            yield running
            await running.stop()
        return
    storage: Storage = MemoryStorage(clock)
    if request.param == "file":
        storage = FileStorage(tmp_path / "data", clock=clock)
    running = await started(storage, clock)
    yield running
    await running.stop()


async def topic(broker: Broker, partitions: int = 4, **configs: str) -> Topic:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    [made] = await broker.create_topics([NewTopic(name="t", partitions=partitions, overrides=settings)])
    assert isinstance(made, Topic)
    return made


async def append(
    broker: Broker, topic: Topic, key: str, *items: tuple[int | None, bytes], owner: str = "ann"
) -> KeyedAppend:
    def make(topic: Topic, producer: KeyedProducer) -> list[Produced]:
        builders: dict[int, BatchBuilder] = {}
        for partition, value in items:
            chosen = producer.id % producer.partitions if partition is None else partition
            builder = builders.setdefault(
                chosen,
                BatchBuilder(
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    base_sequence=producer.sequence,
                ),
            )
            builder.add(None, value, timestamp=broker.now_ms())
        return [Produced(topic, each, memoryview(builder.build())) for each, builder in builders.items()]

    fingerprint = hashlib.sha256(repr(items).encode()).digest()
    return await broker.idempotent_appends.append(
        topic, IdempotencyKey(owner=owner, text=key), fingerprint, make
    )


def places(done: KeyedAppend) -> list[tuple[int, int]]:
    return [
        (batch.partition, appended.base_offset)
        for batch, appended in zip(done.batches, done.appended, strict=True)
    ]


async def values(broker: Broker, topic: Topic) -> list[bytes | None]:
    found: list[bytes | None] = []
    await broker.refresh(topic.partition_ids())
    for partition in range(topic.partitions):
        offset, end = broker.bounds(topic, partition).start, broker.bounds(topic, partition).end
        while offset < end:
            read = await broker.read(topic, partition, offset, 100_000)
            records = list(iter_records(read.data))
            found += [record.value for record in records]
            offset = records[-1].offset + 1
    return sorted(found, key=lambda value: value or b"")


async def test_a_request_that_was_not_stored_leaves_its_key_free(tmp_path: Path, clock: ManualClock) -> None:
    disk = FaultyDisk()
    broker = await started(FileStorage(tmp_path / "data", clock=clock, disk=disk), clock)
    t = await topic(broker)
    await append(broker, t, "before", (0, b"before"))
    disk.fail("write", number=errno.ENOSPC)
    with pytest.raises(StorageFull):
        await append(broker, t, "k", (0, b"a"), (2, b"b"))
    assert not (await append(broker, t, "k", (0, b"edited"), (2, b"b"))).is_repeated
    assert (await append(broker, t, "k", (0, b"edited"), (2, b"b"))).is_repeated
    assert await values(broker, t) == [b"b", b"before", b"edited"]
    await broker.stop()


async def test_the_same_request_again_appends_nothing_and_has_the_same_offsets(broker: Broker) -> None:
    t = await topic(broker)
    await append(broker, t, "before", (0, b"before"))
    first = await append(broker, t, "k", (0, b"a"), (2, b"b"), (0, b"c"))
    again = await append(broker, t, "k", (0, b"a"), (2, b"b"), (0, b"c"))
    assert not first.is_repeated
    assert again.is_repeated
    assert places(first) == places(again) == [(0, 1), (2, 0)]
    assert await values(broker, t) == [b"a", b"b", b"before", b"c"]


async def test_another_request_with_the_key_is_refused_wherever_it_goes(broker: Broker) -> None:
    t = await topic(broker)
    await append(broker, t, "k", (0, b"a"))
    for partition in range(4):
        with pytest.raises(IdempotencyKeyReused, match="'k' was used for another request"):
            await append(broker, t, "k", (partition, b"b"))
    assert await values(broker, t) == [b"a"]
    assert (await append(broker, t, "k", (0, b"a"))).is_repeated


async def test_keys_belong_to_a_user_and_a_topic(broker: Broker) -> None:
    t = await topic(broker)
    [other] = await broker.create_topics([NewTopic(name="other", partitions=1)])
    assert isinstance(other, Topic)
    for owner in ("ann", "bob"):
        assert not (await append(broker, t, "k", (0, owner.encode()), owner=owner)).is_repeated
    assert not (await append(broker, other, "k", (0, b"else"))).is_repeated
    assert await values(broker, t) == [b"ann", b"bob"]


async def test_requests_at_the_same_time_are_one(broker: Broker) -> None:
    t = await topic(broker)
    done = await asyncio.gather(*(append(broker, t, "k", (None, b"a"), (1, b"b")) for _ in range(8)))
    assert sum(not each.is_repeated for each in done) == 1
    assert len({tuple(places(each)) for each in done}) == 1
    assert await values(broker, t) == [b"a", b"b"]


async def test_a_topic_that_has_grown_meanwhile_has_the_same_records(broker: Broker) -> None:
    t = await topic(broker, partitions=3)
    first = await append(broker, t, "k", (None, b"a"))
    grown = await broker.create_partitions("t", 7)
    again = await append(broker, grown, "k", (None, b"a"))
    assert again.is_repeated
    assert places(again) == places(first)
    with pytest.raises(IdempotencyKeyReused):
        await append(broker, grown, "k", (None, b"b"))
    assert await values(broker, grown) == [b"a"]


async def test_all_batches_or_none(broker: Broker) -> None:
    t = await topic(broker, max_message_bytes="2000")
    with pytest.raises(RecordTooLarge):
        await append(broker, t, "k", (0, b"small"), (1, bytes(10_000)))
    with pytest.raises(UnknownPartition):
        await append(broker, t, "k", (0, b"small"), (9, b"small"))
    assert await values(broker, t) == []
    assert not (await append(broker, t, "k", (0, b"small"))).is_repeated, "the key was not used up"


async def test_a_key_is_free_again_after_its_time(broker: Broker, clock: ManualClock) -> None:
    t = await topic(broker)
    await append(broker, t, "k", (0, b"a"))
    clock.advance(24 * 3600 + 60)
    await broker.retention.enforce()
    assert not (await append(broker, t, "k", (1, b"b"))).is_repeated
    assert await values(broker, t) == [b"a", b"b"]


async def test_so_many_keys_are_remembered(clock: ManualClock) -> None:
    storage = MemoryStorage(clock)
    broker = await started(storage, clock, Settings(memory=True, idempotency_keys_max=3))
    t = await topic(broker)
    for number in range(3):
        await append(broker, t, str(number), (0, b"%d" % number))
    with pytest.raises(TooManyKeys, match="3 idempotency keys are remembered"):
        await append(broker, t, "more", (0, b"more"))
    assert (await append(broker, t, "1", (0, b"1"))).is_repeated, "what was stored is answered all the same"
    await broker.stop()
    again = await started(storage, clock, Settings(memory=True, idempotency_keys_max=3))
    with pytest.raises(TooManyKeys):
        await append(again, again.topic("t"), "more", (0, b"more"))
    clock.advance(24 * 3600 + 120)
    assert not (await append(again, again.topic("t"), "more", (0, b"more"))).is_repeated
    await again.stop()


async def test_topics_with_more_partitions_than_a_key_can_tell(clock: ManualClock) -> None:
    broker = await started(MemoryStorage(clock), clock)
    t = await topic(broker, partitions=32_768)
    with pytest.raises(InvalidPartitions, match="at most 32767"):
        await append(broker, t, "k", (0, b"a"))
    await broker.stop()


async def test_keys_are_remembered_over_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    broker = await started(FileStorage(tmp_path / "data", clock=clock), clock)
    t = await topic(broker)
    first = await append(broker, t, "k", (0, b"a"), (1, b"b"))
    await broker.stop()
    broker = await started(FileStorage(tmp_path / "data", clock=clock), clock)
    again = await append(broker, broker.topic("t"), "k", (0, b"a"), (1, b"b"))
    assert again.is_repeated
    assert places(again) == places(first)
    with pytest.raises(IdempotencyKeyReused):
        await append(broker, broker.topic("t"), "k", (2, b"c"))
    assert await values(broker, broker.topic("t")) == [b"a", b"b"]
    await broker.stop()


async def test_the_log_of_keys_is_none_of_the_topics_that_clients_see(broker: Broker) -> None:
    t = await topic(broker)
    await append(broker, t, "k", (0, b"a"))
    assert [each.name for each in broker.topics] == ["t"]
    assert TOPIC_NAME in [each.name for each in broker.stored_topics()]


async def test_no_client_writes_with_the_producer_of_a_key(broker: Broker) -> None:
    t = await topic(broker)
    done = await append(broker, t, "k", (0, b"a"))
    producer = parse_header(done.batches[0].batch).producer_id
    assert not broker.transactions.producer_ids.belongs_to(producer, "ann")


async def test_two_brokers_know_each_others_keys(postgres: PostgresServer, clock: ManualClock) -> None:
    with new_database(postgres, MIGRATED) as url:
        database, objects = Database(url), MemoryObjectStore(clock)
        coordinator = await started(await make_shared(database, objects, clock), clock)
        member = Broker(await make_member(database, objects, clock), SETTINGS, clock)
        await member.start()
        t = await topic(coordinator)
        theirs = await member.find_topic("t")
        first = await append(member, theirs, "k", (None, b"a"), (1, b"b"))
        again = await append(coordinator, t, "k", (None, b"a"), (1, b"b"))
        assert places(first) == places(again)
        assert again.is_repeated
        with pytest.raises(IdempotencyKeyReused):
            await append(coordinator, t, "k", (None, b"b"))
        both = await asyncio.gather(
            append(coordinator, t, "other", (3, b"x")), append(member, theirs, "other", (3, b"x"))
        )
        assert sorted(each.is_repeated for each in both) == [False, True]
        grown = await coordinator.create_partitions("t", 9)
        assert (await append(coordinator, grown, "late", (None, b"late"))).is_repeated is False
        assert (await append(member, theirs, "late", (None, b"late"))).is_repeated
        assert await values(coordinator, grown) == [b"a", b"b", b"late", b"x"]
        await member.stop()
        await coordinator.stop()
