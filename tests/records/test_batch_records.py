"""Records inside batches: building, decoding, and what nonsense does."""

import contextlib
import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    PosthouseError,
    RecordTooLarge,
    UnsupportedFormat,
)
from posthouse.model.topic_config import TimestampType
from posthouse.records import batch as b
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec, compress
from posthouse.records.record import Record, decode_batches, iter_records
from posthouse.records.varint import read_varint, read_varlong, write_varint
from tests.examples import examples

CODECS = st.sampled_from(list(Codec))
NOW = 1_700_000_000_000
MAX_INT64 = 2**63 - 1

payloads = st.none() | st.binary(max_size=300) | st.binary(max_size=20).map(lambda piece: piece * 400)
timestamps = st.integers(NOW - 5000, NOW + 5000) | st.integers(-1, MAX_INT64)
headers = st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=200)), max_size=5).map(
    tuple
)
record_lists = st.lists(st.tuples(payloads, payloads, headers, timestamps), min_size=1, max_size=30)


def zigzag(*numbers: int) -> bytes:
    return b"".join(write_varint(number) for number in numbers)


def raw_record(body: bytes, length: int | None = None) -> bytes:
    return zigzag(len(body) if length is None else length) + body


def raw_batch(
    body: bytes, *, count: int = 1, last_delta: int = 0, codec: int = 0, base_timestamp: int = NOW
) -> bytes:
    """A batch around hand-made record bytes, with a right checksum."""
    length = b.HEADER_SIZE - b.LOG_OVERHEAD + len(body)
    fields = (last_delta, base_timestamp, base_timestamp, -1, -1, -1, count)
    batch = bytearray(b.HEADER.pack(0, length, 0, 2, 0, codec, *fields) + body)
    struct.pack_into(">I", batch, b.CRC_AT, crc32c(memoryview(batch)[b.ATTRIBUTES_AT :]))
    return bytes(batch)


# attributes, timestamp delta 0, offset delta 0, null key, value "v", no headers
GOOD = b"\0" + zigzag(0, 0, -1, 1) + b"v" + zigzag(0)


@settings(max_examples=examples(150), deadline=None)
@given(codec=CODECS, records=record_lists, base_offset=st.integers(0, 2**62))
def test_what_is_built_is_read_back(
    codec: Codec,
    records: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]],
    base_offset: int,
) -> None:
    builder = BatchBuilder(codec, producer_id=9, producer_epoch=1, base_sequence=4)
    for key, value, record_headers, timestamp in records:
        builder.add(key, value, record_headers, timestamp)
    batch = builder.build(base_offset)
    assert list(iter_records(batch)) == [
        Record(base_offset + index, timestamp, key, value, record_headers)
        for index, (key, value, record_headers, timestamp) in enumerate(records)
    ]
    header = b.validate_produced(batch, max_bytes=len(batch))
    assert (header.base_offset, header.count, header.codec) == (base_offset, len(records), codec)
    assert header.base_timestamp == records[0][3]
    assert header.max_timestamp == max(record[3] for record in records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 4)
    assert builder.count == len(records)
    assert codec is not Codec.NONE or builder.size_estimate == len(batch)


@given(st.integers(-(2**63), MAX_INT64) | st.integers(-300, 300) | st.integers(-(2**31), 2**31 - 1))
def test_varints(value: int) -> None:
    raw = write_varint(value)
    assert read_varlong(b"x" + raw + b"y", 1) == (value, 1 + len(raw))
    if -(2**31) <= value < 2**31:
        assert read_varint(b"x" + raw + b"y", 1) == (value, 1 + len(raw))
        assert len(raw) <= 5
    else:
        with pytest.raises(CorruptBatch):
            read_varint(raw, 0)


@pytest.mark.parametrize("raw", [b"\xff" * 10 + b"\x00", b"\xff" * 9 + b"\x02"])
def test_varlongs_beyond_64_bits_are_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varlong(raw, 0)


def test_timestamp_types() -> None:
    builder = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    builder.add(None, b"a", timestamp=NOW)
    builder.add(None, b"b", timestamp=NOW + 7)
    batch = builder.build()
    assert b.parse_header(batch).is_log_append_time
    assert [record.timestamp for record in iter_records(batch)] == [NOW + 7, NOW + 7]


def test_building_twice_gives_the_same_and_the_builder_goes_on() -> None:
    builder = BatchBuilder()
    builder.add(b"k", b"1", timestamp=NOW)
    first = builder.build()
    assert builder.build() == first
    builder.add(b"k", b"2", timestamp=NOW)
    assert [record.value for record in iter_records(builder.build())] == [b"1", b"2"]
    assert [record.value for record in iter_records(first)] == [b"1"]


