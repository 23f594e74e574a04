"""Commits of the shared storage beyond the contract: failures of one path, and brokers that come back."""

import asyncio
from uuid import uuid4

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import OutOfOrderSequence, StorageFenced, Unavailable
from posthouse.model.ids import PartitionId
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Put
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore
from tests.storage.shared.opened import make_shared


async def partitions_in(storage: Storage) -> tuple[PartitionId, PartitionId]:
    """Of a topic with its records in objects, and of one with its records in the database."""
    topics = [make_topic("slow", latency="object"), make_topic("fast")]
    await storage.create_topics(topics)
    slow, fast = [topic.partition(0) for topic in topics]
    return slow, fast


def numbered(partition: PartitionId, sequence: int, *, required: bool = True) -> Append:
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence)
    builder.add(None, b"%d" % sequence, (), 1000)
    batch = memoryview(builder.build())
    return Append(partition, batch, parse_header(batch), required=required)


async def test_a_broker_that_takes_the_lease_again_goes_on_with_its_numbers(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Its first commit must not be taken for one of its earlier life."""
    broker = uuid4()
    topic = make_topic()
    partition = topic.partition(0)
    for life in range(3):
        storage = await make_shared(database, objects, clock, incarnation=broker)
        await storage.open()
        if not life:
            await storage.create_topics([topic])
        for number in range(3):
            [outcome] = await storage.commit([append(partition, b"%d" % (3 * life + number))])
            assert outcome.base_offset == 3 * life + number
        await storage.close()
    storage = await make_shared(database, objects, clock, incarnation=broker)
    await storage.open()
    assert await read_all(storage, partition) == {number: b"%d" % number for number in range(9)}
    await storage.close()


async def test_a_storage_that_lost_the_lease_acknowledges_nothing_more(
    database: Database, objects: FaultyObjectStore, clock: ManualClock, shared: Storage
) -> None:
    _, fast = await partitions_in(shared)
    await shared.commit([append(fast, b"1")])
    successor = await make_shared(database, objects, clock)
    await successor.open()
    with pytest.raises(StorageFenced):
        await shared.commit([append(fast, b"2")])
    with pytest.raises(StorageFenced):
        shared.commit([append(fast, b"3")])
    await successor.commit([append(fast, b"4")])
    assert await read_all(successor, fast) == {0: b"1", 1: b"4"}
    await successor.close()


async def test_after_a_failed_first_batch_its_producer_must_repeat_it(
    shared: Storage, objects: FaultyObjectStore
) -> None:
    slow, fast = await partitions_in(shared)
    objects.fail(Fault.FAIL, "put")
    with pytest.raises(Unavailable):
        await shared.commit([numbered(slow, 0)])
    with pytest.raises(OperationRefused) as refused:
        await shared.commit([numbered(slow, 1)])
    assert isinstance(refused.value.reason, OutOfOrderSequence)
    # One that is not required is refused alone, and that does not make up for the failed one.
    outcomes = await shared.commit([numbered(slow, 1, required=False), append(fast, b"other")])
    assert isinstance(outcomes[0].refusal, OutOfOrderSequence) and outcomes[1].base_offset == 0
    with pytest.raises(OperationRefused):
        await shared.commit([numbered(slow, 2)])
    for sequence in range(3):
        [outcome] = await shared.commit([numbered(slow, sequence)])
        assert outcome.base_offset == sequence


async def test_a_slow_object_store_holds_up_only_what_depends_on_it(
    shared: Storage, objects: FaultyObjectStore
) -> None:
    slow, fast = await partitions_in(shared)
    objects.gate.clear()
    key = b"." * 20
    waiting = shared.commit([append(slow, b"1"), Put(Space.OFFSETS, key + b"a", b"1")])
    behind = shared.commit([Put(Space.OFFSETS, key + b"a", b"2")])
    outcomes = await shared.commit([append(fast, b"1"), Put(Space.OFFSETS, key + b"b", b"1")])
    assert outcomes[0].base_offset == 0
    await asyncio.sleep(0.2)
    assert not waiting.done() and not behind.done()
    objects.gate.set()
    await asyncio.gather(waiting, behind)
    assert await read_all(shared, slow) == {0: b"1"}


async def test_a_barrier_waits_for_commits_whose_caller_has_gone(
    shared: Storage, objects: FaultyObjectStore
) -> None:
    slow, _ = await partitions_in(shared)
    objects.gate.clear()
    first, second = (shared.commit([append(slow, each)]) for each in (b"1", b"2"))
    second.cancel()
    barrier = asyncio.create_task(shared.barrier())
    await asyncio.sleep(0.2)
    assert not barrier.done()
    objects.gate.set()
    await barrier
    assert first.done()
    assert await read_all(shared, slow) == {0: b"1", 1: b"2"}
