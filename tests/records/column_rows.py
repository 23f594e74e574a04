"""Rows of records as columns and back, and the kernels that turn one into the other."""

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from posthouse.model.topic_config import TimestampType
from posthouse.records import batch as b
from posthouse.records import columns_pure
from posthouse.records.arrow_layout import BinaryColumn, DecodedColumns
from posthouse.records.builder import BatchBuilder
from posthouse.records.columns import ColumnBuffers, Kernel, Wanted
from posthouse.records.compression import Codec
from posthouse.records.record import Record

try:
    from posthouse.records import _columns

    KERNELS: list[Kernel] = [columns_pure, _columns]
except ImportError:
    KERNELS = [columns_pure]

NOW = 1_700_000_000_000
MAX_INT64 = 2**63 - 1
EVERYTHING = Wanted.KEY | Wanted.VALUE | Wanted.OFFSET | Wanted.TIMESTAMP | Wanted.HEADERS

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__.rpartition(".")[2])
payloads = st.none() | st.binary(max_size=200) | st.binary(max_size=20).map(lambda piece: piece * 50)
timestamps = st.integers(NOW - 5000, NOW + 5000) | st.integers(-1, MAX_INT64)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=80)), max_size=4).map(tuple)
record_lists = st.lists(st.tuples(payloads, payloads, headers, timestamps), min_size=1, max_size=30)
wanted_columns = st.integers(0, 31).map(Wanted)


def strings(column: BinaryColumn, rows: int) -> list[bytes | None]:
    """What Arrow reads from the buffers."""
    offsets = memoryview(column.offsets).cast("B").cast("i")
    assert len(offsets) == rows + 1
    assert offsets[0] == 0
    assert offsets[rows] == len(column.data)
    validity = column.validity
    if validity is not None:
        assert len(validity) == (rows + 7) // 8
        assert rows % 8 == 0 or validity[-1] >> rows % 8 == 0
    return [
        None
        if validity is not None and not validity[row >> 3] >> (row & 7) & 1
        else bytes(column.data[offsets[row] : offsets[row + 1]])
        for row in range(rows)
    ]


def numbers(column: b.Readable | None) -> list[int]:
    assert column is not None
    return list(memoryview(column).cast("B").cast("q"))


def records_in(taken: DecodedColumns) -> list[Record]:
    """The rows as records again; timestamps stay in µs."""
    assert taken.key is not None
    assert taken.value is not None
    assert taken.headers is not None
    lists = memoryview(taken.headers.offsets).cast("B").cast("i")
    assert len(lists) == taken.rows + 1
    names = strings(taken.headers.keys, lists[taken.rows])
    pairs = [
        (name.decode(), value)
        for name, value in zip(names, strings(taken.headers.values, lists[taken.rows]), strict=True)
        if name is not None
    ]
    assert len(pairs) == len(names)
    rows = zip(
        numbers(taken.offsets),
        numbers(taken.timestamps),
        strings(taken.key, taken.rows),
        strings(taken.value, taken.rows),
        strict=True,
    )
    return [Record(*row, tuple(pairs[lists[at] : lists[at + 1]])) for at, row in enumerate(rows)]


def in_microseconds(records: Sequence[Record]) -> list[Record]:
    return [record._replace(timestamp=min(MAX_INT64, record.timestamp * 1000)) for record in records]


def built(
    rows: Sequence[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]],
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    base_offset: int = 0,
) -> bytes:
    builder = BatchBuilder(codec, timestamp_type)
    for key, value, pairs, timestamp in rows:
        builder.add(key, value, pairs, timestamp)
    return bytes(builder.build(base_offset))


def decoded(kernel: Kernel, batch: b.Readable, wanted: Wanted = EVERYTHING) -> DecodedColumns:
    buffers = ColumnBuffers(wanted, kernel)
    buffers.append(batch, b.parse_header(batch))
    return buffers.take()


def binary_column(rows: Sequence[bytes | None], *, start: int = 0, wide: bool = False) -> BinaryColumn:
    """A column whose first `start` rows are padding, as in a slice of a longer one."""
    padded = [b"padding"] * start + list(rows)
    offsets = array("q" if wide else "i", [0])
    validity = bytearray((len(padded) + 7) // 8)
    for row, value in enumerate(padded):
        offsets.append(offsets[-1] + len(value or b""))
        validity[row >> 3] |= (value is not None) << (row & 7)
    data = b"".join(value or b"" for value in padded)
    return BinaryColumn(offsets.tobytes(), data, bytes(validity) if None in rows else None, start, wide)
