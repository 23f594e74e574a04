"""Transactions: several appends and offset commits that become visible together, or never.

Every answer to a client is durable first. Ending a transaction is one commit with its markers, its offsets
and its new state, so recovery has nothing to finish. Owned by the event loop.

In a cluster a broker coordinates the transactional ids whose scopes it holds, and refuses all others.

The danger is a late request: a request of an earlier transaction must not affect a later one. A producer that
takes a new epoch with every transaction is safe. For all others `request_order` detects late requests; their
sender gets a fencing error, and the transaction stays unchanged. If it cannot be decided which of two senders
is the right one, the producer itself is fenced.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.transactions import lost_state
from posthouse.broker.transactions.admission import TransactionAdmission
from posthouse.broker.transactions.admissions import admissions, load_admissions, missing, owners
from posthouse.broker.transactions.commit_sets import CommitSets
from posthouse.broker.transactions.ending import Ending, abort_hanging
from posthouse.broker.transactions.producer_ids import ProducerIds
from posthouse.broker.transactions.producer_starts import NewProducer, ProducerStarts
from posthouse.broker.transactions.request_order import Arrival, RequestOrder, RequestOrigin
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import (
    MAX_EPOCH,
    NO_PRODUCER,
    ProducerIdentity,
    Transaction,
    TransactionState,
    Work,
    decode_transaction,
)
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.broker.transactions.transitions import Refer, Transitions
from posthouse.broker.transactions.two_phase import (
    ResumedProducer,
    TwoPhaseCommits,
    check_not_prepared,
    check_open,
)
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    ConcurrentTransaction,
    InvalidTransaction,
    NotCoordinator,
    ProducerFenced,
    Unavailable,
    UnknownProducerId,
)
from posthouse.model.excerpts import excerpt
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import Scope, scope_of_transactional_id
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.producers import NOT_OPEN
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

IDLE_MS = 7 * 24 * 3600 * 1000
"""Retention of unused transactional ids."""

_ENDED = (TransactionState.COMMITTED, TransactionState.ABORTED)


class Transactions:
    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: TransactionalIds,
        held: HeldScopes,
        *,
        max_timeout_ms: int,
        allow_two_phase: bool,
        apply_offsets: Callable[[Sequence[Put]], None],
        refer: Refer,
    ) -> None:
        """`apply_offsets` makes committed offsets visible."""
        self._storage = storage
        self._clock = clock
        self.producer_ids = ProducerIds(storage)
        self.ids = ids
        self._held = held
        self.transitions = Transitions(
            storage, clock, ids, self.producer_ids, apply_offsets=apply_offsets, refer=refer
        )
        self.commit_sets = CommitSets(self.ids, self.transitions, held)
        self._two_phase = TwoPhaseCommits(storage, ids, self.transitions)
        self._starts = ProducerStarts(
            storage,
            clock,
            ids,
            held,
            self.transitions,
            self.producer_ids,
            self._two_phase,
            max_timeout_ms=max_timeout_ms,
            allow_two_phase=allow_two_phase,
        )

    def serves(self, id: str) -> bool:
        """Whether this broker coordinates the transactional id."""
        return self._held.serves(id)

    def scope_of(self, id: str) -> Scope | None:
        """None in a broker that is alone: commits name no scopes there."""
        return None if self._held.has_all else scope_of_transactional_id(id)

    @property
    def is_loading(self) -> bool:
        """Whether transactional ids of this broker may be missing at the moment."""
        return self._held.is_loading

    def get(self, id: str) -> Transaction:
        """Raises NotCoordinator, and UnknownTransaction."""
        self._held.check(id)
        return self.ids.get(id)

    def coordinated(self) -> list[Transaction]:
        """All that this broker coordinates."""
        return [each for each in self.ids.all() if self.serves(each.id)]

    async def load_all(self) -> None:
        """In a broker that is alone."""
        take = self._storage.take_state
        self.producer_ids.load()
        self.ids.load(take(Space.TRANSACTIONS), take(Space.TRANSACTION_OFFSETS))
        self.commit_sets.load(take(Space.FENCES))
        load_admissions(take(Space.ADMISSIONS), self.ids)
        if self._storage.has_lost_commits:
            await self.producer_ids.skip_lost()
            await lost_state.restore(self._storage, self.ids, self._clock.now_ms())

    async def load(self, scope: Scope, shared: SharedState) -> None:
        """The transactional ids of a scope that this broker has taken. Raises Unavailable."""
        shard = scope.transaction_shard
        assert shard is not None
        transactions = await shared.of_shard(Space.TRANSACTIONS, shard)
        offsets = await shared.of_shard(Space.TRANSACTION_OFFSETS, shard)
        sequences = await shared.of_shard(Space.FENCES, shard)
        # A partition of a transaction is older than that: if it is unknown now, it was deleted, and else it
        # gets its marker.
        await self._storage.refresh_definitions()
        try:
            opened = self.ids.load(transactions, offsets)
            self.commit_sets.load(sequences)
            if opened:
                admitted = await shared.of_owners(Space.ADMISSIONS, list(owners(opened)))
                load_admissions(admitted, self.ids)
        except BaseException:
            self._forget(scope)
            raise

    async def unload(self, scope: Scope) -> None:
        """After the scope was released: wait for what uses it, and forget it. Raises Unavailable."""
        try:
            await self.transitions.settled()
            await self._storage.barrier()
        finally:
            self._forget(scope)

    def _forget(self, scope: Scope) -> None:
        self.ids.unload(scope)
        self.commit_sets.unload(scope)

    async def close(self) -> None:
        """Wait for running transitions."""
        await self.transitions.settled()

    async def init_producer(
        self,
        id: str | None,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        owner: str = "",
        *,
        two_phase: bool = False,
    ) -> ProducerIdentity:
        """A producer's first step. Fences earlier producers with the same transactional id, and aborts what
        they have open.

        With `expected` an active producer asks for its next epoch. Without a transactional id the producer
        belongs to its `owner`.
        """
        if id is None:
            return ProducerIdentity(await self.producer_ids.take(owner), 0)
        new = NewProducer(
            id=id, timeout_ms=timeout_ms, expected=expected, owner=owner, is_two_phase=two_phase
        )
        self._starts.check(new)
        return await self.transitions.undisturbed(self._starts.init(new))

    async def resume_producer(self, new: NewProducer) -> ResumedProducer:
        """The same, but an open transaction is prepared and not aborted: see `two_phase`."""
        self._starts.check(new)
        return await self.transitions.undisturbed(self._starts.resume(new))

    async def add_partitions(
        self, request: TransactionalRequest, partitions: Collection[PartitionId]
    ) -> None:
        """Durable on return: recovery knows that these partitions need a marker."""
        transaction = self._checked(request)
        self._check_control(transaction, request.origin)
        work = self._begun(transaction)
        work.partitions.update(partitions)
        await self._remember(transaction, work)

    async def add_group(self, request: TransactionalRequest, group: str) -> None:
        """Announce offsets of a group; begins a transaction if none is open."""
        transaction = self._checked(request)
        self._check_control(transaction, request.origin)
        work = self._begun(transaction)
        if work.groups is not None:
            work.groups.add(group)
        await self._remember(transaction, work)

    def check_parts(self, request: TransactionalRequest, partitions: Collection[PartitionId]) -> None:
        """Raises unless all of the partitions are part of the open transaction."""
        work = self._checked(request).work
        if work is None or not work.partitions.issuperset(partitions):
            raise InvalidTransaction(f"a partition is not part of the transaction of {request.id!r}")

    async def _remember(self, transaction: Transaction, work: Work) -> None:
        if not work.is_stored:
            partitions = set(work.partitions)
            new = missing(transaction, partitions)
            work.admitted |= new  # at once: the commit that ends the transaction may follow this one
            await self._storage.commit([transaction.put(), *admissions(transaction, new)])
            work.stored = partitions | (work.stored or set())

    def admit(self, request: TransactionalRequest) -> TransactionAdmission:
        """Admit a produce request: its batches become part of the transaction."""
        transaction = self._checked(request)
        if request.epoch_per_transaction:
            return TransactionAdmission(request, transaction, self._begun(transaction))
        if transaction.work is None:
            raise InvalidTransaction(f"{request.id!r} has no open transaction")
        if transaction.has_aborted:
            order = transaction.work.producing.setdefault(request.origin.way, RequestOrder())
            self._follow(transaction, order, request.origin)
        return TransactionAdmission(request, transaction, transaction.work)

    async def add_offsets(self, request: TransactionalRequest, group: str, offsets: Sequence[Put]) -> None:
        """Store offsets until the transaction ends. `offsets` are the puts that would commit them."""
        transaction = self._checked(request)
        if request.epoch_per_transaction:
            work = self._begun(transaction)
        else:
            if transaction.work is None:
                raise InvalidTransaction(f"{request.id!r} has no open transaction")
            work = transaction.work
            if work.groups is not None and group not in work.groups:
                raise InvalidTransaction(f"group {group!r} is not part of the transaction of {request.id!r}")
            order = work.committing.setdefault(group, RequestOrder())
            if order.is_of(request.origin.way):
                self._follow(transaction, order, request.origin)
            else:  # another broker coordinates the group since then, and the one before relays no more
                order.follow(request.origin)
        partitions = set(work.partitions)
        operations: list[Operation] = [] if work.is_stored else [transaction.put()]
        self.ids.add_pending(put.key for put in offsets if put.key not in work.offsets)
        for put in offsets:
            work.offsets[put.key] = put
            operations.append(transaction.offset_put(put.key, put.value))
        if operations:
            await self._storage.commit(operations)
            work.stored = partitions | (work.stored or set())

    async def end(self, request: TransactionalRequest, *, commit: bool) -> ProducerIdentity:
        """Commit or abort. Returns the producer for the next transaction; a repeated call gets the same
        answer."""
        return await self.transitions.undisturbed(self._end(request, commit))

    async def _end(self, request: TransactionalRequest, commit: bool) -> ProducerIdentity:
        transaction = self._of(request)
        outcome = TransactionState.COMMITTED if commit else TransactionState.ABORTED
        if request.epoch_per_transaction:
            if transaction.previous == request.producer and transaction.state in _ENDED:
                if transaction.state is not outcome:
                    raise InvalidTransaction(f"the transaction of {request.id!r} ended with the other result")
                return transaction.producer
            # The client cannot know whether a failed batch has begun a transaction.
            nothing_to_end = transaction.work is None and commit
        else:
            nothing_to_end = transaction.work is None
        self._check_producer(transaction, request)
        if nothing_to_end:
            if request.epoch_per_transaction or transaction.outcome is not outcome:
                raise InvalidTransaction(f"{request.id!r} has no open transaction")
            return transaction.producer
        if not request.epoch_per_transaction:
            self._check_control(transaction, request.origin)
        with self.transitions.exclusively(transaction):
            after = replace(transaction, outcome=outcome)
            if request.epoch_per_transaction:
                after.producer = await self.transitions.successor(transaction.producer)
                after.previous = transaction.producer
            elif not commit:
                after.has_aborted = True
                after.may_be_shared = False
            await self._conclude(transaction, after, commit=commit)
        return after.producer

    async def abort(self, producer: ProducerIdentity, partition: PartitionId) -> None:
        """Abort what this producer has open in the partition, as an administrator asked. Raises
        NotCoordinator, in a cluster, if another broker coordinates its transaction."""
        for transaction in self.ids.open():
            writer = transaction.writer
            if writer.producer_id == producer.producer_id and self.serves(transaction.id):
                if writer != producer:
                    raise ProducerFenced(f"the producer has epoch {writer.epoch}")
                await self._abort_open(transaction, producer)
                return
        owner = await self.owner_of(producer)
        if owner is not None and not self.serves(owner):
            raise NotCoordinator(f"another broker coordinates {owner!r}, which the producer belongs to")
        await self._storage.refresh([partition], with_producers=True)
        known = self._storage.producers(partition).get(producer.producer_id)
        if known is not None and known.open_since != NOT_OPEN:
            scope = None if owner is None else scope_of_transactional_id(owner)
            await abort_hanging(self._storage, partition, producer, self._clock.now_ms(), scope)

    async def owner_of(self, producer: ProducerIdentity) -> str | None:
        """The transactional id of the producer, whichever broker coordinates it. Raises Unavailable."""
        shared = self._storage.shared_state
        if shared is None:
            known = self.ids.all()
        else:
            stored = await shared.of_space(Space.TRANSACTIONS)
            known = [decode_transaction(key, value) for key, value in stored.items()]
        wanted = producer.producer_id
        return next(
            (each.id for each in known if wanted in (each.producer.producer_id, each.writer.producer_id)),
            None,
        )

    async def abort_open(self, id: str, expected: ProducerIdentity | None = None) -> None:
        """Abort the open transaction of an id, on an administrator's word, and fence its producer. Raises
        NotCoordinator."""
        transaction = self.get(id)
        check_open(transaction, expected)
        await self._abort_open(transaction, expected)

    async def _abort_open(self, transaction: Transaction, expected: ProducerIdentity | None) -> None:
        """The owner of a two-phase commit hears that it was decided; any other producer is fenced."""
        if transaction.is_two_phase:
            await self._decide(transaction, expected, commit=False)
        else:
            await self.transitions.undisturbed(self._fence(transaction))

    async def commit_open(self, id: str, expected: ProducerIdentity | None = None) -> None:
        """Commit the transaction of a two-phase commit, on an administrator's word. Raises NotCoordinator."""
        await self._decide(self.get(id), expected, commit=True)

    async def _decide(
        self, transaction: Transaction, expected: ProducerIdentity | None, *, commit: bool
    ) -> None:
        step = self._two_phase.decide(transaction, expected, commit=commit)
        await self.transitions.undisturbed(step)

    async def abort_expired(self) -> None:
        """Abort transactions that exceeded their timeout. The producer cannot write any more before it has
        aborted or asked for its next epoch; it then gets the epoch that it was given here."""
        for transaction in self.ids.open():
            work = transaction.work
            if work is None or transaction.is_busy or not self._is_current(transaction):
                continue
            if transaction.is_two_phase:
                continue  # only its owner decides
            if self._seconds_open(work) * 1000 >= transaction.timeout_ms:
                log.warning(
                    "transactional id %r: aborting its transaction, open longer than its timeout of %d ms",
                    excerpt(transaction.id),
                    transaction.timeout_ms,
                )
                await self._give_up(transaction, resumable=True)
            elif work.is_doubtful:
                await self._give_up(transaction)

    def _seconds_open(self, work: Work) -> float:
        """By the monotonic clock; before a restart only the wall clock knows."""
        now = self._clock.monotonic()
        if work.since is None:
            work.since = now - max(self._clock.now_ms() - work.started_ms, 0) / 1000
        return now - work.since

    async def expire(self) -> None:
        """Remove transactional ids that have been unused for long."""
        before = self._clock.now_ms() - IDLE_MS
        for each in self.ids.all():
            if each.work is None and each.changed_ms < before and not each.is_busy and self._is_current(each):
                await self._storage.commit([each.removal()])
                if self.ids.find(each.id) is each and each.work is None:
                    self.ids.forget(each)

    def _is_current(self, transaction: Transaction) -> bool:
        """Not replaced, and not with another broker, since a loop that waits in between has begun."""
        return self.ids.find(transaction.id) is transaction and self.serves(transaction.id)

    async def _give_up(self, transaction: Transaction, *, resumable: bool = False) -> None:
        """Fence it on the broker's own account. `abort_expired` retries after a failure."""
        try:
            await self.transitions.undisturbed(self._fence(transaction, resumable=resumable))
        except Unavailable as error:
            log.warning(
                "transactional id %r: its transaction cannot be aborted yet, retrying: %s",
                excerpt(transaction.id),
                error,
            )

    async def _fence(self, transaction: Transaction, *, resumable: bool = False) -> None:
        """Abort the transaction and invalidate its producer's epoch. A `resumable` producer may use its old
        epoch to ask for the new one."""
        with self.transitions.exclusively(transaction):
            producer = transaction.producer.next_epoch
            after = replace(
                transaction,
                producer=producer,
                previous=transaction.producer if resumable and producer.epoch <= MAX_EPOCH else NO_PRODUCER,
                outcome=TransactionState.ABORTED,
            )
            await self._conclude(transaction, after, commit=False)

    async def _conclude(self, transaction: Transaction, after: Transaction, *, commit: bool) -> None:
        await self.transitions.conclude([Ending(transaction=transaction, after=after, commit=commit)])

    def _begun(self, transaction: Transaction) -> Work:
        if transaction.work is None:
            transaction.changed_ms = self._clock.now_ms()
            transaction.work = Work(transaction.changed_ms, since=self._clock.monotonic())
            self.ids.keep(transaction)
        return transaction.work

    def _checked(self, request: TransactionalRequest) -> Transaction:
        """To add something to its transaction."""
        transaction = self._of(request)
        self._check_producer(transaction, request)
        check_not_prepared(transaction)
        return transaction

    def _of(self, request: TransactionalRequest) -> Transaction:
        self._held.check(request.id)
        transaction = self.ids.find(request.id)
        if transaction is None:
            raise UnknownProducerId(f"transactional id {request.id!r} has no producer")
        if transaction.is_busy:
            raise ConcurrentTransaction(f"a transaction of {request.id!r} is ending; try again")
        return transaction

    def _check_producer(self, transaction: Transaction, request: TransactionalRequest) -> None:
        if request.producer.producer_id != transaction.producer.producer_id:
            raise UnknownProducerId(f"producer {request.producer.producer_id} is not that of {request.id!r}")
        if request.producer.epoch != transaction.producer.epoch or request.producer.epoch > MAX_EPOCH:
            raise ProducerFenced(
                f"{request.id!r} has epoch {transaction.producer.epoch}, not {request.producer.epoch}"
            )
        if transaction.work is not None and transaction.work.is_doubtful:
            raise ProducerFenced(f"the transaction of {request.id!r} is being aborted")

    def _check_control(self, transaction: Transaction, origin: RequestOrigin) -> None:
        """Begin and end use one connection. Another connection may take over when that one is closed."""
        order = transaction.control
        self._follow(transaction, order, origin, alone=transaction.work is not None and order.is_open)

    def _follow(
        self, transaction: Transaction, order: RequestOrder, origin: RequestOrigin, *, alone: bool = True
    ) -> None:
        """Raises if the request may be late. `alone`: a second connection may not follow the first."""
        arrival = order.judge(origin)
        is_unclear = arrival is Arrival.SUCCEEDS and alone and transaction.work is not None
        if is_unclear and not transaction.is_two_phase:
            assert transaction.work is not None
            log.warning(
                "transactional id %r: aborting its transaction, because two connections use the id; give "
                "each producer an id of its own",
                excerpt(transaction.id),
            )
            transaction.work.is_doubtful = True
            self.transitions.start(self._give_up(transaction))
        elif arrival is not Arrival.LATE and not is_unclear:
            order.follow(origin)
            return
        raise ProducerFenced(f"a request of {transaction.id!r} came too late, or from another client")
