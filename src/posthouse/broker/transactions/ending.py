"""The one commit that ends a transaction: its markers, its offsets and its new state."""

from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction
from posthouse.model.ids import PartitionId
from posthouse.records.batch import parse_header
from posthouse.records.control import build_marker
from posthouse.storage.interface import Append, Operation, OperationRefused, Put, Storage


async def commit_end(
    storage: Storage, transaction: Transaction, after: Transaction, *, commit: bool
) -> list[Append]:
    """Returns the markers that were written."""
    markers = _markers(storage, transaction, after, commit)
    puts = _puts(transaction, commit)
    puts.append(after.put())
    while True:
        operations: list[Operation] = [*markers, *puts]
        try:
            committing = storage.commit(operations)
        except OperationRefused as refusal:
            # The partition knows a later epoch, so it has never taken a record of this transaction.
            markers = [marker for marker in markers if marker is not refusal.operation]
        else:
            await committing
            return markers


async def abort_hanging(
    storage: Storage, partition: PartitionId, producer: ProducerIdentity, now_ms: int
) -> Append:
    """Write the marker that ends what is open in one partition and that no transaction knows of."""
    marker = _marker(partition, producer, now_ms, commit=False)
    try:
        await storage.commit([marker])
    except OperationRefused as refusal:
        raise refusal.reason from None
    return marker


def _markers(storage: Storage, transaction: Transaction, after: Transaction, commit: bool) -> list[Append]:
    """They carry the new epoch if there is one, and so fence the old in every partition."""
    if transaction.work is None:
        return []
    writer = after.producer
    if writer.producer_id != transaction.producer.producer_id:
        writer = transaction.producer.next_epoch
    return [
        _marker(partition, writer, after.changed_ms, commit=commit)
        for partition in transaction.work.partitions
        if partition.topic in storage.topics
    ]


def _marker(partition: PartitionId, writer: ProducerIdentity, now_ms: int, *, commit: bool) -> Append:
    marker = memoryview(build_marker(writer.producer_id, writer.epoch, commit=commit, timestamp=now_ms))
    return Append(partition, marker, parse_header(marker))


def _puts(transaction: Transaction, commit: bool) -> list[Put]:
    if transaction.work is None:
        return []
    offsets = transaction.work.offsets
    puts = list(offsets.values()) if commit else []
    return puts + [transaction.offset_put(key, None) for key in offsets]
