"""Headers: parsing, the checks on produced bytes, stamping, walking over batches."""

import contextlib
import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    Malformed,
    PosthouseError,
    RecordTooLarge,
    UnsupportedFormat,
)
from posthouse.records import batch as b
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.record import iter_records

NOW = 1_700_000_000_000
MAX_BYTES = 1 << 20


def build(*, records: int = 3, codec: Codec = Codec.NONE, base_offset: int = 0) -> bytearray:
    builder = BatchBuilder(codec)
    for number in range(records):
        builder.add(b"key", b"value %d" % number, timestamp=NOW + number)
    return builder.build(base_offset)


def patched(at: int, fmt: str, value: int) -> bytes:
    """A valid batch with one field changed and the checksum made right again."""
    batch = build()
    struct.pack_into(fmt, batch, at, value)
    struct.pack_into(">I", batch, b.CRC_AT, crc32c(memoryview(batch)[b.ATTRIBUTES_AT :]))
    return bytes(batch)


def test_the_layout_is_61_bytes_and_every_constant_points_at_its_field() -> None:
    raw = bytes(range(b.HEADER_SIZE))
    fields = b.HEADER.unpack(raw)
    places = [
        (b.BASE_OFFSET_AT, 8),
        (b.LENGTH_AT, 4),
        (b.LEADER_EPOCH_AT, 4),
        (b.MAGIC_AT, 1),
        (b.CRC_AT, 4),
        (b.ATTRIBUTES_AT, 2),
        (b.LAST_OFFSET_DELTA_AT, 4),
        (b.BASE_TIMESTAMP_AT, 8),
        (b.MAX_TIMESTAMP_AT, 8),
        (b.PRODUCER_ID_AT, 8),
        (b.PRODUCER_EPOCH_AT, 2),
        (b.BASE_SEQUENCE_AT, 4),
        (b.COUNT_AT, 4),
    ]
    assert [int.from_bytes(raw[at : at + size], "big") for at, size in places] == list(fields)
    assert b.HEADER.size == b.HEADER_SIZE == b.RECORDS_AT == 61


def test_parse_reads_every_field() -> None:
    raw = b.HEADER.pack(70, 100, 7, 2, 0xFFFFFFFE, 0x30, 9, 11, 12, 13, 14, 15, 10)
    header = b.parse_header(b"padding" + raw, 7)
    assert header == b.BatchHeader(
        base_offset=70,
        length=112,
        leader_epoch=7,
        magic=2,
        crc=0xFFFFFFFE,
        attributes=0x30,
        last_offset_delta=9,
        base_timestamp=11,
        max_timestamp=12,
        producer_id=13,
        producer_epoch=14,
        base_sequence=15,
        count=10,
    )
    assert (header.last_offset, header.next_offset, header.last_sequence) == (79, 80, 24)
    assert header.is_control and header.is_transactional and header.has_producer
    assert not header.is_log_append_time and header.codec is Codec.NONE


@pytest.mark.parametrize(
    ("base_sequence", "delta", "last"), [(2**31 - 1, 1, 0), (2**31 - 3, 2, 2**31 - 1), (-1, 4, -1)]
)
def test_sequences_wrap_and_absent_ones_stay_absent(base_sequence: int, delta: int, last: int) -> None:
    header = b.parse_header(build())._replace(base_sequence=base_sequence, last_offset_delta=delta)
    assert header.last_sequence == last


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_an_unknown_codec_is_an_unsupported_format(bits: int) -> None:
    with pytest.raises(UnsupportedFormat):
        _ = b.parse_header(build())._replace(attributes=bits).codec


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_formats_are_unsupported(magic: int) -> None:
    raw = patched(b.MAGIC_AT, ">b", magic)
    with pytest.raises(UnsupportedFormat):
        b.parse_header(raw)
    with pytest.raises(UnsupportedFormat):
        b.parse_header(raw[:34])  # an old message may be smaller than a batch header


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48])
def test_a_length_that_cannot_hold_a_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch):
        b.parse_header(patched(b.LENGTH_AT, ">i", length))


