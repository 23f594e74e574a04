"""The only write path of the log: batches are validated, routed to queues, and committed.

Readers are not notified here: storage notifies its subscribers of every batch that becomes readable.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from posthouse.broker.appending import Appended, Appending, Produced, opened
from posthouse.broker.queues.referrals import Referrals, check_referable
from posthouse.broker.topics import partition_of
from posthouse.broker.traffic import Traffic
from posthouse.broker.transactions.coordinator import Transactions
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.broker.unpacking import Unpacking
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidTransaction, PosthouseError
from posthouse.model.topic_config import TimestampType
from posthouse.model.topics import Topic
from posthouse.records.batch import check_timestamps, stamp_log_append_time
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation
from posthouse.storage.outcomes import Outcome


class Referring(Protocol):
    """The part of queues that routes batches of stream producers."""

    @property
    def sources(self) -> Collection[str]:
        """Names of the topics whose records are routed to queues."""

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
    ) -> Appending:
        """Append each batch to its partition; all valid ones become durable together.

        The order of calls is the order of offsets. `writer` is needed for batches of a transaction.

        A caller that has routed the batches to queues itself passes those operations as `routed`. Then the
        commit is all or nothing, and an invalid batch or a failed commit raises.
        """
        required = routed is not None
        appending = Appending(() if routed is None else routed)
        several = len(batches) > 1 and not required
        sources = () if required else self._queues.sources
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

    def _refer(self, appends: Sequence[tuple[Topic, Append]], appending: Appending) -> None:
        """Add references for the queues that the records are routed to, in the same commit."""
        referrals = self._queues.refer(appends)
        if referrals is not None:
            appending.together = referrals.operations()
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
        else:
            check_timestamps(
                header,
                now_ms=now,
                before_max_ms=config.message_timestamp_before_max_ms,
                after_max_ms=config.message_timestamp_after_max_ms,
            )
        return Append(partition_of(topic, produced.partition), batch, header, required=required), append_time
