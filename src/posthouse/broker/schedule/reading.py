"""Reading the logs of a schedule in bounded pieces."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from posthouse.broker.schedule import keys
from posthouse.broker.schedule.bucket import Bucket
from posthouse.model.ids import PartitionId
from posthouse.records.batch import BatchHeader, iter_headers
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.records.spans import iter_spans
from posthouse.storage.interface import Storage

PIECE_BYTES = 256 * 1024
"""As much is read and decoded before others get their turn; more only if one batch is larger."""


class Piece(NamedTuple):
    batches: list[tuple[BatchHeader, bytes]]
    following: int
    """The offset to go on from."""


async def read_piece(storage: Storage, partition: PartitionId, offset: int, end: int) -> Piece:
    """The next batches from `offset` on that begin before `end`; none where the rest is damaged."""
    part = await storage.read(partition, offset, PIECE_BYTES)
    view = memoryview(part.data)
    batches = []
    following = end
    for position, header in iter_headers(view):
        if header.base_offset >= end:
            break
        batches.append((header, body_of(view[position : position + header.length], header)))
        following = header.next_offset
    return Piece(batches, min(following, end))


def keys_in(piece: Piece, bucket: Bucket, offset: int) -> Iterator[tuple[int, bytes]]:
    """Offset and key of each entry from `offset` on."""
    log, pack = bucket.log, keys.pack
    for header, data in piece.batches:
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        for start, _, end, delta, timestamp, sequence, _ in iter_spans(data, header):
            at = base_offset + delta
            if offset <= at < piece.following:
                assert sequence is not None, "every entry has a sequence"
                yield at, pack(base_timestamp + timestamp, sequence, log, at, end - start)


def records_in(piece: Piece, offset: int) -> Iterator[RawRecord]:
    for header, data in piece.batches:
        yield from iter_raw(data, header, offset, piece.following)


async def read_records(
    storage: Storage, partition: PartitionId, offsets: Sequence[int]
) -> dict[int, RawRecord]:
    """The records at rising `offsets`; without those that are damaged."""
    found: dict[int, RawRecord] = {}
    wanted = iter(offsets)
    offset = next(wanted, None)
    end = offsets[-1] + 1 if offsets else 0
    while offset is not None:
        piece = await read_piece(storage, partition, offset, end)
        for header, data in piece.batches:
            for record in iter_raw(data, header, offset, end) if header.next_offset > offset else ():
                if record.offset < offset:
                    continue
                while offset is not None and offset < record.offset:  # damaged
                    offset = next(wanted, None)
                if offset == record.offset:
                    found[offset] = record
                    offset = next(wanted, None)
                if offset is None:
                    return found
        while offset is not None and offset < piece.following:
            offset = next(wanted, None)
    return found
