"""What is encoded from columns reads back, in C and in Python; columns that lie are refused."""

import struct
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.errors import InvalidRecord, InvalidTimestamp
from posthouse.records import batch as b
from posthouse.records.arrow_layout import HeaderColumn, RecordColumns
from posthouse.records.column_batches import EncodedBatch, encode_batches
from posthouse.records.columns import Kernel
from posthouse.records.compression import Codec
from posthouse.records.record import body_of, iter_records
from tests.examples import examples
from tests.records.column_rows import KERNELS, NOW, binary_column, headers, kernels, payloads


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
@settings(max_examples=examples(150), deadline=None)
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
@settings(max_examples=examples(100), deadline=None)
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
