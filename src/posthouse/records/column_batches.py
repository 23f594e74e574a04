"""Encodes columns to batches: rows of Arrow buffers become record batches without an object per row."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from posthouse.records.arrow_layout import BinaryColumn, RecordColumns
from posthouse.records.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Readable,
)
from posthouse.records.builder import attributes_of, write_header
from posthouse.records.columns import KERNEL, Kernel
from posthouse.records.compression import Codec, compress

DEFAULT_MAX_BYTES = 1_000_000


class EncodedBatch(NamedTuple):
    batch: bytearray
    count: int  # type: ignore[assignment]  # hides tuple.count, which a batch has no use for
    next_sequence: int
    """The base sequence of the next batch."""


def encode_batches(
    columns: RecordColumns,
    rows: Readable | None = None,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    kernel: Kernel = KERNEL,
) -> Iterator[EncodedBatch]:
    """Batches of the rows whose numbers (32 bits each) are in `rows`, in that order; None: of all rows.

    No batch is larger than `max_bytes` before compression, except for a single larger record.
    """
    if rows is None:
        rows = array("i", range(columns.rows)).tobytes()
    attributes = attributes_of(codec, transactional=transactional)
    at, total = 0, memoryview(rows).nbytes // 4
    while at < total:
        batch, behind, base_timestamp, max_timestamp = kernel.encode(
            columns.key, columns.value, columns.headers, columns.timestamps, rows, at, max_bytes
        )
        if codec is not Codec.NONE:
            records = memoryview(batch)[HEADER_SIZE:]
            batch = bytearray(HEADER_SIZE)
            batch += compress(codec, records, level)
        count = behind - at
        write_header(
            batch,
            base_offset=0,
            attributes=attributes,
            count=count,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        if base_sequence != NO_SEQUENCE:
            base_sequence = (base_sequence + count) & 0x7FFFFFFF
        yield EncodedBatch(batch, count, base_sequence)
        at = behind


def group_rows(numbers: Readable, groups: int, kernel: Kernel = KERNEL) -> list[Readable]:
    """The rows (32 bits each) of each group, in order; `numbers` (32 bits each) has the group of every
    row."""
    return kernel.group(numbers, groups)


def partitions_of(
    keys: BinaryColumn, rows: int, partitions: int, keyless: int, kernel: Kernel = KERNEL
) -> Readable:
    """The partition of each of the first `rows` keys, 32 bits each; `keyless` for null keys."""
    return kernel.partitions(keys, rows, partitions, keyless)
