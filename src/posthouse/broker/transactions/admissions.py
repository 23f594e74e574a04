"""Admissions: transactions whose batches any broker of a cluster may take.

One broker coordinates a transaction, that which holds the scope of its id. When it adds a partition, it
stores an admission of the producer to that partition, and removes it in the commit that ends the transaction.
The broker that gets a batch names the admission in its commit, and storage refuses the batch unless that very
admission is stored. So a batch that comes late never gets into a later transaction: its admission is gone, or
has another epoch.

That does not hold of a producer that keeps its epoch after a transaction was aborted: an earlier batch of it
may still be on its way. It gets no admissions until its next epoch, and all of its batches go to that
broker, which sees their order (`request_order`). A producer keeps its epoch after a commit, too, but
then all of its batches were acknowledged before.

Stored in `Space.ADMISSIONS`, big-endian:

    key    topic id 16 bytes | partition u32 | producer id i64
    value  epoch i16 | transactional id in UTF-8, to the end
"""

from collections.abc import Collection, Iterable, Mapping
from struct import Struct

from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_KEY = Struct(">16sIq")
_OWNER = Struct(">16sI")
_EPOCH = Struct(">h")


def admission_value(id: str, epoch: int) -> bytes:
    return _EPOCH.pack(epoch) + id.encode()


def _key(partition: PartitionId, producer: ProducerIdentity) -> bytes:
    return _KEY.pack(partition.topic, partition.index, producer.producer_id)


def admissions(transaction: Transaction, partitions: Iterable[PartitionId]) -> list[Put]:
    """Admit the producer of the transaction to the partitions."""
    producer = transaction.producer
    value = admission_value(transaction.id, producer.epoch)
    return [Put(Space.ADMISSIONS, _key(partition, producer), value) for partition in partitions]


def removals(transaction: Transaction, partitions: Iterable[PartitionId]) -> list[Put]:
    producer = transaction.producer
    return [Put(Space.ADMISSIONS, _key(partition, producer), None) for partition in partitions]


def owners(transactions: Iterable[Transaction]) -> set[bytes]:
    """The owners of admissions that these open transactions may have stored: partitions."""
    works = [each.work for each in transactions if each.work is not None]
    return {_OWNER.pack(each.topic, each.index) for work in works for each in work.partitions}


def load_admissions(state: Mapping[bytes, bytes], ids: TransactionalIds) -> None:
    """Note stored admissions at their transactions."""
    for key, value in state.items():
        topic, index, producer_id = _KEY.unpack(key)
        (epoch,) = _EPOCH.unpack_from(value)
        transaction = ids.find(value[_EPOCH.size :].decode())
        if (
            transaction is not None
            and transaction.work is not None
            and transaction.producer == ProducerIdentity(producer_id, epoch)
        ):
            transaction.work.admitted.add(PartitionId(TopicId(topic), index))


def missing(transaction: Transaction, partitions: Collection[PartitionId]) -> set[PartitionId]:
    """The partitions that the producer may be admitted to, and is not yet."""
    if transaction.work is None or not transaction.may_be_shared:
        return set()
    return set(partitions) - transaction.work.admitted
