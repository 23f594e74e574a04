"""Columns equal the records they were made of, in C and in Python, and nonsense is refused by both."""

import contextlib
import struct
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.client.partitioner import partition_of, partitions_of
from posthouse.model.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, PosthouseError
from posthouse.records import batch as b
from posthouse.records import columns, columns_pure
from posthouse.records.arrow_layout import BinaryColumn, DecodedColumns, HeaderColumn, RecordColumns
from posthouse.records.builder import BatchBuilder, TimestampType
from posthouse.records.column_batches import EncodedBatch, encode_batches, group_rows
from posthouse.records.columns import ColumnBuffers, Kernel, Wanted
from posthouse.records.compression import Codec
from posthouse.records.record import Record, body_of, iter_records
from posthouse.records.spans import iter_spans, with_records
from posthouse.records.varint import write_varint

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


@kernels
@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(
        st.tuples(record_lists, st.sampled_from(list(Codec)), st.sampled_from(list(TimestampType))),
        max_size=4,
    ),
    first=st.integers(0, 60),
    length=st.none() | st.integers(0, 60),
)
def test_columns_hold_what_the_records_hold(
    kernel: Kernel,
    batches: list[tuple[list[tuple[bytes | None, bytes | None, tuple[()], int]], Codec, TimestampType]],
    first: int,
    length: int | None,
) -> None:
    buffers = ColumnBuffers(EVERYTHING, kernel)
    expected: list[Record] = []
    end = None if length is None else first + length
    offsets = range(first, 1000 if end is None else end)
    offset = 0
    for rows, codec, timestamp_type in batches:
        batch = built(rows, codec, timestamp_type, offset)
        offset += len(rows)
        buffers.append(memoryview(batch), b.parse_header(batch), first, end)
        expected += [record for record in iter_records(batch) if record.offset in offsets]
    assert buffers.rows == len(expected)
    assert buffers.bytes == sum(
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
        for record in expected
    )
    assert records_in(buffers.take()) == in_microseconds(expected)
    assert buffers.rows == buffers.bytes == 0
    assert records_in(buffers.take()) == []


@kernels
@settings(max_examples=60, deadline=None)
@given(rows=record_lists, wanted=wanted_columns)
def test_only_wanted_columns_are_built(
    kernel: Kernel, rows: list[tuple[bytes | None, bytes | None, tuple[()], int]], wanted: Wanted
) -> None:
    batch = built(rows)
    taken, whole = decoded(kernel, batch, wanted), decoded(kernel, batch)
    assert taken.rows == len(rows)
    assert taken.key == (whole.key if Wanted.KEY in wanted else None)
    assert taken.value == (whole.value if Wanted.VALUE in wanted else None)
    assert taken.offsets == (whole.offsets if Wanted.OFFSET in wanted else None)
    assert taken.timestamps == (whole.timestamps if Wanted.TIMESTAMP in wanted else None)
    assert taken.headers == (whole.headers if Wanted.HEADERS in wanted else None)


@kernels
def test_a_column_without_nulls_has_no_validity(kernel: Kernel) -> None:
    taken = decoded(kernel, built([(b"k", b"v", (), NOW)] * 9))
    assert taken.key is not None
    assert taken.key.validity is None


@kernels
def test_log_append_time_is_every_records_time(kernel: Kernel) -> None:
    batch = bytearray(built([(None, b"v", (), NOW), (None, b"v", (), NOW - 7)]))
    b.stamp_log_append_time(batch, NOW + 99)
    assert numbers(decoded(kernel, batch).timestamps) == [(NOW + 99) * 1000] * 2


@kernels
def test_a_delete_horizon_does_not_move_the_records_times(kernel: Kernel) -> None:
    batch = built([(b"k", None, (), NOW), (b"l", b"v", (), NOW + 5)], Codec.ZSTD)
    header = b.parse_header(batch)
    body = body_of(batch, header)
    kept = with_records(header, body, list(iter_spans(body, header)), delete_horizon=NOW + 86_400_000)
    assert b.parse_header(kept).has_delete_horizon
    assert numbers(decoded(kernel, kept).timestamps) == [NOW * 1000, (NOW + 5) * 1000]


