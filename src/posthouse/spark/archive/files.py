"""The data files: Parquet with zstd, one day of one topic each, in the order of partition and offset.

Columns are those of the source, without the topic, which is in the path: partition, offset, timestamp,
timestampType, key, value, headers and, if known, producerId, producerEpoch and sequence. Row groups have
statistics of partition, offset and timestamp, by which readers skip most of a file.

Names are unique: a retried task writes other files, and those of the first attempt are leftovers.
"""

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.manifest import ArchivedFile, FilePart
from posthouse.spark.archive.root import Root

TARGET_BYTES = 128 * 1024 * 1024
_GROUP_ROWS = 128 * 1024
_GROUP_BYTES = 32 * 1024 * 1024
_OPEN_DAYS = 8
"""Maximum number of open files; each has up to a row group in memory. Records of more days at once get more
files."""

_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_INDEXED = ["partition", "offset", "timestamp"]

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(
                pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
            ),
        ),
        pa.field("producerId", pa.int64()),
        pa.field("producerEpoch", pa.int16()),
        pa.field("sequence", pa.int32()),
    ]
)


def day_name(day: int) -> str:
    """The date of a day counted from 1970; beyond the calendar, its last or first day."""
    ordinal = min(max(_EPOCH + day, date.min.toordinal()), date.max.toordinal())
    return date.fromordinal(ordinal).isoformat()


class DayFiles:
    """Writes records of one topic to a file per day, in the order of partition and offset."""

    def __init__(
        self, root: Root, topic: str, topic_id: str, run: str, *, target_bytes: int = TARGET_BYTES
    ) -> None:
        self._root = root
        self._topic = topic
        self._topic_id = topic_id
        self._run = run
        self._target = target_bytes
        self._open: dict[int, _DayFile] = {}
        self._done: list[ArchivedFile] = []

    def write(self, partition: int, batch: pa.RecordBatch) -> None:
        """`batch` may lack nullable columns of SCHEMA; its partition column is ignored."""
        for day, part in _by_day(batch):
            file = self._open.pop(day, None) or self._new(day)
            self._open[day] = file
            file.write(partition, part)
            if file.bytes >= self._target:
                self._finish(day)

    def close(self) -> list[ArchivedFile]:
        """Close the files; returns the durable files."""
        for day in list(self._open):
            self._finish(day)
        return self._done

    def abandon(self) -> None:
        """Discard open files after an error."""
        for file in self._open.values():
            file.abandon()

    def _new(self, day: int) -> "_DayFile":
        if len(self._open) == _OPEN_DAYS:
            self._finish(next(iter(self._open)))
        name = f"{self._topic_id[:8]}-{self._run}-{uuid.uuid4().hex[:16]}.parquet"
        path = f"topic={self._topic}/day={day_name(day)}/{name}"
        return _DayFile(self._root, path, self._topic_id)

    def _finish(self, day: int) -> None:
        self._done.append(self._open.pop(day).finish())


def _by_day(batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    if not batch.num_rows:
        return []
    times = batch.column("timestamp").cast(pa.int64())
    found = pc.min_max(times)
    first, last = found["min"].as_py() // _DAY_US, found["max"].as_py() // _DAY_US
    if first == last:
        return [(first, batch)]
    days = pc.floor_temporal(times.cast(pa.timestamp("us")), unit="day").cast(pa.int64())
    return [(day // _DAY_US, batch.filter(pc.equal(days, day))) for day in sorted(days.unique().to_pylist())]


class _DayFile:
    def __init__(self, root: Root, path: str, topic_id: str) -> None:
        self._path = path
        self._topic_id = topic_id
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._parts: dict[int, FilePart] = {}
        self._times: list[int] = []
        self._stack = ExitStack()
        self._stream = self._stack.enter_context(root.create(path))
        self._writer = pq.ParquetWriter(
            self._stream,
            SCHEMA,
            compression="zstd",
            # Values hardly repeat, so a dictionary for them would only cost time.
            use_dictionary=["key", "partition", "timestampType", "producerId", "producerEpoch"],
            write_statistics=_INDEXED,
        )

    @property
    def bytes(self) -> int:
        return int(self._stream.tell())

    def write(self, partition: int, batch: pa.RecordBatch) -> None:
        offsets, times = batch.column("offset"), batch.column("timestamp").cast(pa.int64())
        first, end = offsets[0].as_py(), offsets[len(offsets) - 1].as_py() + 1
        known = self._parts.get(partition, FilePart(partition, first, end, 0))
        self._parts[partition] = FilePart(partition, known.first, end, known.rows + batch.num_rows)
        extent = pc.min_max(times)
        extremes = [*self._times, extent["min"].as_py(), extent["max"].as_py()]
        self._times = [min(extremes), max(extremes)]
        self._waiting.append(_stored(batch, partition))
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> ArchivedFile:
        self._flush()
        self._writer.close()
        size = self.bytes
        self._stack.close()
        parts = tuple(self._parts.values())
        return ArchivedFile(
            path=self._path,
            topic_id=self._topic_id,
            rows=sum(part.rows for part in parts),
            bytes=size,
            min_timestamp=self._times[0] // 1000,
            max_timestamp=self._times[1] // 1000,
            parts=parts,
        )

    def abandon(self) -> None:
        try:
            # Otherwise the writer would write a footer when it is collected.
            self._writer.close()
        finally:
            # An incomplete file must not appear: this error makes `create` clean up.
            self._stack.__exit__(ArchiveError, ArchiveError("abandoned"), None)

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, SCHEMA)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0


def _stored(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    given: Mapping[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
    count = batch.num_rows
    columns = []
    for field in SCHEMA:
        if field.name == "partition":
            columns.append(pa.repeat(pa.scalar(partition, pa.int32()), count))
        elif field.name in given:
            column = given[field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
