"""Repair of transactions after commits were lost to damage of the journal.

Batches of lost commits may have been recovered from the segments. The state that was put with them is lost:
the partitions of a transaction, its producer's epoch. Without a repair a partition could have a transaction
that never ends, and readers of committed records would wait behind it. Or an epoch could be assigned again,
and its batches would be taken for duplicates of others.

- A partition has an open transaction with the present epoch of a transactional id: it becomes part of the
  id's transaction again, and the producer may continue.
- A partition has a later epoch than the transactional id, or the id is unknown: the open transaction is
  aborted, and the producer is fenced.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.broker.transactions.ending import end_marker
from posthouse.broker.transactions.transaction import (
    MAX_EPOCH,
    NO_PRODUCER,
    ProducerIdentity,
    Transaction,
    Work,
)
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.model.ids import PartitionId
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append
from posthouse.storage.partition_view import PartitionView
from posthouse.storage.producers import NOT_OPEN

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The state of a producer in one partition."""

    partition: PartitionId
    name: str
    epoch: int
    open_since: int

    @property
    def is_open(self) -> bool:
        return self.open_since != NOT_OPEN


async def restore(storage: Storage, ids: TransactionalIds, now_ms: int) -> None:
    """Restore the coordinator's state from the log, in one durable step."""
    owners = {producer.producer_id: each for each in ids.all() for producer in (each.writer, each.producer)}
    markers: list[Append] = []
    changed: list[Transaction] = []
    for producer_id, seen in _seen(storage).items():
        owner = owners.get(producer_id)
        latest = max(each.epoch for each in seen)
        known = None if owner is None else _identity(owner, producer_id)
        unknown = [each for each in seen if each.is_open and not _has(owner, known, each)]
        if owner is not None and known is not None and latest <= known.epoch:
            writer = owner.writer if owner.writer.producer_id == producer_id else known
            _adopt(owner, [each for each in unknown if each.epoch == writer.epoch], now_ms)
            doomed = [each for each in unknown if each.epoch < writer.epoch]
        else:
            doomed = unknown
            writer = ProducerIdentity(producer_id, min(latest + 1, MAX_EPOCH + 1))
            if owner is not None and owner.producer.producer_id == producer_id:
                owner.producer, owner.previous = writer, NO_PRODUCER
        markers += _aborts(doomed, writer, now_ms)
        if owner is not None:
            changed.append(owner)
    if markers or changed:
        await storage.commit([*markers, *(each.put() for each in changed)])
    for owner in changed:
        if owner.work is not None:
            owner.work.stored = set(owner.work.partitions)
        ids.keep(owner)


def _seen(view: PartitionView) -> dict[int, list[_Seen]]:
    """Producer states by producer id."""
    found: dict[int, list[_Seen]] = {}
    for topic in view.topics.values():
        for partition in topic.partition_ids():
            for producer_id, each in view.producers(partition).items():
                seen = _Seen(
                    partition=partition,
                    name=f"{topic.name}-{partition.index}",
                    epoch=each.epoch,
                    open_since=each.open_since,
                )
                found.setdefault(producer_id, []).append(seen)
    return found


def _identity(owner: Transaction, producer_id: int) -> ProducerIdentity:
    """The latest of the producer id: a prepared transaction may have an older id than its producer."""
    return owner.producer if owner.producer.producer_id == producer_id else owner.writer


def _has(owner: Transaction | None, known: ProducerIdentity | None, seen: _Seen) -> bool:
    """Whether the transaction will end in this partition by itself."""
    if owner is None or known is None or owner.work is None or seen.epoch > known.epoch:
        return False
    return seen.partition in owner.work.partitions


def _adopt(owner: Transaction, found: Sequence[_Seen], now_ms: int) -> None:
    if found and owner.work is None:
        owner.work = Work(now_ms, groups=None)
    for each in found:
        assert owner.work is not None
        owner.work.partitions.add(each.partition)
        log.warning(
            "%s: lost commits held the state of transactional id %r, open from offset %d on; its "
            "transaction stays open",
            each.name,
            owner.id,
            each.open_since,
        )


def _aborts(found: Sequence[_Seen], writer: ProducerIdentity, now_ms: int) -> list[Append]:
    for each in found:
        log.error(
            "%s: lost commits held the state of a transaction of producer %d; its records from offset %d on "
            "are aborted",
            each.name,
            writer.producer_id,
            each.open_since,
        )
    return [end_marker(each.partition, writer, now_ms, commit=False) for each in found]