@kernels
def test_offsets_keep_the_gaps_that_compaction_leaves(kernel: Kernel) -> None:
    batch = built([(b"k%d" % n, b"v", (), NOW) for n in range(5)], base_offset=100)
    header = b.parse_header(batch)
    body = body_of(batch, header)
    kept = with_records(header, body, list(iter_spans(body, header))[1::2])
    assert numbers(decoded(kernel, kept).offsets) == [101, 103]


@kernels
def test_a_batch_without_records_adds_no_row(kernel: Kernel) -> None:
    header = b.BatchHeader(0, b.HEADER_SIZE, 0, 2, 0, Codec.ZSTD, 4, NOW, NOW, -1, -1, -1, 0)
    batch = b.HEADER.pack(*header._replace(length=b.HEADER_SIZE - b.LOG_OVERHEAD))
    assert records_in(decoded(kernel, batch)) == []


@kernels
def test_times_beyond_what_microseconds_hold_become_the_last_one(kernel: Kernel) -> None:
    taken = decoded(kernel, built([(None, None, (), MAX_INT64), (None, None, (), MAX_INT64 // 1000)]))
    assert numbers(taken.timestamps) == [MAX_INT64, MAX_INT64 // 1000 * 1000]


@kernels
@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.binary(max_size=12) | st.text(max_size=12).map(str.encode), min_size=1, max_size=6))
def test_header_names_that_are_not_utf8_get_replacement_characters(
    kernel: Kernel, names: list[bytes]
) -> None:
    pairs = b"".join(write_varint(len(name)) + name + write_varint(1) + b"x" for name in names)
    record = b"\0\0\0" + write_varint(-1) * 2 + write_varint(len(names)) + pairs
    batch = bytearray(built([(None, None, (("first", b"1"),), NOW)]))
    odd = bytearray(built([(None, None, (), NOW)], base_offset=1))
    odd[b.HEADER_SIZE :] = write_varint(len(record)) + record
    struct.pack_into(">i", odd, b.LENGTH_AT, len(odd) - b.LOG_OVERHEAD)
    buffers = ColumnBuffers(EVERYTHING, kernel)
    expected = []
    for each in (batch, odd, batch):
        buffers.append(each, b.parse_header(each))
        expected += list(iter_records(each))
    assert records_in(buffers.take()) == in_microseconds(expected)


def body_batch(body: bytes, count: int = 1, last_delta: int = 0, base_timestamp: int = NOW) -> bytes:
    size = b.HEADER_SIZE - b.LOG_OVERHEAD + len(body)
    return (
        b.HEADER.pack(0, size, 0, 2, 0, 0, last_delta, base_timestamp, base_timestamp, -1, -1, -1, count)
        + body
    )


GOOD = bytes.fromhex("0e 00 00 00 01 02 76 00")


@kernels
@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(body_batch(GOOD, count=2, last_delta=1), id="more records claimed than there are"),
        pytest.param(body_batch(GOOD * 2, last_delta=1), id="fewer records claimed than there are"),
        pytest.param(body_batch(GOOD, count=2**31 - 1, last_delta=2**31 - 1), id="a count that lies"),
        pytest.param(body_batch(b"", count=-1), id="a negative count"),
        pytest.param(body_batch(GOOD, last_delta=-1), id="an offset beyond the last"),
        pytest.param(body_batch(GOOD * 2, count=2, last_delta=5), id="the same offset twice"),
        pytest.param(body_batch(GOOD[:-1]), id="cut off"),
        pytest.param(body_batch(b"\x0d" + GOOD[1:]), id="a negative record length"),
        pytest.param(body_batch(b"\x10" + GOOD[1:]), id="a record length beyond the body"),
        pytest.param(body_batch(b"\x0c" + GOOD[1:]), id="a record length too short"),
        pytest.param(body_batch(b"\x0e\0\0\0\x03\x02v\0"), id="a key length of -2"),
        pytest.param(body_batch(b"\x0e\0\0\0\x01\x7ev\0"), id="a value length beyond the record"),
        pytest.param(body_batch(b"\x0e\0\0\0\x01\x03v\0"), id="a value length of -2"),
        pytest.param(body_batch(b"\x16\0\0\0\x01\xfe\xff\xff\xff\x0fv\0"), id="the greatest value length"),
        pytest.param(body_batch(b"\x18\0\0\0\x01\x80\x80\x80\x80\x80\0\0"), id="a varint of six bytes"),
        pytest.param(body_batch(b"\x16\0\0\0\x01\x80\x80\x80\x80\x10\0"), id="a varint of 33 bits"),
        pytest.param(body_batch(b"\x20\0" + b"\xff" * 9 + b"\x02\0\x01\x01\0"), id="a varlong of 65 bits"),
        pytest.param(body_batch(b"\x22\0" + b"\xff" * 10 + b"\0\0\x01\x01\0"), id="a varlong of 11 bytes"),
        pytest.param(body_batch(b"\x0e\0\x02\0\x01\x02v\0", base_timestamp=MAX_INT64), id="a time too late"),
        pytest.param(body_batch(b"\x0e\0\x01\0\x01\x02v\0", base_timestamp=-(2**63)), id="a time too early"),
        pytest.param(body_batch(b"\x0e\0\0\0\x01\x02v\x02"), id="a header that is not there"),
        pytest.param(body_batch(b"\x0e\0\0\0\x01\x02v\x01"), id="a negative header count"),
        pytest.param(body_batch(b"\x12\0\0\0\x01\x02v\x02\x01\x01"), id="a header without a name"),
        pytest.param(body_batch(b"\x16\0\0\0\x01\x02v\xfe\xff\xff\xff"), id="a header count cut off"),
    ],
)
def test_nonsense_is_a_corrupt_batch(kernel: Kernel, batch: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(iter_records(batch))
    buffers = ColumnBuffers(EVERYTHING, kernel)
    good = built([(b"k", b"v", (("h", None),), NOW), (None, None, (), NOW)])
    buffers.append(good, b.parse_header(good))
    with pytest.raises(CorruptBatch):
        buffers.append(batch, b.parse_header(batch))
    # What failed left nothing behind.
    buffers.append(good, b.parse_header(good))
    assert records_in(buffers.take()) == in_microseconds(list(iter_records(good)) * 2)


@kernels
def test_offsets_beyond_64_bits_are_a_corrupt_batch(kernel: Kernel) -> None:
    batch = bytearray(built([(None, None, (), NOW)] * 2))
    b.stamp(batch, MAX_INT64, 0)
    with pytest.raises(CorruptBatch):
        decoded(kernel, batch)


@kernels
@settings(max_examples=400, deadline=None)
@given(
    rows=record_lists,
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.SNAPPY]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    cut=st.none() | st.integers(1, 40),
    wanted=wanted_columns,
)
def test_mutated_batches_give_the_records_or_an_error(
    kernel: Kernel,
    rows: list[tuple[bytes | None, bytes | None, tuple[()], int]],
    codec: Codec,
    changes: list[tuple[float, int]],
    cut: int | None,
    wanted: Wanted,
) -> None:
    batch = bytearray(built(rows, codec))
    for place, byte in changes:
        batch[int(place * len(batch))] = byte
    if cut:
        del batch[-cut:]
        if len(batch) >= b.HEADER_SIZE:
            struct.pack_into(">i", batch, b.LENGTH_AT, len(batch) - b.LOG_OVERHEAD)
    try:
        expected = list(iter_records(batch))
        b.parse_header(batch)
    except PosthouseError as error:
        with pytest.raises(type(error)):
            decoded(kernel, batch, wanted)
        return
    header = b.parse_header(batch)
    if header.base_offset + header.last_offset_delta > MAX_INT64:
        return
    buffers = ColumnBuffers(EVERYTHING, kernel)
    buffers.append(batch, header, -(2**63))
    assert records_in(buffers.take()) == [
        record._replace(timestamp=max(-(2**63), min(MAX_INT64, record.timestamp * 1000)))
        for record in expected
    ]


@kernels
@settings(max_examples=300, deadline=None)
@given(
    body=st.binary(max_size=120),
    count=st.integers(-1, 20) | st.integers(-(2**31), 2**31 - 1),
    last_delta=st.integers(0, 2**31 - 1),
    wanted=wanted_columns,
)
def test_random_bytes_never_do_harm(
    kernel: Kernel, body: bytes, count: int, last_delta: int, wanted: Wanted
) -> None:
    with contextlib.suppress(PosthouseError):
        decoded(kernel, body_batch(body, count, last_delta), wanted)


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


def record_columns(
    rows: Sequence[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...] | None, int]],
    start: int,
    wide: bool,
) -> RecordColumns:
    pairs = [pair for _, _, row, _ in rows for pair in row or ()]
    lists = array("q" if wide else "i", [0] * (start + 1))
    validity = bytearray((start + len(rows) + 7) // 8)
    for at, (_, _, row, _) in enumerate(rows, start):
        lists.append(lists[-1] + len(row or ()))
        validity[at >> 3] |= (row is not None) << (at & 7)
    return RecordColumns(
        len(rows),
        binary_column([key for key, _, _, _ in rows], start=start, wide=wide),
        binary_column([value for _, value, _, _ in rows], start=start, wide=wide),
        array("q", [time for _, _, _, time in rows]).tobytes(),
        HeaderColumn(
            lists.tobytes(),
            bytes(validity),
            start,
            wide,
            binary_column([name.encode() for name, _ in pairs]),
            binary_column([value for _, value in pairs], start=start, wide=wide),
        ),
    )


columned_rows = st.lists(
    st.tuples(payloads, payloads, st.none() | headers, st.integers(-1000, 2**62)), min_size=1, max_size=30
)


@kernels
@settings(max_examples=150, deadline=None)
@given(
    rows=columned_rows,
    start=st.integers(0, 17),
    wide=st.booleans(),
    codec=st.sampled_from(list(Codec)),
    max_bytes=st.integers(0, 3000),
    data=st.data(),
)
def test_what_is_encoded_reads_back(
    kernel: Kernel,
    rows: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...] | None, int]],
    start: int,
    wide: bool,
    codec: Codec,
    max_bytes: int,
    data: st.DataObject,
) -> None:
    chosen = data.draw(st.none() | st.lists(st.integers(0, len(rows) - 1), max_size=40))
    encoded = list(
        encode_batches(
            record_columns(rows, start, wide),
            None if chosen is None else array("i", chosen).tobytes(),
            codec=codec,
            max_bytes=max_bytes,
            producer_id=7,
            producer_epoch=3,
            base_sequence=2**31 - 5,
            transactional=True,
            kernel=kernel,
        )
    )
    records = [record for each in encoded for record in iter_records(each.batch)]
    numbers = range(len(rows)) if chosen is None else chosen
    assert [(record.key, record.value, record.headers, record.timestamp) for record in records] == [
        (key, value, pairs or (), time // 1000)
        for key, value, pairs, time in (rows[number] for number in numbers)
    ]
    check_headers(encoded, codec, max_bytes)


def check_headers(encoded: list[EncodedBatch], codec: Codec, max_bytes: int) -> None:
    sequence = 2**31 - 5
    for each in encoded:
        header = b.validate_produced(each.batch, max_bytes=2**31)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, sequence)
        assert header.is_transactional
        assert header.codec is codec
        assert header.count == each.count
        assert header.max_timestamp == max(record.timestamp for record in iter_records(each.batch))
        size = b.HEADER_SIZE + len(body_of(each.batch, header))
        assert size <= max_bytes or header.count == 1
        sequence = (sequence + header.count) & 0x7FFFFFFF
        assert each.next_sequence == sequence


