"""Commit sets: several transactions that end in one durable step, with the sequence number of the job.

A job with many writers gives each a transactional id of its own, `NAME/N` or `NAME/N.ATTEMPT`, and commits
them all with one call. Either all records of the job become visible and its number is stored, or neither. A
repeated commit is answered as committed before, and the records of the repetition are aborted.

A commit also ends all other transactions under the name: lost writers would hold back readers until their
transactions time out, and a writer that resumes later must not begin another.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.transactions.commit_sequences import CommitSequences
from posthouse.broker.transactions.ending import Ending
from posthouse.broker.transactions.transaction import (
    NO_PRODUCER,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.broker.transactions.transitions import Transitions
from posthouse.model.errors import (
    ConcurrentTransaction,
    InvalidTransaction,
    ProducerFenced,
    UnknownProducerId,
)
from posthouse.model.scopes import Scope

MAX_NAME = 249
_NUMBER = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,10})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPart:
    """One of the transactions, with its producer as the client knows it."""

    id: str
    producer: ProducerIdentity


class CommitSets:
    """Owned by the event loop."""

    def __init__(self, ids: TransactionalIds, transitions: Transitions, held: HeldScopes) -> None:
        self._held = held
        self._ids = ids
        self._transitions = transitions
        self._sequences = CommitSequences()

    def load(self, stored: Mapping[bytes, bytes]) -> None:
        """Values of `Space.FENCES`."""
        self._sequences.load(stored)

    def unload(self, scope: Scope) -> None:
        self._sequences.unload(scope)

    def names(self) -> list[str]:
        """Those that something was committed under with a sequence number."""
        return self._sequences.names()

    def sequence(self, name: str) -> int | None:
        """The highest number that was committed under the name. Raises NotCoordinator."""
        self._check_served(name)
        return self._sequences.sequence(name)

    def sequence_if_known(self, name: str) -> int | None:
        """For lists: None also if another broker coordinates the name."""
        return self._sequences.sequence(name)

    async def commit(self, name: str, sequence: int | None, parts: Sequence[CommitPart]) -> bool:
        """Commit all or none; False if this was committed before. Without a sequence only the parts can
        tell. Raises NotCoordinator."""
        _check(name, parts)
        self._check_served(name)
        return await self._transitions.undisturbed(self._commit(name, sequence, parts))

    async def abort(self, name: str, parts: Sequence[CommitPart] | None, sequence: int | None = None) -> None:
        """Abort those of the parts that are still open; None: all that may write under the name.

        Does nothing if `sequence` was committed: open transactions then belong to later work. Raises
        NotCoordinator.
        """
        _check(name, parts or ())
        self._check_served(name)
        await self._transitions.undisturbed(self._abort(name, parts, sequence))

    def _check_served(self, name: str) -> None:
        """All ids of the name are in one scope: see `model.scopes`."""
        self._held.check(f"{name}/")

    async def _commit(self, name: str, sequence: int | None, parts: Sequence[CommitPart]) -> bool:
        with self._sequences.hold(name):
            if sequence is not None and self._sequences.has_passed(name, sequence):
                await self._fence(self._still_open(parts))
                return False
            if sequence is None and parts and all(map(self._was_committed, parts)):
                return False
            committed = [self._checked(part) for part in parts]
            lost = self._others(name, {part.id for part in parts})
            with self._transitions.exclusively(*committed, *lost):
                endings = [await self._committed(each) for each in committed]
                endings += map(_fenced, lost)
                fence = [] if sequence is None else [self._sequences.put(name, sequence)]
                await self._transitions.conclude(endings, fence)
            if sequence is not None:
                self._sequences.passed(name, sequence)
            return True

    async def _abort(self, name: str, parts: Sequence[CommitPart] | None, sequence: int | None) -> None:
        if parts is not None:
            await self._fence(self._still_open(parts))
        elif sequence is None or not self._sequences.has_passed(name, sequence):
            await self._fence(self._others(name, ()))

    async def _fence(self, transactions: Sequence[Transaction]) -> None:
        if transactions:
            with self._transitions.exclusively(*transactions):
                await self._transitions.conclude([_fenced(each) for each in transactions])

    async def _committed(self, transaction: Transaction) -> Ending:
        after = replace(
            transaction,
            producer=await self._transitions.successor(transaction.producer),
            previous=transaction.producer,
            outcome=TransactionState.COMMITTED,
        )
        return Ending(transaction=transaction, after=after, commit=True)

    def _checked(self, part: CommitPart) -> Transaction:
        transaction = self._ids.find(part.id)
        if transaction is None:
            raise UnknownProducerId(f"transactional id {part.id!r} has no producer")
        if transaction.is_busy:
            raise ConcurrentTransaction(f"a transaction of {part.id!r} is ending; try again")
        if transaction.producer != part.producer:
            raise ProducerFenced(
                f"{part.id!r} belongs to another producer, or its transaction took longer than its "
                f"{transaction.timeout_ms} ms"
            )
        if transaction.work is None:
            raise InvalidTransaction(f"{part.id!r} has no open transaction")
        if transaction.work.is_doubtful:
            raise ProducerFenced(f"the transaction of {part.id!r} is being aborted")
        return transaction

    def _was_committed(self, part: CommitPart) -> bool:
        transaction = self._ids.find(part.id)
        return (
            transaction is not None
            and transaction.previous == part.producer
            and transaction.outcome is TransactionState.COMMITTED
        )

    def _still_open(self, parts: Sequence[CommitPart]) -> list[Transaction]:
        found = [(part, self._ids.find(part.id)) for part in parts]
        return [each for part, each in found if each and each.work and each.producer == part.producer]

    def _others(self, name: str, known: Collection[str]) -> list[Transaction]:
        """Other transactions that may write under the name: open, or with an epoch to begin with."""
        return [
            each
            for each in self._ids.under(name)
            if each.id not in known
            and not each.is_busy
            # The transaction of a two-phase commit waits for the decision of its own owner.
            and not (each.work is not None and each.is_two_phase)
            and (each.work is not None or each.outcome is TransactionState.EMPTY)
            and _belongs(each.id, name)
        ]


def _fenced(transaction: Transaction) -> Ending:
    after = replace(
        transaction,
        producer=transaction.producer.next_epoch,
        previous=NO_PRODUCER,
        outcome=TransactionState.ABORTED,
    )
    return Ending(transaction=transaction, after=after, commit=False)


def _belongs(id: str, name: str) -> bool:
    return id.startswith(f"{name}/") and _NUMBER.fullmatch(id, len(name) + 1) is not None


def _check(name: str, parts: Sequence[CommitPart]) -> None:
    if not 0 < len(name) <= MAX_NAME:
        raise InvalidTransaction(f"a name has 1 to {MAX_NAME} characters, not {len(name)}")
    for part in parts:
        if not _belongs(part.id, name):
            raise InvalidTransaction(f"{part.id!r} does not belong to {name!r}, whose ids are {name}/0 …")
    if len({part.id for part in parts}) < len(parts):
        raise InvalidTransaction(f"{name!r} names a transaction twice")
