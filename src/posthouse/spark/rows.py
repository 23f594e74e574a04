"""Converts Spark's rows to the encoder's columns, and finds their partitions."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from posthouse.model.errors import InvalidRecord
from posthouse.records.arrow_layout import BinaryColumn, HeaderColumn, RecordColumns
from posthouse.records.batch import Readable
from posthouse.records.column_batches import group_rows, partitions_of


def record_columns(batch: pa.RecordBatch, *, now_ms: int) -> RecordColumns:
    """The columns key, value, headers and timestamp of `batch`; a row without timestamp gets `now_ms`."""
    value = _column(batch, "value")
    if value is None:
        raise InvalidRecord("the rows have no column 'value'; select one of type binary or string")
    key, headers = _column(batch, "key"), _column(batch, "headers")
    return RecordColumns(
        batch.num_rows,
        None if key is None else _binary("key", key),
        _binary("value", value),
        _timestamps(_column(batch, "timestamp"), batch.num_rows, now_ms),
        None if headers is None else _headers(headers),
    )


def place_rows(
    batch: pa.RecordBatch,
    topic: str | None,
    partitions: Callable[[str], int],
    keyless: Callable[[str], int],
) -> dict[tuple[str, int], Readable]:
    """The rows of each topic and partition, in their order.

    The topic is `topic`, or the column topic. The partition is that of the column partition; if that is null
    or missing, the partition of the key; without a key, that of `keyless`. `partitions` returns the number of
    partitions of a topic.
    """
    placed: dict[tuple[str, int], Readable] = {}
    for name, rows in _by_topic(batch, topic):
        count = batch.num_rows if rows is None else len(rows)
        wished, key = _column(batch, "partition", rows), _column(batch, "key", rows)
        of_topic = partitions(name)
        groups = group_rows(_partitions(wished, key, count, name, of_topic, keyless(name)), of_topic)
        for number, group in enumerate(groups):
            if len(group):
                placed[name, number] = group if rows is None else _chosen(rows, group)
    return placed


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> list[tuple[str, pa.Array | None]]:
    if not batch.num_rows:
        return []
    if topic is not None:
        return [(topic, None)]
    topics = _column(batch, "topic")
    if topics is None:
        raise InvalidRecord("the rows name no topic; set the option 'topic' or select a column topic")
    if topics.null_count:
        raise InvalidRecord("a row's topic is null; set the option 'topic' or fill the column")
    encoded = topics.cast(pa.string()).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return [(names[0], None)]
    numbers = encoded.indices.cast(pa.int32())
    groups = group_rows(_data(numbers, 4), len(names))
    return [
        (name, pa.Array.from_buffers(pa.int32(), len(group) // 4, [None, pa.py_buffer(group)]))
        for name, group in zip(names, groups, strict=True)
    ]


def _partitions(numbers: Any, key: Any, rows: int, topic: str, partitions: int, keyless: int) -> Readable:
    if numbers is not None and not pa.types.is_null(numbers.type):
        numbers = numbers.cast(pa.int32())
        least, most = pc.min_max(numbers).as_py().values()
        if least is not None and not 0 <= least <= most < partitions:
            wrong = least if least < 0 else most
            raise InvalidRecord(
                f"a row goes to partition {wrong}, but topic {topic!r} has 0 to {partitions - 1}"
            )
        if not numbers.null_count:
            return _data(numbers, 4)
    if key is None:
        by_key = pa.repeat(pa.scalar(keyless, pa.int32()), rows)
    else:
        data = partitions_of(_binary("key", key), rows, partitions, keyless)
        by_key = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(data)])
    if numbers is None or pa.types.is_null(numbers.type):
        return _data(by_key, 4)
    return _data(pc.coalesce(numbers, by_key), 4)


def _chosen(rows: pa.Array, group: Readable) -> Readable:
    numbers = pa.Array.from_buffers(pa.int32(), len(group) // 4, [None, pa.py_buffer(group)])
    return _data(rows.take(numbers), 4)


def _column(batch: pa.RecordBatch, name: str, rows: pa.Array | None = None) -> Any:
    """The column of that name, optionally only `rows` of it; None if it does not exist."""
    at = batch.schema.get_field_index(name)
    if at < 0:
        return None
    return batch.column(at) if rows is None else batch.column(at).take(rows)


def _binary(name: str, column: Any) -> BinaryColumn:
    kind = column.type
    if pa.types.is_null(kind):
        column = column.cast(pa.binary())
    elif not (_is_narrow(kind) or _is_wide(kind)):
        raise InvalidRecord(f"column {name!r} is {kind}; cast it to binary or string")
    validity, offsets, data = column.buffers()
    return BinaryColumn(
        # An empty column may have no buffers.
        memoryview(offsets) if offsets is not None else bytes(8),
        memoryview(data) if data is not None else b"",
        memoryview(validity) if validity is not None and column.null_count else None,
        column.offset,
        _is_wide(column.type),
    )


def _headers(column: Any) -> HeaderColumn | None:
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not (
        pa.types.is_struct(kind.value_type) and {field.name for field in kind.value_type} >= {"key", "value"}
    ):
        raise InvalidRecord(f"column 'headers' is {kind}; make it array<struct<key: string, value: binary>>")
    pairs = column.values
    if not _is_text(kind.value_type.field("key").type):
        raise InvalidRecord(f"column 'headers' is {kind}; cast the keys to string")
    if pairs.null_count:
        raise InvalidRecord("a header is null; leave it out of the array instead")
    validity, offsets = column.buffers()[:2]
    return HeaderColumn(
        memoryview(offsets) if offsets is not None else bytes(8),
        memoryview(validity) if validity is not None and column.null_count else None,
        column.offset,
        pa.types.is_large_list(kind),
        _binary("headers.key", pairs.field("key")),
        _binary("headers.value", pairs.field("value")),
    )


def _timestamps(column: Any, rows: int, now_ms: int) -> Readable:
    now = pa.scalar(now_ms * 1000, pa.int64())
    if column is None or pa.types.is_null(column.type):
        return _data(pa.repeat(now, rows), 8)
    if not pa.types.is_timestamp(column.type):
        raise InvalidRecord(f"column 'timestamp' is {column.type}; cast it to timestamp")
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return _data(micros.fill_null(now) if micros.null_count else micros, 8)


def _data(numbers: Any, width: int) -> Readable:
    """The numbers of an array without nulls, from its first row on."""
    data = numbers.buffers()[1]
    if data is None:
        return b""
    start = numbers.offset * width
    return memoryview(data)[start : start + len(numbers) * width]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_narrow(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _is_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))