def test_the_builder_copies_what_it_is_given() -> None:
    builder, value = BatchBuilder(), bytearray(b"before")
    builder.add(memoryview(value), memoryview(value), [("h", value)], NOW)
    value[:] = b"after!"
    assert next(iter_records(builder.build())) == Record(0, NOW, b"before", b"before", (("h", b"before"),))


def test_empty_is_not_null() -> None:
    builder = BatchBuilder()
    builder.add(b"", b"", (("", b""),), NOW)
    builder.add(None, None, (("", None),), NOW)
    assert list(iter_records(builder.build())) == [
        Record(0, NOW, b"", b"", (("", b""),)),
        Record(1, NOW, None, None, (("", None),)),
    ]


def test_headers_may_come_from_a_generator() -> None:
    builder = BatchBuilder()
    builder.add(None, None, ((name, b"v") for name in "ab"), NOW)
    assert next(iter_records(builder.build())).headers == (("a", b"v"), ("b", b"v"))


def test_a_refused_record_leaves_the_builder_as_it_was() -> None:
    builder = BatchBuilder()
    for timestamp in (-2, MAX_INT64 + 1):
        with pytest.raises(InvalidTimestamp):
            builder.add(None, b"v", timestamp=timestamp)
    with pytest.raises(InvalidRecord):
        builder.add(None, b"v", [("\ud800", b"lone surrogate")], NOW)
    assert (builder.count, builder.size_estimate) == (0, b.HEADER_SIZE)
    with pytest.raises(InvalidRecord):
        builder.build()
    builder.add(None, b"v", timestamp=5)
    assert b.parse_header(builder.build()).base_timestamp == 5


def test_more_records_than_the_table_of_small_numbers_holds() -> None:
    builder = BatchBuilder(Codec.LZ4)
    for number in range(10_000):
        builder.add(None, b"%d" % number, timestamp=NOW - number)
    records = list(iter_records(builder.build(5)))
    assert [record.offset for record in records] == list(range(5, 10_005))
    assert [record.value for record in records] == [b"%d" % number for number in range(10_000)]
    assert records[-1].timestamp == NOW - 9_999


def test_gaps_that_compaction_leaves_are_kept() -> None:
    body = b"".join(raw_record(b"\0" + zigzag(0, delta, -1, -1, 0)) for delta in (2, 5))
    assert [r.offset for r in iter_records(raw_batch(body, count=2, last_delta=9))] == [2, 5]
    for codec in Codec:
        assert list(iter_records(raw_batch(b"", count=0, last_delta=9, codec=codec))) == []


def test_header_names_that_are_not_utf8_stay_readable() -> None:
    body = raw_record(b"\0" + zigzag(0, 0, -1, -1, 1, 2) + b"\xffa" + zigzag(-1))
    assert next(iter_records(raw_batch(body))).headers == (("�a", None),)


NONSENSE = {
    "nothing": (b"", 1, 0),
    "length negative": (raw_record(GOOD, -1), 1, 0),
    "length beyond the data": (raw_record(GOOD, len(GOOD) + 1), 1, 0),
    "length too small": (raw_record(GOOD, len(GOOD) - 1), 1, 0),
    "trailing byte": (raw_record(GOOD) + b"\0", 1, 0),
    "count too large": (raw_record(GOOD), 2, 1),
    "count huge": (raw_record(GOOD), 2**31 - 1, 2**31 - 2),
    "count negative": (b"", -1, 0),
    "key length -2": (raw_record(b"\0" + zigzag(0, 0, -2, -1, 0)), 1, 0),
    "value length -2": (raw_record(b"\0" + zigzag(0, 0, -1, -2, 0)), 1, 0),
    "key overruns": (raw_record(b"\0" + zigzag(0, 0, 50, -1, 0)), 1, 0),
    "value overruns by what the length claims": (raw_record(b"\0" + zigzag(0, 0, -1, 50), 56), 1, 0),
    "header value overruns likewise": (raw_record(b"\0" + zigzag(0, 0, -1, -1, 1, 0, 9), 17), 1, 0),
    "header count negative": (raw_record(b"\0" + zigzag(0, 0, -1, -1, -1)), 1, 0),
    "header count huge": (raw_record(b"\0" + zigzag(0, 0, -1, -1, 2**31 - 1)), 1, 0),
    "header key null": (raw_record(b"\0" + zigzag(0, 0, -1, -1, 1, -1, -1)), 1, 0),
    "offset delta negative": (raw_record(b"\0" + zigzag(0, -1, -1, -1, 0)), 1, 0),
    "offset delta past the last": (raw_record(b"\0" + zigzag(0, 1, -1, -1, 0)), 1, 0),
    "offset delta repeated": (raw_record(GOOD) * 2, 2, 1),
    "endless varint": (b"\xff" * 20, 1, 0),
    "timestamp beyond 64 bits": (raw_record(b"\0" + zigzag(MAX_INT64, 0, -1, -1, 0)), 1, 0),
}


