"""Columns equal the records they were made of, in C and in Python."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.topic_config import TimestampType
from posthouse.records import batch as b
from posthouse.records import columns
from posthouse.records.columns import ColumnBuffers, Kernel, Wanted
from posthouse.records.compression import Codec
from posthouse.records.record import Record, body_of, iter_records
from posthouse.records.spans import iter_spans, with_records
from posthouse.records.varint import write_varint
from tests.examples import examples
from tests.records.column_rows import (
    EVERYTHING,
    KERNELS,
    MAX_INT64,
    NOW,
    built,
    decoded,
    in_microseconds,
    kernels,
    numbers,
    record_lists,
    records_in,
    wanted_columns,
)


@kernels
@settings(max_examples=examples(150), deadline=None)
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
@settings(max_examples=examples(60), deadline=None)
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
@settings(max_examples=examples(60), deadline=None)
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


def test_the_environment_can_ask_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_PURE", "1")
    assert columns.compiled_kernel() is None
    monkeypatch.delenv("POSTHOUSE_PURE")
    assert (columns.compiled_kernel() is None) == (len(KERNELS) == 1)
