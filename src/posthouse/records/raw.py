"""Records whose headers stay encoded, for callers that pass them on unchanged."""

from collections.abc import Iterator
from typing import NamedTuple

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import BatchHeader
from posthouse.records.varint import ONE_BYTE, TWO_BYTES, read_varint, read_varlong

NO_HEADERS = b"\x00"

_new = tuple.__new__


class RawRecord(NamedTuple):
    """A tuple, because queues create one per message."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    """Empty for a record without a value."""
    headers: bytes
    """As in the batch: a varint count, then names and values."""


def iter_raw(data: bytes, header: BatchHeader, first: int, end: int) -> Iterator[RawRecord]:
    """The records with offsets from `first` to before `end` in `data`, the body of a batch with `header`."""
    # Numbers are decoded inline through tables: this runs for every message that a queue delivers.
    small, wide, base_offset, base_timestamp = (
        ONE_BYTE,
        TWO_BYTES,
        header.base_offset,
        header.base_timestamp,
    )
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    first_delta, end_delta = first - base_offset, end - base_offset
    pos, size = 0, len(data)
    try:
        for _ in range(header.count):
            if (length := small[data[pos]]) is not None:
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                length, pos = wide[high << 7 | data[pos] & 0x7F], pos + 2
            else:
                length, pos = read_varint(data, pos)
            record_end, pos = pos + length, pos + 1
            # A record must not end before its own fields: positions only grow.
            if pos > record_end or record_end > size:
                raise CorruptBatch(f"a record of {length} bytes")
            if (timestamp := small[data[pos]]) is None:
                timestamp, pos = read_varlong(data, pos)
            else:
                pos += 1
            if (delta := small[data[pos]]) is not None:
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                delta, pos = wide[high << 7 | data[pos] & 0x7F], pos + 2
            else:
                delta, pos = read_varint(data, pos)
            if delta < first_delta:
                pos = record_end
                continue
            if delta >= end_delta:
                return
            if (length := small[data[pos]]) is None:
                length, pos = read_varint(data, pos)
            else:
                pos += 1
            key = None
            if length >= 0:
                key, pos = data[pos : pos + length], pos + length
            if (length := small[data[pos]]) is not None:
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                length, pos = wide[high << 7 | data[pos] & 0x7F], pos + 2
            else:
                length, pos = read_varint(data, pos)
            value = b""
            if length > 0:
                value, pos = data[pos : pos + length], pos + length
            if pos >= record_end:
                raise CorruptBatch(f"record with offset delta {delta} is malformed")
            yield _new(
                RawRecord,
                (
                    base_offset + delta,
                    base_timestamp + timestamp if fixed_timestamp is None else fixed_timestamp,
                    key,
                    value,
                    data[pos:record_end],
                ),
            )
            pos = record_end
    except IndexError:
        raise CorruptBatch("records are cut off") from None
