"""Two-phase commits: a transaction that was prepared stays open until its owner decides.

The owner commits this transaction together with another one, in a database. It prepares this one, stores its
identity with what it commits in the database, and then ends it here. If it crashes in between, its successor
prepares the transaction again, compares the identity with the one that is stored, and so knows the decision.

Preparing a transaction gives its producer a new epoch. That fences the producer that wrote it, and nothing is
added any more. Its records keep the identity that they were written with.
"""

from dataclasses import dataclass, replace

from posthouse.broker.transactions.admissions import removals
from posthouse.broker.transactions.ending import Ending
from posthouse.broker.transactions.request_order import RequestOrder
from posthouse.broker.transactions.transaction import (
    NO_PRODUCER,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.broker.transactions.transitions import Transitions
from posthouse.model.errors import ConcurrentTransaction, InvalidTransaction, ProducerFenced
from posthouse.storage.contract import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedProducer:
    """`producer` may commit or abort the transaction that `prepared` has written, and else begin another."""

    producer: ProducerIdentity
    prepared: ProducerIdentity | None = None


class TwoPhaseCommits:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, ids: TransactionalIds, transitions: Transitions) -> None:
        self._storage = storage
        self._ids = ids
        self._transitions = transitions

    async def prepare(
        self, transaction: Transaction, expected: ProducerIdentity | None, owner: str, *, two_phase: bool
    ) -> ResumedProducer:
        """Durable on return. Once prepared by a two-phase producer, it never times out.

        With `expected` its own producer prepares it, otherwise a successor of that.
        """
        work = transaction.work
        assert work is not None
        with self._transitions.exclusively(transaction):
            if expected is not None and expected != transaction.producer:
                if work.prepared is not None and expected == transaction.previous:
                    return ResumedProducer(producer=transaction.producer, prepared=work.prepared)  # repeated
                raise ProducerFenced(
                    f"transactional id {transaction.id!r} belongs to another producer by now"
                )
            if work.is_doubtful:
                raise ConcurrentTransaction(
                    f"the transaction of {transaction.id!r} is being aborted; try again"
                )
            prepared = replace(work, prepared=transaction.writer, admitted=set(), producing={}, committing={})
            after = replace(
                transaction,
                producer=await self._transitions.successor(transaction.producer),
                previous=NO_PRODUCER if expected is None else expected,
                is_two_phase=two_phase or transaction.is_two_phase,
                owner=owner,
                work=prepared,
                is_busy=False,
                control=RequestOrder(),
                has_aborted=False,
                may_be_shared=False,
            )
            # Without their admissions, batches that are still on their way to other brokers are refused.
            await self._storage.commit([after.put(), *removals(transaction, work.admitted)])
            prepared.stored = set(work.partitions)
            self._ids.keep(after)
        return ResumedProducer(producer=after.producer, prepared=prepared.prepared)

    async def decide(
        self, transaction: Transaction, expected: ProducerIdentity | None, *, commit: bool
    ) -> None:
        """End it on an operator's word. Its producer gets the same answer if it decides the same, and an
        error otherwise."""
        check_open(transaction, expected)
        if not transaction.is_two_phase and transaction.state is not TransactionState.PREPARED:
            raise InvalidTransaction(
                f"the transaction of {transaction.id!r} is no two-phase commit: only its producer knows "
                "whether it is complete; abort it, or wait"
            )
        with self._transitions.exclusively(transaction):
            after = replace(
                transaction,
                producer=await self._transitions.successor(transaction.producer),
                previous=transaction.producer,
                outcome=TransactionState.COMMITTED if commit else TransactionState.ABORTED,
            )
            await self._transitions.conclude([Ending(transaction=transaction, after=after, commit=commit)])


def check_open(transaction: Transaction, expected: ProducerIdentity | None) -> None:
    """`expected` is the transaction that an operator means, by the identity of its records."""
    if transaction.work is None:
        raise InvalidTransaction(f"{transaction.id!r} has no open transaction")
    writer = transaction.writer
    if expected is not None and expected != writer:
        raise InvalidTransaction(
            f"the open transaction of {transaction.id!r} is another one, of producer "
            f"{writer.producer_id}/{writer.epoch}"
        )


def check_not_prepared(transaction: Transaction) -> None:
    if transaction.state is TransactionState.PREPARED:
        raise InvalidTransaction(
            f"the transaction of {transaction.id!r} is prepared: commit or abort it before anything else"
        )