@pytest.mark.skipif(len(KERNELS) == 1, reason="the kernel was not compiled")
@settings(max_examples=100, deadline=None)
@given(rows=columned_rows, max_bytes=st.integers(0, 3000))
def test_both_kernels_encode_the_same_bytes(
    rows: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...] | None, int]],
    max_bytes: int,
) -> None:
    one, other = (
        list(encode_batches(record_columns(rows, 3, False), max_bytes=max_bytes, kernel=kernel))
        for kernel in KERNELS
    )
    assert one == other


@kernels
def test_batches_are_as_full_as_they_may_be(kernel: Kernel) -> None:
    rows = record_columns([(None, b"x" * 90, None, NOW * 1000)] * 1000, 0, False)
    sizes = [len(each.batch) for each in encode_batches(rows, max_bytes=1000, kernel=kernel)]
    assert all(900 < size <= 1000 for size in sizes[:-1])
    assert sum(each.count for each in encode_batches(rows, max_bytes=1000, kernel=kernel)) == 1000


@kernels
def test_without_a_producer_there_is_no_sequence(kernel: Kernel) -> None:
    (encoded,) = encode_batches(record_columns([(None, None, None, NOW)], 0, False), kernel=kernel)
    assert encoded.next_sequence == b.NO_SEQUENCE
    assert not b.parse_header(encoded.batch).has_producer


