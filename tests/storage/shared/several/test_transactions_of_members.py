"""Transactions whose batches come by several brokers: what readers of committed records get from each."""

import pytest

from posthouse.broker.transactions.admissions import admissions, removals
from posthouse.model.ids import PartitionId
from posthouse.records.batch import parse_header
from posthouse.records.control import build_marker
from posthouse.storage.operations import Append
from posthouse.storage.shared.engine import SharedStorage
from tests.storage.batches import append, make_topic
from tests.storage.shared.several.brokers import Brokers
from tests.storage.shared.test_admissions import PRODUCER, batch, transaction


@pytest.fixture
async def partition(brokers: Brokers) -> PartitionId:
    topic = make_topic()
    await brokers.a.create_topics([topic])
    for each in (brokers.b, brokers.c):
        await each.refresh_definitions()
    return topic.partition(0)


def _end(partition: PartitionId, *, commit: bool) -> Append:
    made = memoryview(build_marker(PRODUCER.producer_id, PRODUCER.epoch, commit=commit, timestamp=5))
    return Append(partition, made, parse_header(made))


async def _committed(storage: SharedStorage, partition: PartitionId) -> tuple[int, list[tuple[int, int]]]:
    """What a reader of committed records can know: the last stable offset, and the aborted transactions."""
    found = await storage.read(partition, 0, 2**20, stable_only=True)
    aborted = [(each.first_offset, each.last_offset) for each in found.aborted]
    return found.bounds.stable, aborted


@pytest.mark.parametrize("commit", [True, False])
async def test_every_broker_shows_the_same(brokers: Brokers, partition: PartitionId, commit: bool) -> None:
    a, b, c = brokers
    await b.commit([append(partition, b"before")])
    await a.commit([transaction().put(), *admissions(transaction(), [partition])])
    await b.commit([batch(partition, 0)])
    assert b.bounds(partition).stable == 1, "the broker that wrote it does not show it either"
    await c.commit([batch(partition, 1)])
    await a.commit([append(partition, b"beside")])
    for each in brokers:
        await each.refresh([partition])
        assert (each.bounds(partition).stable, each.bounds(partition).end) == (1, 4)
    await a.commit([_end(partition, commit=commit), *removals(transaction(), [partition])])
    expected = [] if commit else [(1, 4)]
    for each in brokers:
        await each.refresh([partition])
        assert await _committed(each, partition) == (5, expected)


async def test_batches_in_the_memory_of_one_broker(brokers: Brokers, partition: PartitionId) -> None:
    """The aborted transaction is known to the database only."""
    a, b, _ = brokers
    await a.commit([transaction().put(), *admissions(transaction(), [partition])])
    for sequence in range(3):
        await b.commit([batch(partition, sequence)])
    log = b._logs[partition]
    assert (log.tail_start, log.tail_end) == (0, 3)
    await a.commit([_end(partition, commit=False), *removals(transaction(), [partition])])
    await b.refresh([partition])
    found = await b.read(partition, 1, 2**20, stable_only=True)
    assert [(each.first_offset, each.last_offset) for each in found.aborted] == [(0, 3)]
