"""The only write path of the log: batches are validated, routed to queues, and committed.

Readers are not notified here: storage notifies its subscribers of every batch that becomes readable.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.queues.referrals import Referrals, check_referable
from posthouse.broker.traffic import Traffic
from posthouse.broker.transactions.admission import TransactionAdmission
from posthouse.broker.transactions.admissions import admission_value
from posthouse.broker.transactions.coordinator import Transactions
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.broker.undisturbed import undisturbed
from posthouse.broker.unpacking import Unpacking
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidRecord, InvalidTransaction, PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import Scope
from posthouse.model.topic_config import TimestampType
from posthouse.model.topics import Topic
from posthouse.records.batch import check_timestamps, stamp_log_append_time
from posthouse.records.stored_form import opened
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation
from posthouse.storage.outcomes import Outcome


class Appending:
    """One call of `LogWriter.append`: its batches, the operations committed with them, and their results.

    Not a future of its own, because one is created per produce request and each future costs an iteration of
    the event loop: a caller awaits `future` and passes its result to `results`.
    """

    __slots__ = ("_appends", "_named", "_verdicts", "admission", "future", "referred", "together")

    def __init__(self, together: Sequence[Operation] = ()) -> None:
        self._appends: list[Append] = []
        self._verdicts: list[int | PosthouseError] = []
        """For each batch, in order: its append time if it was accepted, otherwise the error."""
        self._named: set[PartitionId] | None = None
        self.together = together
        """Operations that become durable with the batches."""
        self.admission: TransactionAdmission | None = None
        """The transaction of the batches; its changed state is stored with them."""
        self.referred: Callable[[], None] | None = None
        """Called when the references among `together` are durable."""
        self.future: asyncio.Future[list[Outcome]] | None = None
        """Done when everything that was accepted is durable; None if no batch was accepted."""

    def accept(self, append: Append, append_time: int) -> None:
        self._appends.append(append)
        self._verdicts.append(append_time)

    def check_only_one(self, partition: PartitionId) -> None:
        """Raises if the partition was named before: storage takes one batch per partition in a commit."""
        if self._named is None:
            self._named = set()
        if partition in self._named:
            raise InvalidRecord(f"{partition} is named twice in one request")
        self._named.add(partition)

    def refuse(self, error: PosthouseError) -> None:
        self._verdicts.append(error)

    def refuse_all(self, error: PosthouseError) -> None:
        """Storage refused the commit: refuse every accepted batch."""
        self._verdicts = [error if isinstance(each, int) else each for each in self._verdicts]

    def commit(self, storage: Storage) -> None:
        """Commit the accepted batches. Raises what storage raises."""
        operations: list[Operation] = [*self._appends, *self.together]
        if not operations:
            return
        if self.admission is not None:
            operations += self.admission.puts()
        self.future = storage.commit(operations)
        if self.admission is not None:
            if self.future.done():
                self._admitted(self.future)
            else:
                self.future.add_done_callback(self._admitted)
        if self.referred is not None:
            # Always by a callback, as in waves, so that queues see commits in order even if the future is
            # already done.
            self.future.add_done_callback(self._referred)

    def _admitted(self, done: asyncio.Future[list[Outcome]]) -> None:
        if self.admission is not None and _has_succeeded(done):
            self.admission.durable()

    def _referred(self, done: asyncio.Future[list[Outcome]]) -> None:
        if self.referred is not None and _has_succeeded(done):
            self.referred()

    def results(self, outcomes: Sequence[Outcome]) -> list[Appended | PosthouseError]:
        """One entry per batch, in order: its offset, or why it was refused."""
        results: list[Appended | PosthouseError] = []
        following = iter(outcomes)
        for verdict in self._verdicts:
            if isinstance(verdict, int):
                outcome = next(following)
                refusal = outcome.refusal
                results.append(
                    Appended(outcome.base_offset, outcome.log_start, verdict) if refusal is None else refusal
                )
            else:
                results.append(verdict)
        return results

    async def wait(self) -> list[Appended | PosthouseError]:
        """Wait for the results. Raises Unavailable if storage could not write the batches.

        Cancelling the caller does not cancel the commit: queues and transactions need its result.
        """
        outcomes = [] if self.future is None else await undisturbed(self.future)
        if self.referred is not None:
            await asyncio.sleep(0)  # the callback of a future that is already done runs in the next iteration
        return self.results(outcomes)


def _has_succeeded(done: asyncio.Future[list[Outcome]]) -> bool:
    return not done.cancelled() and done.exception() is None


class Referring(Protocol):
    """The part of queues that routes batches of stream producers."""

    @property
    def by_topic(self) -> Collection[str]:
        """Names of the topics whose records are routed to queues."""

    def serves(self, scope: Scope) -> bool:
        """Whether it has those of topics of this scope."""

    def refer(self, appends: Sequence[tuple[Topic, Append]]) -> Referrals | None: ...


class LogWriter:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        transactions: Transactions,
        queues: Referring,
        traffic: Traffic,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._transactions = transactions
        self._queues = queues
        self._traffic = traffic
        self._unpacking = Unpacking()

    def close(self) -> None:
        self._unpacking.close()

    def append(
        self,
        batches: Sequence[Produced],
        writer: TransactionalWriter | None = None,
        *,
        routed: Sequence[Operation] | None = None,
        beside: Sequence[Operation] = (),
    ) -> Appending:
        """Append each batch to its partition; all valid ones become durable together.

        The order of calls is the order of offsets. `writer` is needed for batches of a transaction.

        A caller that has routed the batches to queues itself passes those operations as `routed`; operations
        `beside` the batches are committed with them, and the batches are routed as always. With either, the
        commit is all or nothing, and an invalid batch or a failed commit raises.
        """
        required = routed is not None or bool(beside)
        appending = Appending(beside if routed is None else routed)
        several = len(batches) > 1 and not required
        sources = () if routed is not None else self._queues.by_topic
        referring: list[tuple[Topic, Append]] = []
        accepted: list[tuple[str, Append]] = []
        for produced in batches:
            try:
                append, append_time = self._checked(produced, required)
                if append.header.producer_id >= 0:
                    self._admit(append, writer, appending)
                if several:
                    appending.check_only_one(append.partition)
                if produced.topic.name in sources:
                    check_referable(append.header)
                    referring.append((produced.topic, append))
                elif produced.topic.scope is not None and not self._queues.serves(produced.topic.scope):
                    check_referable(append.header)  # another broker refers to it, or storage refuses it
            except PosthouseError as error:
                if required:
                    raise
                appending.refuse(error)
            else:
                for run in produced.runs:
                    run.append = append
                appending.accept(append, append_time)
                accepted.append((produced.topic.name, append))
        if referring:
            self._refer(referring, appending)
        try:
            appending.commit(self._storage)
        except PosthouseError as error:
            if required:
                raise
            appending.refuse_all(error)
        if appending.future is not None:
            for name, append in accepted:
                if append.base_offset >= 0:  # else it was there already, or is refused
                    self._traffic.write(name, append.header, appending.future)
        return appending

    def append_routed(
        self, batches: Sequence[Produced], routed: Sequence[Operation]
    ) -> asyncio.Future[list[Outcome]]:
        """`append` for callers that need no results per batch; at least one of the arguments is not empty."""
        future = self.append(batches, routed=routed).future
        assert future is not None
        return future

    def must_unpack(self, batches: Sequence[Produced]) -> bool:
        """Whether the batches must be given to `append_unpacked` instead of `append`."""
        return self._unpacking.is_needed(batches)

    async def append_unpacked(
        self, batches: Sequence[Produced], writer: TransactionalWriter | None
    ) -> list[Appended | PosthouseError]:
        """As `append`, for batches that are slow to decode. The order of calls is kept, too."""
        await self._unpacking.open(batches)
        return await self.append(batches, writer).wait()

    async def append_all(
        self, batches: Sequence[Produced], beside: Sequence[Operation]
    ) -> tuple[list[Appended], list[Outcome]]:
        """As `append`, for batches that count together with the operations `beside`, or not at all. Also
        returns the outcomes of those. Raises what is wrong with a batch, OperationRefused and Unavailable."""
        if self.must_unpack(batches):
            await self._unpacking.open(batches)
        appending = self.append(batches, beside=beside)
        assert appending.future is not None
        outcomes = await undisturbed(appending.future)
        if appending.referred is not None:
            await asyncio.sleep(0)  # as in `Appending.wait`
        results = [each for each in appending.results(outcomes) if isinstance(each, Appended)]
        return results, outcomes[len(batches) : len(batches) + len(beside)]

    def _refer(self, appends: Sequence[tuple[Topic, Append]], appending: Appending) -> None:
        """Add references for the queues that the records are routed to, in the same commit."""
        referrals = self._queues.refer(appends)
        if referrals is not None:
            appending.together = [*appending.together, *referrals.operations()]
            appending.referred = referrals.durable

    def _admit(self, append: Append, writer: TransactionalWriter | None, appending: Appending) -> None:
        """Raises if the producer's transaction does not allow the batch. Storage checks the sequence."""
        header = append.header
        if not header.is_transactional:
            if self._transactions.ids.owns(header.producer_id):
                raise InvalidTransaction(f"producer {header.producer_id} writes in transactions only")
            return
        if writer is None:
            raise InvalidTransaction("a transactional batch needs the id of its transaction")
        if not self._transactions.serves(writer.id):
            # Storage decides. All batches or none: otherwise the broker that coordinates the transaction gets
            # the whole request.
            append.admission = admission_value(writer.id, header.producer_epoch)
            append.required = True
            return
        append.scope = self._transactions.scope_of(writer.id)
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        if appending.admission is None:
            appending.admission = self._transactions.admit(writer.request(producer))
        appending.admission.include(producer, append.partition)

    def _checked(self, produced: Produced, required: bool) -> tuple[Append, int]:
        topic = produced.topic
        config = topic.config
        found = produced.opened or opened(produced.batch, config)
        if isinstance(found, PosthouseError):
            raise found
        batch, header = found
        now = self._clock.now_ms()
        append_time = -1
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_log_append_time(batch, now)
            header = header._replace(max_timestamp=now)
            append_time = now
        elif not produced.has_own_times:
            check_timestamps(
                header,
                now_ms=now,
                before_max_ms=config.message_timestamp_before_max_ms,
                after_max_ms=config.message_timestamp_after_max_ms,
            )
        return Append(
            topic.existing_partition(produced.partition), batch, header, required=required
        ), append_time