@kernels
def test_a_missing_key_or_value_column_is_all_nulls(kernel: Kernel) -> None:
    columns = RecordColumns(2, None, None, array("q", [0, 0]).tobytes())
    (encoded,) = encode_batches(columns, kernel=kernel)
    assert [(record.key, record.value) for record in iter_records(encoded.batch)] == [(None, None)] * 2


@kernels
def test_a_time_before_all_times_is_refused(kernel: Kernel) -> None:
    with pytest.raises(InvalidTimestamp):
        list(encode_batches(record_columns([(None, None, None, -1001)], 0, False), kernel=kernel))


@kernels
def test_a_header_without_a_key_is_refused(kernel: Kernel) -> None:
    rows = record_columns([(None, None, (("a", b""),), NOW)], 0, False)
    assert rows.headers is not None
    rows = rows._replace(headers=rows.headers._replace(keys=binary_column([None])))
    with pytest.raises(InvalidRecord):
        list(encode_batches(rows, kernel=kernel))


ONE_ROW = record_columns([(b"key", b"value", (("name", b"1"),), NOW)], 0, False)
assert ONE_ROW.key is not None
assert ONE_ROW.headers is not None


@kernels
@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        pytest.param(ONE_ROW, [1], id="a row too many"),
        pytest.param(ONE_ROW, [-1], id="a negative row"),
        pytest.param(ONE_ROW._replace(timestamps=bytes(80)), [1], id="a column too short"),
        pytest.param(
            ONE_ROW._replace(key=ONE_ROW.key._replace(offsets=struct.pack("=ii", 0, 4))),
            [0],
            id="beyond the data",
        ),
        pytest.param(
            ONE_ROW._replace(key=ONE_ROW.key._replace(offsets=struct.pack("=ii", 2, 1))),
            [0],
            id="falling offsets",
        ),
        pytest.param(
            ONE_ROW._replace(key=ONE_ROW.key._replace(offsets=struct.pack("=ii", -1, 1))),
            [0],
            id="negative offsets",
        ),
        pytest.param(
            ONE_ROW._replace(key=ONE_ROW.key._replace(validity=b"")), [0], id="no validity for the row"
        ),
        pytest.param(
            ONE_ROW._replace(headers=ONE_ROW.headers._replace(offsets=struct.pack("=ii", 0, 9))),
            [0],
            id="headers beyond the last",
        ),
    ],
)
def test_columns_that_lie_are_refused(kernel: Kernel, columns: RecordColumns, rows: list[int]) -> None:
    with pytest.raises(IndexError):
        list(encode_batches(columns, array("i", rows).tobytes(), kernel=kernel))


