"""Builds a batch from messages."""

from collections.abc import Iterable

from crc32c import crc32c

from posthouse.model.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from posthouse.model.topic_config import TimestampType
from posthouse.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Readable,
)
from posthouse.records.compression import Codec, compress
from posthouse.records.varint import write_varint

_MAX_INT32 = (1 << 31) - 1
_MAX_INT64 = (1 << 63) - 1

# Encoded forms of small numbers, which nearly every record uses: a lookup is much faster than encoding.
_SMALL_LIMIT = 4096
_SMALL = tuple(write_varint(value) for value in range(_SMALL_LIMIT))
_NULL = write_varint(-1)
_NO_HEADERS = write_varint(0)


class BatchBuilder:
    """Collects records; `add` copies its arguments, so the caller may reuse its buffers."""

    __slots__ = (
        "_attributes",
        "_base_sequence",
        "_base_timestamp",
        "_codec",
        "_level",
        "_max_timestamp",
        "_producer_epoch",
        "_producer_id",
        "_records",
        "count",
    )

    def __init__(
        self,
        codec: Codec = Codec.NONE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        *,
        transactional: bool = False,
        control: bool = False,
        level: int | None = None,
    ) -> None:
        self._codec = codec
        self._level = level
        self._attributes = attributes_of(codec, timestamp_type, transactional=transactional, control=control)
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        # Room for the header, so that an uncompressed batch is built with one copy.
        self._records = bytearray(HEADER_SIZE)
        self.count = 0

    @property
    def size_estimate(self) -> int:
        """The batch's size without compression; exact for an uncompressed batch."""
        return len(self._records)

    def add(
        self,
        key: Readable | None,
        value: Readable | None,
        headers: Iterable[tuple[str, Readable | None]] = (),
        timestamp: int = NO_TIMESTAMP,
    ) -> None:
        """Append a record. On an error nothing is added."""
        count = self.count
        base = self._base_timestamp if count else timestamp
        if not NO_TIMESTAMP <= timestamp <= _MAX_INT64:
            raise InvalidTimestamp(f"timestamp {timestamp}")
        record = encode_record(timestamp - base, count, key, value, headers)
        size = len(record)
        self._records += _SMALL[size] if size < _SMALL_LIMIT else write_varint(size)
        self._records += record
        self._base_timestamp = base
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self.count = count + 1

    def add_raw(self, key: Readable | None, value: Readable, headers: bytes, timestamp: int) -> None:
        """The same with encoded headers, for the broker's own batches of published messages."""
        # Inlined, because this runs for every message of every queue.
        count, small, limit = self.count, _SMALL, _SMALL_LIMIT
        if not count:
            self._base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        delta, value_size = timestamp - self._base_timestamp, len(value)
        if key is None:
            encoded_key_size, key = _NULL, b""
        else:
            key_size = len(key)
            encoded_key_size = small[key_size] if key_size < limit else write_varint(key_size)
        record = b"".join(
            (
                b"\x00",
                small[delta] if 0 <= delta < limit else write_varint(delta),
                small[count] if count < limit else write_varint(count),
                encoded_key_size,
                key,
                small[value_size] if value_size < limit else write_varint(value_size),
                value,
                headers,
            )
        )
        size = len(record)
        self._records += small[size] if size < limit else write_varint(size)
        self._records += record
        self.count = count + 1

    def build(self, base_offset: int = 0) -> bytearray:
        """The valid batch with its checksum. The builder keeps its records and can be used further."""
        if not self.count:
            raise InvalidRecord("a batch needs a record")
        if self._codec is Codec.NONE:
            batch = self._records[:]
        else:
            batch = bytearray(HEADER_SIZE)
            batch += compress(self._codec, memoryview(self._records)[HEADER_SIZE:], self._level)
        write_header(
            batch,
            base_offset=base_offset,
            attributes=self._attributes,
            count=self.count,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._base_sequence,
        )
        return batch


def attributes_of(
    codec: Codec,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    *,
    transactional: bool = False,
    control: bool = False,
) -> int:
    return (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )


def write_header(
    batch: bytearray,
    *,
    base_offset: int,
    attributes: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Write the header, with the checksum, into the room at the front of `batch`."""
    size = len(batch)
    if size > _MAX_INT32:
        raise RecordTooLarge(f"batch of {size} bytes")
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        size - LOG_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    batch[CRC_AT:ATTRIBUTES_AT] = crc.to_bytes(4, "big")


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: Readable | None,
    value: Readable | None,
    headers: Iterable[tuple[str, Readable | None]],
) -> bytes:
    """One record without its length prefix."""
    return b"".join(
        (
            b"\x00",
            _SMALL[timestamp_delta] if 0 <= timestamp_delta < _SMALL_LIMIT else write_varint(timestamp_delta),
            _SMALL[offset_delta] if offset_delta < _SMALL_LIMIT else write_varint(offset_delta),
            _NULL if key is None else _length(key),
            key or b"",
            _NULL if value is None else _length(value),
            value or b"",
            _encode_headers(headers) if headers else _NO_HEADERS,
        )
    )


def _length(data: Readable) -> bytes:
    size = len(data)
    return _SMALL[size] if size < _SMALL_LIMIT else write_varint(size)


def _encode_headers(headers: Iterable[tuple[str, Readable | None]]) -> bytes:
    parts: list[Readable] = [b""]
    count = 0
    for name, value in headers:
        try:
            key = name.encode()
        except UnicodeEncodeError:
            raise InvalidRecord("header name is not valid Unicode") from None
        parts += (_length(key), key)
        parts += (_NULL,) if value is None else (_length(value), value)
        count += 1
    parts[0] = write_varint(count)
    return b"".join(parts)
