"""The records inside a batch, after decompression. Numbers are zigzag varints (see `varint`).

    length             of what follows
    attributes         1 byte, unused
    timestamp delta    to the batch's base timestamp; up to 64 bits
    offset delta       to the batch's base offset
    key length, key    length -1: no key
    value length, value    length -1: no value, a tombstone
    header count       then per header: key length, key (UTF-8), value length (-1: none), value

Invariant: offset deltas rise and do not pass the batch's last offset delta; they may have gaps, since
compaction removes records. The header's count is exact, and nothing follows the last record.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import HEADER_SIZE, BatchHeader, Readable, iter_headers, parse_header
from posthouse.records.compression import Codec, decompress, output_limit
from posthouse.records.varint import ONE_BYTE, read_varint, read_varlong

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1


_new = tuple.__new__


class Record(NamedTuple):
    """A tuple, the cheapest value to create: readers create one per message."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def iter_records(batch: Readable, *, max_output: int | None = None) -> Iterator[Record]:
    """The records of one whole batch, with absolute offsets and timestamps.

    `max_output` caps their size after decompression; see `body_in`. Does not verify the checksum.
    """
    header = parse_header(batch)
    data = body_of(batch, header, max_output=max_output)
    return iter_body(data, header)


def body_of(batch: Readable, header: BatchHeader, *, max_output: int | None = None) -> bytes:
    """The bytes of one whole batch's records, decompressed."""
    return bytes(body_in(batch, header, max_output=max_output))


def body_in(batch: Readable, header: BatchHeader, *, max_output: int | None = None) -> bytes | memoryview:
    """The same without a copy: for an uncompressed batch a view of `batch`.

    Raises RecordTooLarge beyond `max_output`, by default the limit for any client (`output_limit`).
    """
    if header.length > len(batch):
        raise CorruptBatch(f"batch of {header.length} bytes is cut off after {len(batch)}")
    body = memoryview(batch)[HEADER_SIZE : header.length]
    if header.codec is Codec.NONE:
        return body
    if header.count == 0 and not body:
        # Compaction may leave a batch without records; then there is nothing to decompress.
        return b""
    return decompress(
        header.codec, body, max_output=output_limit(len(body)) if max_output is None else max_output
    )


def decode_batches(
    buf: Readable, *, include_control: bool = False, max_output: int | None = None
) -> Iterator[Record]:
    """The records of consecutive batches; stops silently before a truncated batch.

    `max_output` limits each batch. Records of control batches are transaction markers, not messages.
    """
    view = memoryview(buf)
    for pos, header in iter_headers(view):
        if include_control or not header.is_control:
            yield from iter_records(view[pos : pos + header.length], max_output=max_output)


def iter_body(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in `data`, the body of the batch with `header`."""
    # One-byte numbers are decoded inline through a table, and a record's rules are checked together at its
    # end: positions only grow, so any overrun shows there. A quarter faster than a call per number.
    small, base_offset, base_timestamp = ONE_BYTE, header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    pos, size, next_delta, last_delta = 0, len(data), 0, header.last_offset_delta
    try:
        for _ in range(header.count):
            if (length := small[data[pos]]) is None:
                length, pos = read_varint(data, pos)
            else:
                pos += 1
            end, pos = pos + length, pos + 1
            if (timestamp := small[data[pos]]) is None:
                timestamp, pos = read_varlong(data, pos)
            else:
                pos += 1
            timestamp = base_timestamp + timestamp if fixed_timestamp is None else fixed_timestamp
            if (delta := small[data[pos]]) is None:
                delta, pos = read_varint(data, pos)
            else:
                pos += 1
            key, pos = _read_bytes(data, pos) if data[pos] != 1 else (None, pos + 1)
            value, pos = _read_bytes(data, pos)
            headers, pos = _read_headers(data, pos, end) if data[pos] else ((), pos + 1)
            if pos != end or end > size or not next_delta <= delta <= last_delta:
                raise CorruptBatch(f"record with offset delta {delta} is malformed")
            if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                raise CorruptBatch(f"timestamp {timestamp} exceeds 64 bits")
            next_delta = delta + 1
            yield _new(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise CorruptBatch("records are cut off") from None
    if pos != size or header.count < 0:
        raise CorruptBatch(f"{size - pos} bytes follow {header.count} records")


def _read_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """Bytes with a length prefix. The end may lie beyond `data`; the caller checks it."""
    if (length := ONE_BYTE[data[pos]]) is None:
        length, pos = read_varint(data, pos)
    else:
        pos += 1
    end = pos + length
    if length >= 0:
        return data[pos:end], end
    if length == -1:
        return None, pos
    raise CorruptBatch(f"length {length}")


def _read_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = read_varint(data, pos)
    # A header takes at least two bytes, so no count can make the loop outlast the data.
    if count < 0 or count > (end - pos) >> 1:
        raise CorruptBatch(f"{count} headers in {end - pos} bytes")
    headers = []
    for _ in range(count):
        key, pos = _read_bytes(data, pos)
        if key is None:
            raise CorruptBatch("header without a key")
        value, pos = _read_bytes(data, pos)
        # Some producers write other bytes than UTF-8; one invalid name must not make a batch unreadable.
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), pos
