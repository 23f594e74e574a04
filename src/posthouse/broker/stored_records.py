"""Reading the broker's own logs in bounded pieces."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from posthouse.model.ids import PartitionId
from posthouse.records.batch import BatchHeader, iter_headers
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.storage.contract import Storage

PIECE_BYTES = 256 * 1024
"""Bytes to read and decode before yielding to other tasks; more only if one batch is larger."""


class Piece(NamedTuple):
    batches: list[tuple[BatchHeader, bytes]]
    following: int
    """The offset to continue from."""


async def read_piece(storage: Storage, partition: PartitionId, offset: int, end: int) -> Piece:
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
    return Piece(batches, min(following, end))


def records_in(piece: Piece, offset: int) -> Iterator[RawRecord]:
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
