"""Reading the logs of a schedule in bounded pieces."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from posthouse.broker.schedule import keys
from posthouse.broker.schedule.bucket import Bucket
from posthouse.model.ids import PartitionId
from posthouse.records.batch import BatchHeader, iter_headers
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.records.spans import iter_spans
from posthouse.storage.contract import Storage

PIECE_BYTES = 256 * 1024
"""Bytes to read and decode before yielding to other tasks; more only if one batch is larger."""


class ScheduledBatches(NamedTuple):
    batches: list[tuple[BatchHeader, bytes]]
    following: int
    """The offset to continue from."""


async def read_piece(storage: Storage, partition: PartitionId, offset: int, end: int) -> ScheduledBatches:
    """The next batches from `offset` on that begin before `end`; none if the rest is damaged."""
    part = await storage.read(partition, offset, PIECE_BYTES)
    view = memoryview(part.data)
    batches = []
    following = end
    for position, header in iter_headers(view):
        if header.base_offset >= end:
            break
        if header.next_offset <= offset:
            continue  # the batches behind it are damaged, so it is returned as the nearest one
        batches.append((header, body_of(view[position : position + header.length], header)))
        following = header.next_offset
    return ScheduledBatches(batches, min(following, end))


def keys_in(piece: ScheduledBatches, bucket: Bucket, offset: int) -> Iterator[tuple[int, bytes]]:
    """Offset and key of each entry from `offset` on."""
    log, pack = bucket.log, keys.pack
    for header, data in piece.batches:
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        for start, _, end, delta, timestamp, sequence, _ in iter_spans(data, header):
            at = base_offset + delta
            if offset <= at < piece.following:
                assert sequence is not None, "every entry has a sequence"
                yield at, pack(base_timestamp + timestamp, sequence, log, at, end - start)


def records_in(piece: ScheduledBatches, offset: int) -> Iterator[RawRecord]:
    for header, data in piece.batches:
        yield from iter_raw(data, header, offset, piece.following)


async def read_records(
    storage: Storage, partition: PartitionId, offsets: Sequence[int]
) -> dict[int, RawRecord]:
    """The records at these rising offsets, without damaged ones."""
    found: dict[int, RawRecord] = {}
    end = offsets[-1] + 1
    done = 0
    while done < len(offsets):
        piece = await read_piece(storage, partition, offsets[done], end)
        for header, data in piece.batches:
            until = bisect_left(offsets, header.next_offset, done)
            if until > done:
                wanted = set(offsets[done:until])
                records = iter_raw(data, header, offsets[done], offsets[until - 1] + 1)
                found |= {record.offset: record for record in records if record.offset in wanted}
                done = until
        done = bisect_left(offsets, piece.following, done)
    return found