@pytest.mark.parametrize(("body", "count", "last_delta"), NONSENSE.values(), ids=NONSENSE.keys())
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_nonsense_is_corrupt(body: bytes, count: int, last_delta: int, codec: Codec) -> None:
    batch = raw_batch(compress(codec, body), count=count, last_delta=last_delta, codec=codec)
    with pytest.raises(CorruptBatch):
        list(iter_records(batch))


def test_a_record_that_overruns_the_data_is_not_handed_out_first() -> None:
    body, count, last_delta = NONSENSE["header value overruns likewise"]
    with pytest.raises(CorruptBatch):
        next(iter_records(raw_batch(body, count=count, last_delta=last_delta)))


def test_the_hand_made_record_is_good() -> None:
    assert list(iter_records(raw_batch(raw_record(GOOD)))) == [Record(0, NOW, None, b"v")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_cut_anywhere_is_corrupt_or_ends_the_walk(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for number in range(4):
        builder.add(b"k%d" % number, b"value" * 30, (("h", b"x"),), NOW)
    batch = bytes(builder.build())
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            list(iter_records(batch[:size]))
        assert len(list(decode_batches(batch + batch[:size]))) == 4


def test_a_body_cut_anywhere_is_corrupt() -> None:
    builder = BatchBuilder()
    for number in range(4):
        builder.add(b"k%d" % number, b"value" * 30, (("h", b"x"), ("i", None)), NOW + number * 1000)
    body = bytes(builder.build()[b.HEADER_SIZE :])
    for size in range(len(body)):
        with pytest.raises(CorruptBatch):
            list(iter_records(raw_batch(body[:size], count=4, last_delta=3)))


def test_unknown_codecs_and_caps() -> None:
    with pytest.raises(UnsupportedFormat):
        iter_records(raw_batch(b"", codec=7))
    builder = BatchBuilder(Codec.ZSTD)
    builder.add(None, bytes(100_000), timestamp=NOW)
    batch = builder.build()
    with pytest.raises(RecordTooLarge):
        iter_records(batch, max_output=100_000)
    assert len(list(iter_records(batch, max_output=100_100))) == 1


def test_control_batches_are_skipped_unless_asked_for() -> None:
    data = BatchBuilder()
    data.add(None, b"data", timestamp=NOW)
    marker = BatchBuilder(producer_id=1, producer_epoch=0, transactional=True, control=True)
    marker.add(b"\0\0\0\1", b"\0\0\0\0\0\0", timestamp=NOW)
    log = bytes(data.build(0) + marker.build(1) + data.build(2))
    assert [record.offset for record in decode_batches(log)] == [0, 2]
    assert [record.offset for record in decode_batches(log, include_control=True)] == [0, 1, 2]


@settings(max_examples=examples(300), deadline=None)
@given(body=st.binary(max_size=200), count=st.integers(0, 5), codec=st.integers(0, 7), raw=st.binary())
def test_arbitrary_bytes_raise_domain_errors_only(body: bytes, count: int, codec: int, raw: bytes) -> None:
    for batch in (raw_batch(body, count=count, last_delta=4, codec=codec), raw):
        with contextlib.suppress(PosthouseError):
            list(iter_records(batch, max_output=1000))
        with contextlib.suppress(PosthouseError):
            list(decode_batches(batch, include_control=True, max_output=1000))


@settings(max_examples=examples(300), deadline=None)
@given(codec=CODECS, edits=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=5))
def test_damaged_batches_raise_domain_errors_only(codec: Codec, edits: list[tuple[int, int]]) -> None:
    builder = BatchBuilder(codec)
    for number in range(6):
        builder.add(b"key", b"value" * number * 20, (("name", b"x" * number),), NOW + number * 100)
    batch = builder.build()
    for at, byte in edits:
        batch[at % len(batch)] = byte
    with contextlib.suppress(PosthouseError):
        list(iter_records(batch, max_output=10_000))
