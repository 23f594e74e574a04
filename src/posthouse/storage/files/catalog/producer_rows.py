"""Producer state of partitions, as rows of the catalog's state (space 6), big-endian:

    key                           value
    partition, bucket i64         producers of a bucket, each: id i64, epoch i16, last time i64,
                                  open since i64, u8 count of batches, then each: first sequence i32,
                                  last sequence i32, base offset i64
    partition, "a", marker i64    an aborted transaction: producer id i64, first offset i64
    partition                     all of a partition at once, as format 1 has it: u32 count, the producers,
                                  u32 count, then each aborted transaction: producer id i64, first offset i64,
                                  last offset i64

A partition is its topic id and its number, u32; a bucket is the producer id without its low 6 bits. A
checkpoint writes only the rows that changed since the last one; recovery replays batches of the journal on
top of them. A row of format 1 is still read; the next change of its partition replaces it.
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.producers import AbortedTransaction, BatchMemory, Changes, Producer, ProducerTable

_PARTITION_BYTES = 20
_BUCKET = Struct(">q")
_MARKER = Struct(">cq")
_ABORTED_KEY = b"a"
_COUNT = Struct(">I")
_PRODUCER = Struct(">qhqqB")
_BATCH = Struct(">iiq")
_ABORTED = Struct(">qq")
_WHOLE_ABORTED = Struct(">qqq")


def partition_key(partition: PartitionId) -> bytes:
    """The prefix of the keys of all rows of a partition."""
    return partition.topic + partition.index.to_bytes(4, "big")


def partition_of(key: bytes) -> PartitionId:
    return PartitionId(TopicId(key[:16]), int.from_bytes(key[16:_PARTITION_BYTES], "big"))


def rows(partition: PartitionId, changes: Changes) -> dict[bytes, bytes | None]:
    """The changed rows; None for rows to remove."""
    start = partition_key(partition)
    found: dict[bytes, bytes | None] = {start: None} if changes.replaces_whole else {}
    for bucket, producers in changes.buckets.items():
        found[start + _BUCKET.pack(bucket)] = _encoded(producers) if producers else None
    for marker, aborted in changes.aborted.items():
        value = None if aborted is None else _ABORTED.pack(aborted.producer_id, aborted.first_offset)
        found[start + _MARKER.pack(_ABORTED_KEY, marker)] = value
    return found


def load(table: ProducerTable, key: bytes, value: bytes) -> None:
    """Load one row into the table. Raises DataDamaged."""
    try:
        rest = key[_PARTITION_BYTES:]
        if not rest:
            _load_whole(table, value)
        elif len(rest) == _BUCKET.size:
            position = 0
            while position < len(value):
                position = _load_producer(table, value, position)
        else:
            _, marker = _MARKER.unpack(rest)
            producer_id, first_offset = _ABORTED.unpack(value)
            table.load_aborted(AbortedTransaction(producer_id, first_offset, marker))
    except StructError as error:
        raise DataDamaged("the producer state of a partition cannot be decoded") from error


def _encoded(producers: Mapping[int, Producer]) -> bytes:
    parts = []
    for id, each in producers.items():
        parts.append(_PRODUCER.pack(id, each.epoch, each.last_time, each.open_since, len(each.batches)))
        parts += [_BATCH.pack(*batch) for batch in each.batches]
    return b"".join(parts)


def _load_producer(table: ProducerTable, data: bytes, position: int) -> int:
    """Load one producer; returns the position behind it."""
    id, epoch, last_time, open_since, batches = _PRODUCER.unpack_from(data, position)
    position += _PRODUCER.size
    end: int = position + batches * _BATCH.size
    if end > len(data):
        raise StructError("batches are missing")
    memory = tuple(BatchMemory(*batch) for batch in _BATCH.iter_unpack(data[position:end]))
    table.load_producer(id, Producer(epoch, memory, last_time, open_since))
    return end


def _load_whole(table: ProducerTable, data: bytes) -> None:
    [count] = _COUNT.unpack_from(data)
    position = _COUNT.size
    for _ in range(count):
        position = _load_producer(table, data, position)
    [count] = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    if len(data) != position + count * _WHOLE_ABORTED.size:
        raise StructError("aborted transactions are missing")
    for aborted in _WHOLE_ABORTED.iter_unpack(data[position:]):
        table.load_aborted(AbortedTransaction(*aborted))
    table.is_stored_whole = True
