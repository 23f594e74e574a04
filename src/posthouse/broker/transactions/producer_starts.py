"""The first step of a producer with a transactional id: it gets an identity that fences all earlier ones.

What an earlier producer has open is aborted, or prepared for a two-phase commit: see `two_phase`.
"""

from dataclasses import dataclass, replace

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.transactions.ending import Ending
from posthouse.broker.transactions.producer_ids import ProducerIds
from posthouse.broker.transactions.transaction import (
    NO_PRODUCER,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.broker.transactions.transitions import Transitions
from posthouse.broker.transactions.two_phase import ResumedProducer, TwoPhaseCommits
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidTimeout, ProducerFenced, TwoPhaseDisabled
from posthouse.storage.contract import Storage

_RESUMABLE = (TransactionState.EMPTY, TransactionState.COMMITTED, TransactionState.ABORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProducer:
    id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    """An active producer asks for its next epoch."""
    owner: str = ""
    """The user."""
    is_two_phase: bool = False
    """Its transactions have no timeout."""

    @property
    def two_phase_owner(self) -> str:
        return self.owner if self.is_two_phase else ""


class ProducerStarts:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: TransactionalIds,
        held: HeldScopes,
        transitions: Transitions,
        producer_ids: ProducerIds,
        two_phase: TwoPhaseCommits,
        *,
        max_timeout_ms: int,
        allow_two_phase: bool,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._held = held
        self._transitions = transitions
        self._producer_ids = producer_ids
        self._two_phase = two_phase
        self._max_timeout_ms = max_timeout_ms
        self._allow_two_phase = allow_two_phase

    def check(self, new: NewProducer) -> None:
        """Raises TwoPhaseDisabled, InvalidTimeout and NotCoordinator."""
        if new.is_two_phase and not self._allow_two_phase:
            raise TwoPhaseDisabled(
                "two-phase commits are not allowed; start the broker with transaction_two_phase_commit_enable"
            )
        if not new.is_two_phase and not 0 < new.timeout_ms <= self._max_timeout_ms:
            raise InvalidTimeout(
                f"a transaction may take 1 to {self._max_timeout_ms} ms, not {new.timeout_ms}"
            )
        self._held.check(new.id)

    async def resume(self, new: NewProducer) -> ResumedProducer:
        transaction = self._ids.find(new.id)
        if transaction is not None and transaction.work is not None:
            return await self._two_phase.prepare(
                transaction, new.expected, new.owner, two_phase=new.is_two_phase
            )
        return ResumedProducer(producer=await self.init(new))

    async def init(self, new: NewProducer) -> ProducerIdentity:
        transaction = self._ids.find(new.id)
        if transaction is None:
            return await self._first(new)
        with self._transitions.exclusively(transaction):
            if new.expected is not None and new.expected != transaction.producer:
                if new.expected == transaction.previous and transaction.state in _RESUMABLE:
                    # The answer was lost, or its transaction timed out: it has a new epoch already.
                    return transaction.producer
                raise ProducerFenced(f"transactional id {new.id!r} belongs to another producer by now")
            after = replace(
                transaction,
                producer=await self._transitions.successor(transaction.producer),
                previous=NO_PRODUCER if new.expected is None else new.expected,
                timeout_ms=new.timeout_ms,
                outcome=TransactionState.EMPTY,
                is_two_phase=new.is_two_phase,
                owner=new.two_phase_owner,
            )
            await self._transitions.conclude([Ending(transaction=transaction, after=after, commit=False)])
        return after.producer

    async def _first(self, new: NewProducer) -> ProducerIdentity:
        transaction = Transaction(
            id=new.id,
            producer=NO_PRODUCER,
            timeout_ms=new.timeout_ms,
            changed_ms=self._clock.now_ms(),
            may_be_shared=self._storage.is_shared,
            is_two_phase=new.is_two_phase,
            owner=new.two_phase_owner,
        )
        # Added at once, so that a second caller does not create another.
        self._ids.keep(transaction)
        try:
            with self._transitions.exclusively(transaction):
                transaction.producer = ProducerIdentity(await self._producer_ids.take(), 0)
                await self._storage.commit([transaction.put()])
                self._ids.keep(transaction)
        except BaseException:
            self._ids.forget(transaction)
            raise
        return transaction.producer
