"""The stored form of messages: Kafka's RecordBatch, version 2, big-endian.

    offset  size  field
         0     8  base offset            stamped by the broker, outside the checksum
         8     4  length                 of what follows this field: total size - 12
        12     4  leader epoch           stamped by the broker, outside the checksum
        16     1  magic                  2
        17     4  crc                    CRC32C of byte 21 to the end
        21     2  attributes             bits 0-2 codec, 3 log-append time, 4 transactional,
                                         5 control, 6 delete horizon, 8 damage (never stored: the batch
                                         has no records and stands for offsets that cannot be read)
        23     4  last offset delta      offset of the last record - base offset
        27     8  base timestamp         ms; the records' timestamps are deltas to it; with bit 6 it is
                                         the time from which tombstones may be removed
        35     8  max timestamp          ms; with bit 3 it is every record's timestamp
        43     8  producer id            -1: none
        51     2  producer epoch
        53     4  base sequence
        57     4  count                  of records that are still in the batch
        61     …  records                compressed as one block; see `record`

Invariant: a batch is never split or merged after it was built, and bytes 21 to the end change only
together with the checksum. Compaction may take records out of a batch; its first and last offset and its
sequences stay. Offset and epoch lie outside the checksum, so stamping them copies nothing. After a crash,
a batch that is shorter than its length field or fails its checksum was never acknowledged.

`BatchHeader.length` counts the whole batch, the 12 bytes up to and including the length field too.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from posthouse.model.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    Malformed,
    RecordTooLarge,
    UnsupportedFormat,
)
from posthouse.records.compression import Codec, output_limit

Readable: TypeAlias = bytes | bytearray | memoryview
Writable: TypeAlias = bytearray | memoryview

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
COUNT_AT = 57
RECORDS_AT = 61

HEADER_SIZE = 61
# Length, attributes, two deltas, two lengths, header count: one byte each.
SMALLEST_RECORD = 7
LOG_OVERHEAD = 12
MAGIC = 2

CODEC_MASK = 0b111
LOG_APPEND_TIME_BIT = 1 << 3
TRANSACTIONAL_BIT = 1 << 4
CONTROL_BIT = 1 << 5
DELETE_HORIZON_BIT = 1 << 6
DAMAGE_BIT = 1 << 8
"""A bit that Kafka does not use and its clients ignore."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
LEADER_EPOCH = 0
"""A partition has one writer for all its life, so its epoch never changes."""

HEADER = Struct(">qiibIhiqqqhii")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_ATTRIBUTES = Struct(">h")

_unpack = HEADER.unpack_from
_new = tuple.__new__

_CODECS = {int(codec): codec for codec in Codec}


