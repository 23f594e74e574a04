"""Batches that are nonsense are refused, in C and in Python, and leave nothing behind."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.errors import CorruptBatch, PosthouseError
from posthouse.records import batch as b
from posthouse.records.columns import ColumnBuffers, Kernel, Wanted
from posthouse.records.compression import Codec
from posthouse.records.record import iter_records
from tests.examples import examples
from tests.records.column_rows import (
    EVERYTHING,
    MAX_INT64,
    NOW,
    built,
    decoded,
    in_microseconds,
    kernels,
    record_lists,
    records_in,
    wanted_columns,
)


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
@settings(max_examples=examples(400), deadline=None)
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
@settings(max_examples=examples(300), deadline=None)
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