def test_a_header_cut_anywhere_is_corrupt() -> None:
    raw = build()
    for size in range(b.HEADER_SIZE):
        with pytest.raises(CorruptBatch):
            b.parse_header(raw[:size])
    assert b.parse_header(raw[: b.HEADER_SIZE]).length == len(raw)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_accepted(wrap: Callable[[bytes], b.Readable], codec: Codec) -> None:
    raw = bytes(build(codec=codec))
    header = b.validate_produced(wrap(raw), max_bytes=len(raw))
    assert (header.count, header.codec, header.base_timestamp, header.max_timestamp) == (
        3,
        codec,
        NOW,
        NOW + 2,
    )


REJECTED = {
    "empty": (b"", InvalidRecord),
    "trailing byte": (bytes(build()) + b"\0", Malformed),
    "second batch": (bytes(build()) * 2, Malformed),
    "magic 1": (patched(b.MAGIC_AT, ">b", 1), UnsupportedFormat),
    "wrong checksum": (bytes(build())[:-1] + b"?", CorruptBatch),
    "length too long": (patched(b.LENGTH_AT, ">i", 10_000), CorruptBatch),
    "count 0": (patched(b.COUNT_AT, ">i", 0), Malformed),
    "count negative": (patched(b.COUNT_AT, ">i", -1), Malformed),
    "count too small": (patched(b.COUNT_AT, ">i", 2), Malformed),
    "delta too small": (patched(b.LAST_OFFSET_DELTA_AT, ">i", 1), Malformed),
    "delta negative": (patched(b.LAST_OFFSET_DELTA_AT, ">i", -1), Malformed),
    "control": (patched(b.ATTRIBUTES_AT, ">h", 0x20), Malformed),
    "codec 5": (patched(b.ATTRIBUTES_AT, ">h", 5), UnsupportedFormat),
    "log-append time": (patched(b.ATTRIBUTES_AT, ">h", 8), InvalidTimestamp),
    "transaction without producer": (patched(b.ATTRIBUTES_AT, ">h", 0x10), Malformed),
    "producer without sequence": (patched(b.PRODUCER_ID_AT, ">q", 5), Malformed),
    "base timestamp": (patched(b.BASE_TIMESTAMP_AT, ">q", -2), InvalidTimestamp),
    "max timestamp": (patched(b.MAX_TIMESTAMP_AT, ">q", -(2**63)), InvalidTimestamp),
}


@pytest.mark.parametrize(("raw", "error"), REJECTED.values(), ids=REJECTED.keys())
def test_the_rules_for_produced_bytes(raw: bytes, error: type[PosthouseError]) -> None:
    with pytest.raises(error) as raised:
        b.validate_produced(raw, max_bytes=MAX_BYTES)
    assert type(raised.value) is error


def test_a_producer_id_needs_both_sequence_and_epoch() -> None:
    def produced(producer_id: int, epoch: int, sequence: int) -> bytearray:
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        builder.add(None, b"v", timestamp=NOW)
        return builder.build()

    assert b.validate_produced(produced(0, 0, 0), max_bytes=MAX_BYTES).is_transactional
    for epoch, sequence in ((-1, 0), (0, -1)):
        with pytest.raises(InvalidRecord):
            b.validate_produced(produced(0, epoch, sequence), max_bytes=MAX_BYTES)


def test_the_size_limit_is_inclusive() -> None:
    raw = build()
    b.validate_produced(raw, max_bytes=len(raw))
    with pytest.raises(RecordTooLarge):
        b.validate_produced(raw, max_bytes=len(raw) - 1)


def test_a_batch_without_timestamps_is_accepted() -> None:
    builder = BatchBuilder()
    builder.add(None, b"v")
    header = b.validate_produced(builder.build(), max_bytes=MAX_BYTES)
    assert header.max_timestamp == b.NO_TIMESTAMP
    b.check_timestamps(header, now_ms=NOW, before_max_ms=0, after_max_ms=0)


def test_a_produced_batch_cut_anywhere_is_refused() -> None:
    raw = bytes(build())
    for size in range(1, len(raw)):
        with pytest.raises(CorruptBatch):
            b.validate_produced(raw[:size], max_bytes=MAX_BYTES)


