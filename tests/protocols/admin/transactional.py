"""A transactional producer on the broker itself, for tests that look at transactions from outside."""

from typing import Self

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.transactions.request_order import Arrival
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.records.builder import BatchBuilder


class _OneConnection:
    is_open = True

    way = None

    def arrival_after(self, earlier: Self) -> Arrival:
        return Arrival.IN_ORDER


async def write(
    broker: Broker, id: str, topic: str, value: str, partition: int = 0, *, two_phase: bool = False
) -> ProducerIdentity:
    """One record in a transaction that is begun by it, and stays open."""
    producer = await broker.transactions.init_producer(id, 60_000, owner="ann", two_phase=two_phase)
    builder = BatchBuilder(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0, transactional=True
    )
    builder.add(None, value.encode(), (), broker.now_ms())
    batch = Produced(broker.topic(topic), partition, memoryview(builder.build()))
    [result] = await broker.append([batch], _writer(id)).wait()
    assert isinstance(result, Appended), result
    return producer


async def end(broker: Broker, id: str, producer: ProducerIdentity, *, commit: bool) -> None:
    await broker.transactions.end(_writer(id).request(producer), commit=commit)


def _writer(id: str) -> TransactionalWriter:
    return TransactionalWriter(id=id, origin=_OneConnection(), epoch_per_transaction=True)
