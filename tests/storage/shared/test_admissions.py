"""Batches of transactions at brokers that do not coordinate them: `commit_group` looks for the admission."""

import asyncio
from random import Random

import pytest

from posthouse.broker.transactions.admissions import admission_value, admissions, removals
from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction, Work
from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader, ProducerFenced
from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.control import build_marker
from posthouse.storage.operations import Append
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from tests.storage.batches import make_topic
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.members import members

PRODUCER = ProducerIdentity(7, 3)


def transaction(epoch: int = PRODUCER.epoch) -> Transaction:
    producer = ProducerIdentity(PRODUCER.producer_id, epoch)
    return Transaction(id="tx", producer=producer, timeout_ms=1000, changed_ms=0, work=Work(0))


def batch(partition: PartitionId, sequence: int, *, epoch: int = PRODUCER.epoch, id: str = "tx") -> Append:
    builder = BatchBuilder(
        producer_id=PRODUCER.producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    builder.add(None, b"%d" % sequence, (), 1000)
    built = memoryview(builder.build())
    return Append(partition, built, parse_header(built), admission=admission_value(id, epoch))


def marker(partition: PartitionId, *, epoch: int = PRODUCER.epoch) -> Append:
    built = memoryview(build_marker(PRODUCER.producer_id, epoch, commit=True, timestamp=5))
    return Append(partition, built, parse_header(built))


async def test_a_batch_needs_the_very_admission(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic(partitions=2)
    await shared.create_topics([topic])
    partition, other = topic.partition_ids()
    async with members(1, database, objects, clock) as [member]:
        with pytest.raises(OperationRefused) as before:
            await member.commit([batch(partition, 0)])
        assert isinstance(before.value.reason, NotLeader)
        await shared.commit([transaction().put(), *admissions(transaction(), [partition])])
        [outcome] = await member.commit([batch(partition, 0)])
        assert outcome.base_offset == 0
        for wrong in (
            batch(other, 0),
            batch(partition, 1, id="another"),
            batch(partition, 0, epoch=PRODUCER.epoch + 1),
        ):
            with pytest.raises(OperationRefused) as refused:
                await member.commit([wrong])
            assert isinstance(refused.value.reason, NotLeader)
        [repeated] = await member.commit([batch(partition, 0)])
        assert repeated.base_offset == 0
        await shared.commit([marker(partition), *removals(transaction(), [partition])])
        with pytest.raises(OperationRefused) as late:
            await member.commit([batch(partition, 1)])
        assert isinstance(late.value.reason, NotLeader)


async def test_one_batch_that_is_not_admitted_voids_its_request_and_no_other(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic(partitions=2)
    await shared.create_topics([topic])
    admitted, other = topic.partition_ids()
    await shared.commit([transaction().put(), *admissions(transaction(), [admitted])])
    async with members(1, database, objects, clock) as [member]:
        both = member.commit([batch(admitted, 0), batch(other, 0)])
        alone = member.commit([batch(admitted, 0)])
        with pytest.raises(OperationRefused):
            await both
        assert (await alone)[0].base_offset == 0


async def test_an_admission_of_a_fenced_epoch_is_of_no_use(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    [partition] = topic.partition_ids()
    await shared.commit(
        [marker(partition, epoch=PRODUCER.epoch + 1), *admissions(transaction(), [partition])]
    )
    async with members(1, database, objects, clock) as [member]:
        with pytest.raises(OperationRefused) as refused:
            await member.commit([batch(partition, 0)])
        assert isinstance(refused.value.reason, ProducerFenced)


@pytest.mark.parametrize("seed", range(3))
async def test_no_batch_lies_behind_the_end_of_its_transaction(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock, seed: int
) -> None:
    """Two brokers append while the coordinator ends one transaction after the other, in one epoch."""
    random = Random(seed)
    topic = make_topic()
    await shared.create_topics([topic])
    [partition] = topic.partition_ids()
    ended = taken = refused = 0
    async with members(2, database, objects, clock) as brokers:

        async def append(sequence: int) -> bool:
            for _ in range(random.randrange(3)):
                await asyncio.sleep(0)
            try:
                await random.choice(brokers).commit([batch(partition, sequence)])
            except OperationRefused:
                return False
            return True

        while ended < 40:
            await shared.commit([transaction().put(), *admissions(transaction(), [partition])])
            assert await append(taken)
            taken += 1
            appending = asyncio.create_task(append(taken))
            for _ in range(random.randrange(4)):
                await asyncio.sleep(random.choice([0, 0.0005]))
            await shared.commit([marker(partition), *removals(transaction(), [partition])])
            ended += 1
            if await appending:
                taken += 1
            else:
                refused += 1
        with pytest.raises(OperationRefused):
            await brokers[0].commit([batch(partition, taken)])
    await shared.refresh([partition])
    found = await shared.read(partition, 0, 2**24)
    headers = [header for _, header in iter_headers(memoryview(found.data))]
    assert sum(header.is_control for header in headers) == ended
    assert sum(not header.is_control for header in headers) == taken
    assert headers[-1].is_control
    assert refused and taken > ended  # both orders have happened
