"""The writers behind `df.write` and `df.writeStream`: tasks write in transactions, the driver commits them.

The commit is one call, which the broker makes durable in one step together with the epoch number. At no time
is half of an epoch visible, or a visible epoch written again.

Spark pickles these objects to its executors and creates new ones on the driver for every epoch: they hold
only options.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from posthouse.client.together import abort_together, commit_together
from posthouse.spark.errors import SparkError, WrongOption
from posthouse.spark.sink_options import SinkOptions
from posthouse.spark.sink_schema import check_schema
from posthouse.spark.sink_task import TaskCommit, TaskWriter, check_epoch, write_in_transaction, write_plainly

log = logging.getLogger(__name__)

_EPOCH = "streaming.sql.batchId"
_QUERY = "sql.streaming.queryId"

Messages = Sequence[WriterCommitMessage | None]


class BatchSink(DataSourceArrowWriter):
    """All rows of a `df.write` become visible together, or none does."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool = False) -> None:
        if overwrite:
            raise WrongOption(
                "a topic cannot be overwritten; use .mode('append'), or delete the topic before"
            )
        check_schema(schema, topic=options.topic)
        self._options = options
        self._name = options.name or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, self._name, self._options.batch_id, iterator)

    def commit(self, messages: Messages) -> None:
        _commit(self._options, self._options.batch_id, messages)

    def abort(self, messages: Messages) -> None:
        _abort(self._options, self._name, self._options.batch_id)


class StreamSink(DataSourceStreamArrowWriter):
    """All rows of an epoch become visible together, and once."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.batch_id is not None:
            raise WrongOption(
                "the option 'batchId' is for batch writes; a streaming query counts by itself, remove it"
            )
        check_schema(schema, topic=options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.is_exactly_once:
            return _write(self._options, "", None, iterator)
        context = _context()
        query, epoch = context.getLocalProperty(_QUERY), context.getLocalProperty(_EPOCH)
        if query is None or epoch is None:
            raise SparkError("Spark has not set the epoch; write with writeStream")
        return _write(self._options, self._options.name or query, int(epoch), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        _commit(self._options, batchId, messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        # If no task has finished, the query's id is unknown here; its next epoch cleans up then.
        _abort(self._options, self._options.name or _name_of(_written(messages)), batchId)


def _write(
    options: SinkOptions, name: str, sequence: int | None, batches: Iterator[pa.RecordBatch]
) -> TaskCommit:
    context = _context()
    if not options.is_exactly_once:
        return write_plainly(options, context.partitionId(), batches)
    writer = TaskWriter(
        name=name, sequence=sequence, partition=context.partitionId(), attempt=context.attemptNumber()
    )
    written = write_in_transaction(options, writer, batches)
    if written.was_committed:
        log.warning("sink %r: epoch %s is already committed and is not written again", name, sequence)
    return written


def _commit(options: SinkOptions, sequence: int | None, messages: Messages) -> None:
    written = _written(messages)
    name, members = _name_of(written), [each.member for each in written if each.member is not None]
    if name is None or (sequence is None and not members):
        return
    with closing(options.cluster()) as cluster:
        committed = commit_together(cluster, name, sequence, members, patience=options.patience)
    if sequence is not None and not committed.is_new:
        check_epoch(name, sequence, committed.sequence)
        log.warning("sink %r: epoch %s was already committed", name, sequence)


def _abort(options: SinkOptions, name: str | None, sequence: int | None) -> None:
    """Abort all open transactions, not only those of reported tasks: killed tasks hold back readers as
    well."""
    if name is not None and options.is_exactly_once:
        with closing(options.cluster()) as cluster:
            abort_together(cluster, name, sequence, None, patience=options.patience)


def _written(messages: Messages) -> list[TaskCommit]:
    """The reported commits; a failed task has none."""
    return [message for message in messages if isinstance(message, TaskCommit)]


def _name_of(written: Sequence[TaskCommit]) -> str | None:
    return next((each.name for each in written if each.name is not None), None)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SparkError("rows are written by Spark's tasks only; call .save() or .start() instead")
    return context
