"""The executor's part of the sink: writes the rows of one Spark partition to the log.

Exactly once: the batches are part of a transaction that only the driver's commit ends. A task of an epoch
that was committed already stops before it writes anything, and the commit fences late tasks.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from posthouse.client.backoff import Backoff
from posthouse.client.batch_sender import BatchSender
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import BrokerUnreachable, ClientError, ProducerFenced, TopicNotReady
from posthouse.client.together import CommitMember, fence_sequence
from posthouse.client.transactional_producer import TransactionalProducer
from posthouse.records.column_batches import encode_batches
from posthouse.spark.errors import StaleEpoch
from posthouse.spark.rows import place_rows, record_columns
from posthouse.spark.sink_options import SinkOptions

log = logging.getLogger(__name__)

_FAREWELL_SECONDS = 5.0
"""How long a failed task tries to abort its transaction; otherwise the next commit does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommit(WriterCommitMessage):
    """A task's message to the driver."""

    name: str | None = None
    """The name for the driver's commit; None: there is nothing to commit."""
    member: CommitMember | None = None
    """The transaction with the task's rows, if it had any."""
    rows: int = 0
    was_committed: bool = False
    """The epoch was committed before, and nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWriter:
    """The identity of a writer: one attempt of one task of one epoch."""

    name: str
    sequence: int | None
    partition: int
    attempt: int

    @property
    def transactional_id(self) -> str:
        """Unique per attempt: two attempts at once, as with speculative tasks, do not fence each other."""
        return f"{self.name}/{self.partition}.{self.attempt}"


def check_epoch(name: str, epoch: int, committed: int | None) -> None:
    """Raises if later epochs were committed: Spark repeats only the last one."""
    if committed is not None and committed > epoch:
        raise StaleEpoch(
            f"epoch {epoch} of {name!r} is to be written, but {committed} was committed already: its "
            "checkpoint was deleted, is an old copy, or is used by two queries; choose another 'appId' to "
            "start again"
        )


def write_plainly(options: SinkOptions, partition: int, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """At least once: rows are visible immediately, and duplicated if the task is retried."""
    with _cluster(options) as cluster, closing(_sender(cluster, options)) as sender:
        placing = _Placing(cluster, options, partition)
        rows = 0
        for batch in batches:
            columns = record_columns(batch, now_ms=_now_ms())
            for (topic, index), chosen in placing.place(batch).items():
                for encoded in encode_batches(
                    columns, chosen, codec=options.codec, max_bytes=options.batch_bytes
                ):
                    sender.send(placing.topic(topic), index, encoded.batch)
            rows += batch.num_rows
        sender.flush()
    return TaskCommit(rows=rows)


def write_in_transaction(
    options: SinkOptions, writer: TaskWriter, batches: Iterable[pa.RecordBatch]
) -> TaskCommit:
    with _cluster(options) as cluster:
        if _was_committed(cluster, options, writer):
            return TaskCommit(name=writer.name, was_committed=True)
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return TaskCommit(name=writer.name)
        producer = TransactionalProducer(
            cluster,
            writer.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            patience=options.patience,
        )
        with producer, _given_up_on_failure(producer, writer.transactional_id, options):
            member = producer.begin()
            # Checked again: a commit fences producers that began before it, but not those that begin after
            # it.
            if _was_committed(cluster, options, writer):
                producer.abort()
                return TaskCommit(name=writer.name, was_committed=True)
            rows = 0
            placing = _Placing(cluster, options, writer.partition)
            for batch in _chained(first, filled):
                _write(options, placing, producer, batch)
                rows += batch.num_rows
            producer.flush()
    return TaskCommit(name=writer.name, member=member, rows=rows)


def _write(
    options: SinkOptions, placing: "_Placing", producer: TransactionalProducer, batch: pa.RecordBatch
) -> None:
    columns = record_columns(batch, now_ms=_now_ms())
    for (topic, partition), rows in placing.place(batch).items():
        info = placing.topic(topic)
        for encoded in encode_batches(
            columns,
            rows,
            codec=options.codec,
            max_bytes=options.batch_bytes,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.next_sequence(info, partition),
            transactional=True,
        ):
            producer.send(info, partition, encoded.batch, encoded.count)


def _was_committed(cluster: Cluster, options: SinkOptions, writer: TaskWriter) -> bool:
    if writer.sequence is None:
        return False
    committed = fence_sequence(cluster, writer.name, patience=options.patience)
    check_epoch(writer.name, writer.sequence, committed)
    return committed == writer.sequence


@contextmanager
def _given_up_on_failure(
    producer: TransactionalProducer, transactional_id: str, options: SinkOptions
) -> Iterator[None]:
    """Abort on failure, so that readers need not wait for the transaction timeout."""
    try:
        yield
    except BaseException:
        try:
            producer.abort(patience=min(options.patience, _FAREWELL_SECONDS))
        except ProducerFenced:
            log.info("transactional id %r: the transaction is already aborted", transactional_id)
        except ClientError as error:
            log.warning(
                "transactional id %r: the task failed, its transaction stays open until the next commit: %s",
                transactional_id,
                error,
            )
        raise


class _Placing:
    """Placement of rows: topics and their partitions, and the partition for rows without a key."""

    def __init__(self, cluster: Cluster, options: SinkOptions, first: int) -> None:
        self._cluster = cluster
        self._options = options
        self._topics: dict[str, TopicInfo] = {}
        # Tasks begin at different partitions, and move on with every Arrow batch: few, large batches in the
        # log, and over time an even distribution.
        self._turn = first

    def place(self, batch: pa.RecordBatch) -> "dict[tuple[str, int], memoryview | bytes | bytearray]":
        self._turn += 1
        return place_rows(
            batch,
            self._options.topic,
            lambda name: self.topic(name).partitions,
            lambda name: self._turn % self.topic(name).partitions,
        )

    def topic(self, name: str) -> TopicInfo:
        """The topic; the broker creates it if it is missing and its settings allow that."""
        info = self._topics.get(name)
        if info is None:
            info = self._topics[name] = self._find(name)
        return info

    def _find(self, name: str) -> TopicInfo:
        backoff = Backoff(self._options.patience)
        while True:
            try:
                return self._cluster.topic(name, create=True)
            except (BrokerUnreachable, TopicNotReady) as error:
                self._cluster.close()
                backoff.pause(error)


@contextmanager
def _cluster(options: SinkOptions) -> Iterator[Cluster]:
    with closing(options.cluster()) as cluster:
        yield cluster


def _sender(cluster: Cluster, options: SinkOptions) -> BatchSender:
    return BatchSender(cluster, patience=options.patience)


def _chained(first: pa.RecordBatch, others: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
