"""The kernel in Python: the same as `_columns`, for machines without a compiler.

Other modules call `columns` and `column_batches`.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from posthouse.model.errors import InvalidRecord, InvalidTimestamp
from posthouse.records.arrow_layout import BinaryColumn, HeaderColumn
from posthouse.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, Readable
from posthouse.records.builder import encode_record
from posthouse.records.partitioner import partition_of
from posthouse.records.record import Headers, iter_body
from posthouse.records.varint import write_varint

KEY, VALUE, OFFSET, TIMESTAMP, HEADERS = 1, 2, 4, 8, 16

_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1
_MAX_INT32 = (1 << 31) - 1

_Binary = tuple[Readable, Readable, Readable | None]
_Headers = tuple[Readable, _Binary, _Binary]


class Decoder:
    """Collects the wanted columns of many batches."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets = array("q")
        self._timestamps = array("q")
        self._headers: list[Headers] = []

    def append(self, body: Readable, header: BatchHeader, first: int, end: int) -> None:
        """Append the records of one decompressed batch with first <= offset < end; all of them or, on an
        error, none."""
        if self.bytes + len(body) > _MAX_INT32:
            raise OverflowError("the columns are full; take them before you append more")
        records = [record for record in iter_body(bytes(body), header) if first <= record.offset < end]
        self.rows += len(records)
        if self._wanted & KEY:
            keys = [record.key for record in records]
            self._keys += keys
            self.bytes += sum(map(len, filter(None, keys)))
        if self._wanted & VALUE:
            values = [record.value for record in records]
            self._values += values
            self.bytes += sum(map(len, filter(None, values)))
        if self._wanted & OFFSET:
            self._offsets.extend(record.offset for record in records)
        if self._wanted & TIMESTAMP:
            self._timestamps.extend(_microseconds(record.timestamp) for record in records)
        if self._wanted & HEADERS:
            headers = [record.headers for record in records]
            self._headers += headers
            self.bytes += sum(len(key.encode()) + len(value or b"") for row in headers for key, value in row)

    def take(
        self,
    ) -> tuple[int, _Binary | None, _Binary | None, Readable | None, Readable | None, _Headers | None]:
        """Rows, key, value, offsets, timestamps, headers; then the decoder is empty."""
        wanted = self._wanted
        taken = (
            self.rows,
            _binary(self._keys) if wanted & KEY else None,
            _binary(self._values) if wanted & VALUE else None,
            self._offsets.tobytes() if wanted & OFFSET else None,
            self._timestamps.tobytes() if wanted & TIMESTAMP else None,
            _listed(self._headers) if wanted & HEADERS else None,
        )
        self._clear()
        return taken


def _microseconds(ms: int) -> int:
    # A producer may write a time that µs cannot hold; it must not make a batch unreadable.
    return max(_MIN_INT64, min(_MAX_INT64, ms * 1000))