def test_any_flipped_bit_under_the_checksum_is_found() -> None:
    raw = build()
    for at in range(b.CRC_AT, len(raw)):
        raw[at] ^= 0x10
        assert not b.verify_crc(raw, 0, len(raw))
        raw[at] ^= 0x10
    assert b.verify_crc(raw, 0, len(raw))


@pytest.mark.parametrize(("pos", "length"), [(0, 60), (0, -1), (1, 10_000), (10_000, 61)])
def test_checksum_of_what_is_not_there_does_not_match(pos: int, length: int) -> None:
    assert not b.verify_crc(build(), pos, length)


@pytest.mark.parametrize(
    ("base", "top", "fits"),
    [
        (NOW, NOW + 10, True),
        (NOW, NOW + 11, False),
        (NOW - 20, NOW, True),
        (NOW - 21, NOW, False),
        (NOW, NOW - 21, False),
        (b.NO_TIMESTAMP, b.NO_TIMESTAMP, True),
        (b.NO_TIMESTAMP, NOW + 11, False),
    ],
)
def test_the_timestamp_window(base: int, top: int, fits: bool) -> None:
    header = b.parse_header(build())._replace(base_timestamp=base, max_timestamp=top)
    if fits:
        b.check_timestamps(header, now_ms=NOW, before_max_ms=20, after_max_ms=10)
    else:
        with pytest.raises(InvalidTimestamp):
            b.check_timestamps(header, now_ms=NOW, before_max_ms=20, after_max_ms=10)


@pytest.mark.parametrize("wrap", [bytearray, lambda raw: memoryview(bytearray(raw))])
def test_stamping_changes_offset_and_epoch_and_nothing_else(wrap: Callable[[bytes], b.Writable]) -> None:
    raw = bytes(build())
    stamped = wrap(raw)
    b.stamp(stamped, 2**40, 17)
    assert b.parse_header(stamped) == b.parse_header(raw)._replace(base_offset=2**40, leader_epoch=17)
    assert bytes(stamped[b.MAGIC_AT :]) == raw[b.MAGIC_AT :]
    assert b.verify_crc(stamped, 0, len(raw))


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_is_every_records_timestamp(codec: Codec) -> None:
    raw = bytes(build(codec=codec))
    batch = bytearray(raw)
    b.stamp_log_append_time(batch, NOW + 99)
    assert b.verify_crc(batch, 0, len(batch))
    assert batch[b.RECORDS_AT :] == raw[b.RECORDS_AT :]
    header = b.parse_header(batch)
    assert header.is_log_append_time and header.codec is codec
    assert header.max_timestamp == NOW + 99 and header.base_timestamp == NOW
    assert [record.timestamp for record in iter_records(batch)] == [NOW + 99] * 3


def test_walking_over_batches_stops_before_a_cut_one() -> None:
    batches = [bytes(build(records=n, base_offset=n * 10)) for n in (1, 2, 3)]
    whole = b"".join(batches)
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [(pos, h.base_offset) for pos, h in b.iter_headers(whole)] == list(
        zip(starts, (10, 20, 30), strict=True)
    )
    ends = [*starts[1:], len(whole)]
    for size in range(len(whole) + 1):
        expected = sum(end <= size for end in ends)
        assert len(list(b.iter_headers(memoryview(whole)[:size]))) == expected


def test_walking_into_nonsense_raises_instead_of_hiding_it() -> None:
    good = bytes(build())
    with pytest.raises(UnsupportedFormat):
        list(b.iter_headers(good + patched(b.MAGIC_AT, ">b", 1)))
    with pytest.raises(CorruptBatch):
        list(b.iter_headers(good + patched(b.LENGTH_AT, ">i", -5)))
    with pytest.raises(CorruptBatch):
        list(b.iter_headers(good + bytes(12)))
    old_message = bytes(8) + struct.pack(">i", 22) + bytes(4) + b"\x01" + bytes(17)
    with pytest.raises(UnsupportedFormat):
        list(b.iter_headers(old_message))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_domain_errors_only(raw: bytes) -> None:
    for call in (
        lambda: b.parse_header(raw),
        lambda: b.validate_produced(raw, max_bytes=100),
        lambda: list(b.iter_headers(raw)),
    ):
        with contextlib.suppress(PosthouseError):
            call()
    b.verify_crc(raw, 0, len(raw))
