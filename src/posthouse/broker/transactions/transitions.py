"""State transitions of a transactional id: exclusive, shielded from cancellation, visible once durable."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from posthouse.broker.transactions.ending import Ending, commit_ends
from posthouse.broker.transactions.producer_ids import ProducerIds
from posthouse.broker.transactions.request_order import RequestOrder
from posthouse.broker.transactions.transaction import MAX_EPOCH, ProducerIdentity, Transaction
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.clock import Clock
from posthouse.model.errors import ConcurrentTransaction, NotLeader, Unavailable, UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.storage import operations as storage_operations
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.outcomes import OperationRefused

T = TypeVar("T")

_ATTEMPTS = 5
"""Topics begin to feed queues, and namespaces move, but not that often."""


class Referred(Protocol):
    """References to records that become visible with their transaction, or what leads to them."""

    @property
    def left(self) -> Collection[PartitionId]:
        """Partitions whose references are left to the brokers that serve the queues."""

    def operations(self) -> Sequence[storage_operations.Refer | Put]: ...

    def durable(self) -> None: ...


Refer = Callable[[Sequence[tuple[PartitionId, int]]], Awaitable[Referred | None]]
"""Finds the records that queues refer to among those about to be committed, by partition and producer id."""


def _committed(endings: Sequence[Ending]) -> list[tuple[PartitionId, int]]:
    return [
        (partition, ending.transaction.writer.producer_id)
        for ending in endings
        if ending.commit and ending.transaction.work is not None
        for partition in ending.transaction.work.partitions
    ]


class Transitions:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: TransactionalIds,
        producer_ids: ProducerIds,
        *,
        apply_offsets: Callable[[Sequence[Put]], None],
        refer: Refer,
    ) -> None:
        """`apply_offsets` makes committed offsets visible."""
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._producer_ids = producer_ids
        self._apply_offsets = apply_offsets
        self._refer = refer
        self._under_way: set[asyncio.Task[Any]] = set()
        self.committed = 0
        """Transactions that had begun, since the broker started."""
        self.aborted = 0

    async def conclude(self, endings: Sequence[Ending], others: Sequence[Put] = ()) -> None:
        """Replace every transaction by its `after`, with `others`, in one durable step."""
        now = self._clock.now_ms()
        for ending in endings:
            after = ending.after
            after.work = None
            after.is_busy = False
            after.changed_ms = now
            if after.producer != ending.transaction.producer:
                after.has_aborted = False
                after.may_be_shared = self._storage.is_shared
                after.control = RequestOrder()
        await self._commit(endings, others)
        for ending in endings:
            work = ending.transaction.work
            self._ids.keep(ending.after)
            if work is not None:
                self.committed += ending.commit
                self.aborted += not ending.commit
                if ending.commit:
                    self._apply_offsets(list(work.offsets.values()))
                self._ids.remove_pending(work.offsets)

    async def _commit(self, endings: Sequence[Ending], others: Sequence[Put]) -> None:
        """Which broker refers to the records may change between the look and the commit: then storage
        refuses the commit. A topic may be deleted in between, too."""
        for _ in range(_ATTEMPTS):
            try:
                referred = await self._refer(_committed(endings))
                if referred is None:
                    await commit_ends(self._storage, endings, others)
                else:
                    await commit_ends(self._storage, endings, others, referred.operations(), referred.left)
            except (NotLeader, OperationRefused, UnknownPartition) as error:
                if isinstance(error, OperationRefused) and not isinstance(error.reason, NotLeader):
                    raise
                await self._storage.refresh_definitions()
                continue
            if referred is not None:
                referred.durable()
            return
        raise Unavailable("queues that get records of the transaction move to another broker; try again")

    async def successor(self, producer: ProducerIdentity) -> ProducerIdentity:
        if producer.epoch < MAX_EPOCH:
            return producer.next_epoch
        return ProducerIdentity(await self._producer_ids.take(), 0)

    @contextmanager
    def exclusively(self, *transactions: Transaction) -> Iterator[None]:
        for transaction in transactions:
            if transaction.is_busy:
                raise ConcurrentTransaction(f"a transaction of {transaction.id!r} is ending; try again")
        for transaction in transactions:
            transaction.is_busy = True
        try:
            yield
        finally:
            for transaction in transactions:
                transaction.is_busy = False

    async def undisturbed(self, step: Coroutine[Any, Any, T]) -> T:
        """Shield the step: a client that disconnects must not interrupt it."""
        return await undisturbed(self.start(step))

    def start(self, step: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(step)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def cancel(self) -> None:
        """Cancel running transitions, as a crash would."""
        for task in self._under_way:
            task.cancel()

    async def settled(self) -> None:
        """Wait for the transitions that run now."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
