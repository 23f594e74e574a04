"""Decodes batches to Arrow record batches for Spark, without an object per row.

The kernel collects the columns that differ between records; values of a whole batch are repeated here. The
buffers become Arrow arrays without a copy.
"""

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from posthouse.records.arrow_layout import BinaryColumn, DecodedColumns, HeaderColumn
from posthouse.records.batch import NO_SEQUENCE, BatchHeader, Readable
from posthouse.records.columns import KERNEL, ColumnBuffers, Kernel, Wanted

DEFAULT_MAX_ROWS = 10_000
DEFAULT_MAX_BYTES = 4 << 20

_INT16, _INT32, _INT64 = Struct("=h"), Struct("=i"), Struct("=q")
_MAX_SEQUENCE = 0x7FFFFFFF

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "sequence": pa.int32(),
}
_WANTED = {
    "key": Wanted.KEY,
    "value": Wanted.VALUE,
    "offset": Wanted.OFFSET,
    "timestamp": Wanted.TIMESTAMP,
    "headers": Wanted.HEADERS,
    "sequence": Wanted.OFFSET,
}


class _Run(NamedTuple):
    """The rows of one batch."""

    rows: int
    header: BatchHeader


class BatchDecoder:
    """Record batches of one partition, with the columns of `schema`, in its order."""

    def __init__(
        self,
        schema: pa.Schema,
        topic: str,
        partition: int,
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        kernel: Kernel = KERNEL,
    ) -> None:
        if not len(schema):
            raise ValueError("a schema needs a column; name one of " + ", ".join(COLUMN_TYPES))
        wanted = Wanted(0)
        for field in schema:
            if field.type != COLUMN_TYPES.get(field.name):
                raise ValueError(
                    f"records have no column {field.name!r} of type {field.type}; they have "
                    + ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())
                )
            wanted |= _WANTED.get(field.name, Wanted(0))
        self._schema = schema
        self._topic = topic.encode()
        self._topic_column = pa.array([], pa.string())
        self._partition = partition
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._buffers = ColumnBuffers(wanted, kernel)
        self._runs: list[_Run] = []
        self._taken_rows = 0

    @property
    def rows(self) -> int:
        """Number of rows so far, including those not yet returned."""
        return self._taken_rows + self._buffers.rows

    def add(
        self, batch: Readable, header: BatchHeader, first: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Add one whole batch; yields record batches when they are full."""
        buffers = self._buffers
        if buffers.rows + header.count > self._max_rows or buffers.bytes + header.length > self._max_bytes:
            yield from self.finish()
        before = buffers.rows
        buffers.append(batch, header, first, end)
        if buffers.rows > before:
            self._runs.append(_Run(buffers.rows - before, header))
        if buffers.rows >= self._max_rows or buffers.bytes >= self._max_bytes:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The remaining rows."""
        size = self._buffers.bytes
        columns = self._buffers.take()
        if not columns.rows:
            return
        runs, self._runs = self._runs, []
        self._taken_rows += columns.rows
        arrays = [self._array(field.name, columns, runs) for field in self._schema]
        whole = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        # One batch of the log may become many record batches; slices of about equal size share its memory.
        pieces = max(-(-columns.rows // self._max_rows), -(-size // self._max_bytes))
        step = -(-columns.rows // max(1, min(pieces, columns.rows)))
        for start in range(0, columns.rows, step):
            yield whole.slice(start, step)

    def _array(self, name: str, columns: DecodedColumns, runs: list[_Run]) -> pa.Array:
        rows = columns.rows
        match name:
            case "key" | "value":
                return _binary(pa.binary(), rows, columns.key if name == "key" else columns.value)
            case "topic":
                return self._topics(rows)
            case "partition":
                return _numbers(pa.int32(), rows, _INT32.pack(self._partition) * rows)
            case "offset":
                return _numbers(pa.int64(), rows, columns.offsets)
            case "timestamp":
                return _numbers(COLUMN_TYPES["timestamp"], rows, columns.timestamps)
            case "timestampType":
                return _repeated(pa.int32(), _INT32, runs, [run.header.is_log_append_time for run in runs])
            case "producerId":
                return _repeated(pa.int64(), _INT64, runs, [run.header.producer_id for run in runs])
            case "producerEpoch":
                return _repeated(pa.int16(), _INT16, runs, [run.header.producer_epoch for run in runs])
            case "sequence":
                return _sequences(_numbers(pa.int64(), rows, columns.offsets), runs)
            case _:
                return _headers(rows, columns.headers)

    def _topics(self, rows: int) -> pa.Array:
        # Built once and sliced: repeating a string takes Arrow longer than decoding the records.
        if len(self._topic_column) < rows:
            size = len(self._topic)
            offsets = array("i", range(0, rows * size + 1, size)) if size else bytes(4 * rows + 4)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._topic * rows)]
            self._topic_column = pa.Array.from_buffers(pa.string(), rows, buffers)
        return self._topic_column.slice(0, rows)


def _numbers(kind: pa.DataType, rows: int, data: Readable | None) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary(kind: pa.DataType, rows: int, column: BinaryColumn | None) -> pa.Array:
    assert column is not None, "the kernel builds what the schema names"
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers)


def _headers(rows: int, column: HeaderColumn | None) -> pa.Array:
    """Null for a record without headers, as in Spark's Kafka source."""
    assert column is not None, "the kernel builds what the schema names"
    count = len(column.keys.offsets) // 4 - 1
    pairs = [_binary(pa.string(), count, column.keys), _binary(pa.binary(), count, column.values)]
    elements = pa.Array.from_buffers(_HEADER, count, [None], children=pairs)
    offsets = pa.py_buffer(column.offsets)
    lists = pa.Array.from_buffers(COLUMN_TYPES["headers"], rows, [None, offsets], children=[elements])
    validity = pc.not_equal(pc.list_value_length(lists), 0).buffers()[1]
    return pa.Array.from_buffers(COLUMN_TYPES["headers"], rows, [validity, offsets], children=[elements])


def _repeated(kind: pa.DataType, form: Struct, runs: list[_Run], values: list[int]) -> pa.Array:
    """The value of every batch, once for each of its rows."""
    data = b"".join([form.pack(value) * run.rows for run, value in zip(runs, values, strict=True)])
    return _numbers(kind, len(data) // form.size, data)


def _sequences(offsets: pa.Array, runs: list[_Run]) -> pa.Array:
    """A record's sequence has the same distance to the batch's as its offset; sequences wrap from 2³¹-1 to
    0."""
    parts, start = [], 0
    for rows, header in runs:
        if header.base_sequence == NO_SEQUENCE:
            part = _numbers(pa.int32(), rows, _INT32.pack(NO_SEQUENCE) * rows)
        else:
            deltas = pc.subtract(offsets.slice(start, rows), header.base_offset)
            sequences = pc.bit_wise_and(pc.add(deltas, header.base_sequence), _MAX_SEQUENCE)
            part = sequences.cast(pa.int32())
        parts.append(part)
        start += rows
    return pa.concat_arrays(parts)