class BatchHeader(NamedTuple):
    """One batch's header. A tuple, because one is cheaper to build than a slotted class."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a header has no use for

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Raises UnsupportedFormat for an unknown codec number."""
        codec = _CODECS.get(self.attributes & CODEC_MASK)
        if codec is None:
            raise UnsupportedFormat(f"unknown compression codec {self.attributes & CODEC_MASK}")
        return codec

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_damage(self) -> bool:
        """Whether it stands for offsets whose records are damaged."""
        return self.attributes & DAMAGE_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """The base timestamp is the time from which compaction may remove the batch's tombstones, or the
        marker."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2³¹-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_header(buf: Readable, pos: int = 0) -> BatchHeader:
    """The header at `pos`. Checks neither the checksum nor the presence of the records."""
    # Written out instead of `_make` and `*rest`: this runs for every batch and costs less than half.
    try:
        offset, length, epoch, magic, crc, attrs, delta, base, top, pid, pepoch, seq, count = _unpack(
            buf, pos
        )
    except StructError:
        raise _unparsable(buf, pos) from None
    if magic != MAGIC:
        raise UnsupportedFormat(f"record format version {magic}; only version {MAGIC} is stored")
    length += LOG_OVERHEAD
    if length < HEADER_SIZE:
        raise CorruptBatch(f"batch length {length} is less than its header of {HEADER_SIZE} bytes")
    return _new(
        BatchHeader,
        (offset, length, epoch, magic, crc, attrs, delta, base, top, pid, pepoch, seq, count),
    )


def _unparsable(buf: Readable, pos: int) -> CorruptBatch | UnsupportedFormat:
    # Messages of older formats may be smaller than this header; the version byte has the same position in all
    # formats.
    remaining = len(buf) - pos
    if remaining > MAGIC_AT and buf[pos + MAGIC_AT] != MAGIC:
        return UnsupportedFormat(f"record format version {buf[pos + MAGIC_AT]}; only {MAGIC} is stored")
    return CorruptBatch(f"{remaining} bytes are too few for a batch header of {HEADER_SIZE}")


def verify_crc(buf: Readable, pos: int, length: int) -> bool:
    """Whether the batch of `length` bytes at `pos` is whole and matches its checksum."""
    end = pos + length
    if length < HEADER_SIZE or end > len(buf):
        return False
    expected: int = _UINT32.unpack_from(buf, pos + CRC_AT)[0]
    return crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : end]) == expected


def validate_produced(buf: Readable, *, max_bytes: int) -> BatchHeader:
    """The header of the one batch that a producer sent for one partition, if the log may store it.

    Only the header and the checksum are checked; the records stay opaque.
    """
    size = len(buf)
    if not size:
        raise InvalidRecord("no record batch")
    header = parse_header(buf)
    if header.length > size:
        raise CorruptBatch(f"batch of {header.length} bytes is cut off after {size}")
    if header.length < size:
        raise Malformed(f"{size - header.length} bytes follow the batch; one batch is allowed")
    if size > max_bytes:
        raise RecordTooLarge(f"batch of {size} bytes exceeds the limit of {max_bytes}")
    if not verify_crc(buf, 0, size):
        raise CorruptBatch("batch does not match its checksum")
    _check_count(header)
    _check_attributes(header)
    _check_producer(header)
    _check_timestamp_values(header)
    return header


def _check_count(header: BatchHeader) -> None:
    count = header.count
    if count < 1:
        raise Malformed(f"batch of {count} records")
    if count != header.last_offset_delta + 1:
        raise Malformed(f"{count} records but a last offset delta of {header.last_offset_delta}")
    size = header.length - HEADER_SIZE
    if count * SMALLEST_RECORD > size and (
        not header.attributes & CODEC_MASK or count * SMALLEST_RECORD > output_limit(size)
    ):
        # Queues, share groups and clients iterate over offsets, so they rely on the count.
        raise Malformed(f"{count} records cannot be in {size} bytes")


def _check_attributes(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        raise Malformed("producers may not write control batches")
    if attributes & CODEC_MASK not in _CODECS:
        raise UnsupportedFormat(f"unknown compression codec {attributes & CODEC_MASK}")
    if attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestamp("producers may not claim log-append time")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0:
        if header.attributes & TRANSACTIONAL_BIT:
            raise Malformed("transactional batch without a producer id")
    elif header.base_sequence < 0:
        raise Malformed(f"producer id with sequence {header.base_sequence}")
    elif header.producer_epoch < 0:
        raise Malformed(f"producer id with epoch {header.producer_epoch}")


def _check_timestamp_values(header: BatchHeader) -> None:
    if header.base_timestamp < NO_TIMESTAMP or header.max_timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(f"negative timestamp {min(header.base_timestamp, header.max_timestamp)}")


def check_timestamps(header: BatchHeader, *, now_ms: int, before_max_ms: int, after_max_ms: int) -> None:
    """Raises InvalidTimestamp if the batch lies outside the window around `now_ms`.

    A batch without timestamps passes. The header has only the first and the greatest timestamp, so an older
    record in the middle of a batch is not detected.
    """
    latest = now_ms + after_max_ms
    if header.max_timestamp > latest:
        raise InvalidTimestamp(f"timestamp {header.max_timestamp} is later than {latest}")
    earliest = now_ms - before_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp < earliest and timestamp != NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {timestamp} is earlier than {earliest}")


def stamp(batch: Writable, base_offset: int, leader_epoch: int) -> None:
    """Write the offset and epoch into the batch, in place; the checksum does not cover them."""
    _INT64.pack_into(batch, BASE_OFFSET_AT, base_offset)
    _INT32.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(batch: Writable, timestamp_ms: int) -> None:
    """Set every record's timestamp to `timestamp_ms`, in place; the records' bytes stay unchanged."""
    attributes: int = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, timestamp_ms)
    length: int = _INT32.unpack_from(batch, LENGTH_AT)[0] + LOG_OVERHEAD
    _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:length]))


def iter_headers(buf: Readable) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; stops silently before a truncated batch."""
    pos, size = 0, len(buf)
    while size - pos >= HEADER_SIZE:
        header = parse_header(buf, pos)
        end = pos + header.length
        if end > size:
            return
        yield pos, header
        pos = end
    if size - pos >= LOG_OVERHEAD:
        length: int = _INT32.unpack_from(buf, pos + LENGTH_AT)[0]
        if length + LOG_OVERHEAD <= size - pos:
            raise _unparsable(buf, pos)