def _binary(rows: Sequence[bytes | None]) -> _Binary:
    offsets = array("i", accumulate((len(row or b"") for row in rows), initial=0))
    validity = None
    if None in rows:
        bits = "".join("0" if row is None else "1" for row in reversed(rows))
        validity = int(bits, 2).to_bytes((len(rows) + 7) // 8, "little")
    return offsets.tobytes(), b"".join(row or b"" for row in rows), validity


def _listed(rows: Sequence[Headers]) -> _Headers:
    offsets = array("i", accumulate(map(len, rows), initial=0))
    keys = _binary([key.encode() for row in rows for key, _ in row])
    values = _binary([value for row in rows for _, value in row])
    return offsets.tobytes(), keys, values


def encode(
    key: BinaryColumn | None,
    value: BinaryColumn | None,
    headers: HeaderColumn | None,
    timestamps: Readable,
    rows: Readable,
    at: int,
    max_bytes: int,
) -> tuple[bytearray, int, int, int]:
    """The records of the rows from rows[at] on, with room for a batch's header before them.

    Stops before the batch would exceed `max_bytes`, but takes at least one record. Also returns the next
    position in `rows`, and the first and the latest timestamp in ms.
    """
    numbers, times = memoryview(rows).cast("B").cast("i"), memoryview(timestamps).cast("B").cast("q")
    key_of, value_of, headers_of = _rows_of(key), _rows_of(value), _headers_of(headers)
    out = bytearray(HEADER_SIZE)
    base = latest = NO_TIMESTAMP
    start = at
    for at in range(start, len(numbers)):
        row = numbers[at]
        if row < 0:
            raise IndexError("row number out of range")
        timestamp = times[row] // 1000
        if timestamp < NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {timestamp}")
        if at == start:
            base = timestamp
        record = encode_record(timestamp - base, at - start, key_of(row), value_of(row), headers_of(row))
        length = write_varint(len(record))
        if at > start and len(out) + len(length) + len(record) > max_bytes:
            return out, at, base, latest
        out += length
        out += record
        latest = max(latest, timestamp)
    return out, len(numbers), base, latest


def partitions(keys: BinaryColumn, rows: int, partitions: int, keyless: int) -> Readable:
    """The partition of each of the first `rows` keys, 32 bits each; `keyless` for null keys."""
    if partitions < 1:
        raise ValueError("a topic has one partition at least")
    key_of = _rows_of(keys)
    return array(
        "i",
        [keyless if (key := key_of(row)) is None else partition_of(key, partitions) for row in range(rows)],
    ).tobytes()


def group(numbers: Readable, groups: int) -> list[Readable]:
    """The rows of each group, 32 bits each, in order; `numbers` has the group of every row."""
    rows = [array("i") for _ in range(groups)]
    for row, number in enumerate(memoryview(numbers).cast("B").cast("i")):
        if not 0 <= number < groups:
            raise IndexError(f"row {row} is in group {number}, but there are only {groups}")
        rows[number].append(row)
    return [numbers.tobytes() for numbers in rows]


def _no_bytes(row: int) -> None:
    return None


def _no_headers(row: int) -> tuple[()]:
    return ()


def _rows_of(column: BinaryColumn | None) -> Callable[[int], memoryview | None]:
    if column is None:
        return _no_bytes
    data, span_of = memoryview(column.data).cast("B"), _spans(column.offsets, column.start, column.wide)
    is_valid = _validity_of(column.validity, column.start)

    def row_of(row: int) -> memoryview | None:
        if not is_valid(row):
            return None
        begin, end = span_of(row)
        if end > len(data):
            raise IndexError("column data is cut off")
        return data[begin:end]

    return row_of


def _headers_of(
    column: HeaderColumn | None,
) -> Callable[[int], Sequence[tuple[str, memoryview | None]]]:
    if column is None:
        return _no_headers
    key_of, value_of = _rows_of(column.keys), _rows_of(column.values)
    span_of = _spans(column.offsets, column.start, column.wide)
    is_valid = _validity_of(column.validity, column.start)

    def headers_of(row: int) -> Sequence[tuple[str, memoryview | None]]:
        if not is_valid(row):
            return ()
        headers = []
        for element in range(*span_of(row)):
            key = key_of(element)
            if key is None:
                raise InvalidRecord("a header has no key; give every header one")
            headers.append((str(key, "utf-8"), value_of(element)))
        return headers

    return headers_of


def _spans(offsets: Readable, start: int, wide: bool) -> Callable[[int], tuple[int, int]]:
    ends = memoryview(offsets).cast("B").cast("q" if wide else "i")

    def span_of(row: int) -> tuple[int, int]:
        begin, end = ends[start + row], ends[start + row + 1]
        if not 0 <= begin <= end:
            raise IndexError("column offsets do not rise")
        return begin, end

    return span_of


def _validity_of(validity: Readable | None, start: int) -> Callable[[int], bool]:
    if validity is None:
        return lambda row: True
    bits = memoryview(validity).cast("B")
    return lambda row: bits[(start + row) >> 3] >> ((start + row) & 7) & 1 == 1
