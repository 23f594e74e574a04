"""The one commit that ends transactions: their markers, their offsets and their new states."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from posthouse.broker.transactions.admissions import removals
from posthouse.broker.transactions.transaction import ProducerIdentity, Transaction
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import Scope, scope_of_transactional_id
from posthouse.records.batch import parse_header
from posthouse.records.control import build_marker
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation, Put, Refer
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.partition_view import PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`after` replaces `transaction`."""

    transaction: Transaction
    after: Transaction
    commit: bool


async def commit_ends(
    storage: Storage,
    endings: Sequence[Ending],
    others: Sequence[Put] = (),
    references: Sequence[Refer | Put] = (),
    left: Collection[PartitionId] = (),
) -> None:
    """Commit all endings with `others` and `references` in one durable step. References to the records of the
    partitions in `left` follow in another one."""
    markers: list[Append] = []
    puts = list(others)
    for ending in endings:
        markers += _markers(storage, ending, left)
        puts += _puts(ending)
        puts.append(ending.after.put())
    operations: list[Operation] = [*markers, *references, *puts]
    await storage.commit(operations)


async def abort_hanging(
    storage: Storage, partition: PartitionId, producer: ProducerIdentity, now_ms: int, scope: Scope | None
) -> None:
    """Write the marker that ends a hanging transaction: open in one partition, but unknown to the
    coordinator. `scope` is that of its transactional id, None if it has none."""
    marker = end_marker(partition, producer, now_ms, commit=False, scope=scope)
    try:
        await storage.commit([marker])
    except OperationRefused as refusal:
        raise refusal.reason from None


def _markers(view: PartitionView, ending: Ending, left: Collection[PartitionId]) -> list[Append]:
    """Markers carry the new epoch if there is one, and so fence the old one in every partition."""
    transaction, after = ending.transaction, ending.after
    if transaction.work is None:
        return []
    writer = after.producer
    if writer.producer_id != transaction.writer.producer_id:
        writer = transaction.writer.next_epoch
    return [
        # A partition with a later epoch refuses the marker: it has no record of this transaction.
        end_marker(
            partition,
            writer,
            after.changed_ms,
            commit=ending.commit,
            required=False,
            scope=scope_of_transactional_id(transaction.id),
            has_referral=partition in left,
        )
        for partition in transaction.work.partitions
        if partition.topic in view.topics
    ]


def end_marker(
    partition: PartitionId,
    writer: ProducerIdentity,
    now_ms: int,
    *,
    commit: bool,
    required: bool = True,
    scope: Scope | None = None,
    has_referral: bool = False,
) -> Append:
    """`scope` is that of the transactional id, None in the name of the coordinator."""
    marker = memoryview(build_marker(writer.producer_id, writer.epoch, commit=commit, timestamp=now_ms))
    return Append(
        partition,
        marker,
        parse_header(marker),
        required=required,
        scope=scope,
        has_referral=has_referral,
    )


def _puts(ending: Ending) -> list[Put]:
    transaction = ending.transaction
    if transaction.work is None:
        return []
    offsets = transaction.work.offsets
    puts = list(offsets.values()) if ending.commit else []
    puts += [transaction.offset_put(key, None) for key in offsets]
    return puts + removals(transaction, transaction.work.admitted)
