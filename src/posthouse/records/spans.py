"""Batches for compaction: positions of records, and a batch made of some of them.

Kept records are copied unchanged, since a batch keeps its base offset and so every record its delta. Only if
the base timestamp changes do they get new timestamp deltas.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from posthouse.model.errors import CorruptBatch, MissingKeys
from posthouse.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Readable,
)
from posthouse.records.columns import COMPILED, Wanted
from posthouse.records.compression import compress
from posthouse.records.record import body_in, iter_body
from posthouse.records.varint import ONE_BYTE, TWO_BYTES, read_varint, read_varlong, write_varint

MAX_DELTA = 2**31 - 1
_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1
_MOST_NAMED = 1000
"""Maximum number of records named in an error."""

_ATTRIBUTES = b"\x00"

_new = tuple.__new__


class Span(NamedTuple):
    """One record in a batch's decompressed bytes. A tuple, because there is one per record."""

    start: int
    rest: int
    """Position of its offset delta, behind the timestamp."""
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool


def iter_spans(data: bytes, header: BatchHeader) -> Iterator[Span]:
    """The records in `data`, the body of the batch with `header`; values and headers are skipped."""
    # Most numbers have one byte, and the lengths and deltas of ordinary batches two; decoding those inline
    # through tables saves a fifth of the time.
    small, wide, last_delta = ONE_BYTE, TWO_BYTES, header.last_offset_delta
    pos, size, next_delta = 0, len(data), 0
    try:
        for _ in range(header.count):
            start = pos
            if (length := small[data[pos]]) is not None:
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                length, pos = wide[high << 7 | data[pos] & 0x7F], pos + 2
            else:
                length, pos = read_varint(data, pos)
            end, pos = pos + length, pos + 1
            if (timestamp := small[data[pos]]) is None:
                timestamp, pos = read_varlong(data, pos)
            else:
                pos += 1
            rest = pos
            if (delta := small[data[pos]]) is not None:
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                delta, pos = wide[high << 7 | data[pos] & 0x7F], pos + 2
            else:
                delta, pos = read_varint(data, pos)
            if (key_size := small[data[pos]]) is None:
                key_size, pos = read_varint(data, pos)
            else:
                pos += 1
            key = None
            if key_size >= 0:
                key = data[pos : pos + key_size]
                pos += key_size
            if pos >= end or end > size or key_size < -1 or not next_delta <= delta <= last_delta:
                raise CorruptBatch(f"record with offset delta {delta} is malformed")
            next_delta = delta + 1
            # The one byte 1 is the length -1: no value.
            yield _new(Span, (start, rest, end, delta, timestamp, key, data[pos] == 1))
            pos = end
    except IndexError:
        raise CorruptBatch("records are cut off") from None
    if pos != size or header.count < 0:
        raise CorruptBatch(f"{size - pos} bytes follow {header.count} records")


def check_keys(batch: Readable, header: BatchHeader) -> None:
    """Raises MissingKeys unless every record has a key, which compaction needs."""
    missing = list(islice(_without_key(body_in(batch, header), header), _MOST_NAMED))
    if missing:
        raise MissingKeys(missing)


def _without_key(body: Readable, header: BatchHeader) -> Iterator[int]:
    """The positions of records without a key."""
    if COMPILED is None:
        for position, record in enumerate(iter_body(bytes(body), header)):
            if record.key is None:
                yield position
        return
    # There may be millions of tiny records, and the kernel releases the interpreter.
    keys = COMPILED.Decoder(Wanted.KEY.value)
    keys.append(body, header, _MIN_INT64, _MAX_INT64)
    column = keys.take()[1]
    validity = None if column is None else column[2]
    if validity is not None:
        bits = memoryview(validity).cast("B")
        for position in range(header.count):
            if not bits[position >> 3] >> (position & 7) & 1:
                yield position


def with_records(
    header: BatchHeader, data: bytes, kept: Sequence[Span], *, delete_horizon: int | None = None
) -> bytes:
    """The batch with only the `kept` records of its body `data`, compressed as before.

    A `delete_horizon` becomes its base timestamp; the records keep their timestamps.
    """
    base = header.base_timestamp
    if delete_horizon is None:
        parts = [data[span.start : span.end] for span in kept]
    else:
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=delete_horizon
        )
        parts = [_moved(data, span, base - delete_horizon) for span in kept]
    if not header.is_log_append_time:
        latest = max(base + span.timestamp_delta for span in kept)
        header = header._replace(max_timestamp=latest)
    return _packed(header._replace(count=len(kept)), compress(header.codec, b"".join(parts)))


def _moved(data: bytes, span: Span, by: int) -> bytes:
    """The record with another timestamp delta, and so perhaps another length."""
    record = _ATTRIBUTES + write_varint(span.timestamp_delta + by) + data[span.rest : span.end]
    return write_varint(len(record)) + record


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records: producer, sequences and offsets stay."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    times = {"base_timestamp": NO_TIMESTAMP, "max_timestamp": NO_TIMESTAMP}
    return _packed(header._replace(attributes=attributes, count=0, **times), b"")


def filler(first_offset: int, next_offset: int, attributes: int = 0) -> list[bytes]:
    """Batches without records and producer that fill offsets from `first_offset` to before `next_offset`."""
    batches = []
    while first_offset < next_offset:
        delta = min(next_offset - first_offset - 1, MAX_DELTA)
        header = BatchHeader(
            base_offset=first_offset,
            length=HEADER_SIZE,
            leader_epoch=0,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=delta,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            count=0,
        )
        batches.append(_packed(header, b""))
        first_offset += delta + 1
    return batches


def _packed(header: BatchHeader, body: bytes) -> bytes:
    length = HEADER_SIZE + len(body) - LOG_OVERHEAD
    batch = bytearray(HEADER.pack(*header._replace(length=length)))
    batch += body
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(batch)
