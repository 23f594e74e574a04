"""References: the entries of a queue's own log, which point to messages in topics.

A reference log is a log of batches as any other. Each of its batches has one record, whose value is runs of
references, big-endian, one after the other:

    offset  size  field
         0    16  topic id
        16     4  partition
        20     8  offset        of the first record referred to
        28     4  count         of records, each one offset after the one before
        32     8  expires       ms since the epoch; 0: never. In the log of a stream: when they arrived
        40     8  bytes         of the values of these records together

The batch covers as many offsets as it has references, so that an offset in a reference log is the position of
one message in its queue. Its base timestamp is the earliest of these times, -1 where there is none.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from posthouse.model.errors import CorruptBatch
from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Readable,
    stamp,
)
from posthouse.records.builder import encode_record
from posthouse.records.record import iter_records
from posthouse.records.varint import write_varint

NEVER = 0

_RUN = Struct(">16sIqIqQ")


class Reference(NamedTuple):
    """Consecutive records of one partition."""

    partition: PartitionId
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    expires_ms: int
    size: int


def pack_references(references: Sequence[Reference]) -> bytes:
    """The value of the record of a batch of references."""
    return b"".join(
        _RUN.pack(
            each.partition.topic, each.partition.index, each.first, each.count, each.expires_ms, each.size
        )
        for each in references
    )


def build_references(references: Sequence[Reference]) -> bytearray:
    """One batch with an offset for each referenced record."""
    value = pack_references(references)
    expiring = [each.expires_ms for each in references if each.expires_ms != NEVER]
    return _batch(value, sum(each.count for each in references), min(expiring, default=NO_TIMESTAMP))


def references_batch(value: Readable, base_offset: int) -> bytearray:
    """The batch whose record has this value, with its offset: what `build_references` makes, and `stamp`.

    Raises CorruptBatch if the value is not one of references.
    """
    count, earliest = 0, NO_TIMESTAMP
    try:
        for _, _, _, records, expires, _ in _RUN.iter_unpack(value):
            count += records
            if expires != NEVER and (earliest == NO_TIMESTAMP or expires < earliest):
                earliest = expires
    except StructError:
        count = 0
    if not count:
        raise CorruptBatch(f"{len(value)} bytes at {base_offset} are not references")
    batch = _batch(value, count, earliest)
    stamp(batch, base_offset, LEADER_EPOCH)
    return batch


def _batch(value: Readable, count: int, earliest: int) -> bytearray:
    record = encode_record(0, 0, None, value, ())
    batch = bytearray(HEADER_SIZE)
    batch += write_varint(len(record))
    batch += record
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        0,
        count - 1,
        earliest,
        earliest,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        1,
    )
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return batch


def iter_references(batch: Readable, header: BatchHeader) -> Iterator[tuple[int, Reference]]:
    """Each run with the position of its first reference."""
    position = header.base_offset
    for record in iter_records(batch):
        try:
            for topic, index, first, count, expires, size in _RUN.iter_unpack(record.value or b""):
                partition = PartitionId(TopicId(topic), index)
                yield position, Reference(partition, first, count, expires, size)
                position += count
        except StructError:
            raise CorruptBatch(f"references at {header.base_offset} are cut off") from None