@kernels
@settings(max_examples=150, deadline=None)
@given(
    keys=st.lists(st.none() | st.binary(max_size=40), max_size=40),
    partitions=st.integers(1, 2**31 - 1) | st.integers(1, 12),
    start=st.integers(0, 9),
    wide=st.booleans(),
)
def test_partitions_are_those_of_single_keys(
    kernel: Kernel, keys: list[bytes | None], partitions: int, start: int, wide: bool
) -> None:
    column = binary_column(keys, start=start, wide=wide)
    chosen = memoryview(partitions_of(column, len(keys), partitions, 5, kernel)).cast("B").cast("i")
    assert list(chosen) == [5 if key is None else partition_of(key, partitions) for key in keys]


@kernels
def test_partitions_of_no_partitions_are_refused(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="one partition"):
        partitions_of(binary_column([b"a"]), 1, 0, 0, kernel)
    with pytest.raises(IndexError):
        partitions_of(binary_column([b"a"]), 2, 3, 0, kernel)


@kernels
@given(numbers=st.lists(st.integers(0, 6)))
def test_rows_are_grouped_in_order(kernel: Kernel, numbers: list[int]) -> None:
    groups = group_rows(array("i", numbers).tobytes(), 7, kernel)
    assert [list(memoryview(group).cast("B").cast("i")) for group in groups] == [
        [row for row, number in enumerate(numbers) if number == group] for group in range(7)
    ]


@kernels
@pytest.mark.parametrize("number", [-1, 3])
def test_a_group_that_is_not_there_is_refused(kernel: Kernel, number: int) -> None:
    with pytest.raises(IndexError):
        group_rows(array("i", [0, number]).tobytes(), 3, kernel)


def test_the_environment_can_ask_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_PURE", "1")
    assert columns.compiled_kernel() is None
    monkeypatch.delenv("POSTHOUSE_PURE")
    assert (columns.compiled_kernel() is None) == (len(KERNELS) == 1)
