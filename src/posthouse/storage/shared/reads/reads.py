"""Reading logs: the newest batches from memory, all others from runs and segments."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from posthouse.model.errors import (
    CorruptBatch,
    DataDamaged,
    OffsetOutOfRange,
    RecordTooLarge,
    UnknownPartition,
)
from posthouse.records.batch import Readable, iter_headers
from posthouse.records.record import iter_records
from posthouse.storage.bounds import Bounds, Slice, TimestampedOffset
from posthouse.storage.producers import AbortedTransaction
from posthouse.storage.shared.logs.shared_log import SharedLog, TailBatch
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.reads.found_pieces import KEPT_SECONDS, FoundPieces, RememberedPieces
from posthouse.storage.shared.reads.piece_reader import CheckedBatches, PieceReader
from posthouse.storage.shared.reads.pieces import find_pieces
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow

_ATTEMPTS = 5
"""Pieces move to segments while they are read, but not that often."""
_PAUSE_SECONDS = 0.02
_PIECES_AT_ONCE = 64
_MOST_BYTES = 2**40
_AHEAD = 2
"""With as much again as is asked for: a reader mostly goes on behind what it has read."""
_LATER = """
SELECT base FROM segment WHERE log = %(log)s AND last >= %(from)s AND max_time >= %(time)s
UNION ALL
SELECT run.base FROM run JOIN log ON log.id = run.log
 WHERE run.log = %(log)s AND run.base >= log.segments_to AND last >= %(from)s AND max_time >= %(time)s
 ORDER BY base LIMIT 1
"""
_LATEST = """
SELECT max(max_time) FROM (
    SELECT max_time FROM segment WHERE log = %(log)s AND last >= %(from)s
    UNION ALL
    SELECT max_time FROM run JOIN log ON log.id = run.log
     WHERE run.log = %(log)s AND run.base >= log.segments_to AND last >= %(from)s
) AS found
"""


_ABORTED = """
SELECT l.segments_to, a.producer, a.first, a.last
  FROM log l LEFT JOIN aborted a ON a.log = l.id AND box(point(a.log, a.first), point(a.log, a.last))
       && box(point(%(log)s, %(first)s), point(%(log)s, %(last)s))
 WHERE l.id = %(log)s
 ORDER BY a.last
"""


class Following(Protocol):
    """How a reader learns of what other brokers have written."""

    def watch(self, log: SharedLog) -> None:
        """A reader has read from memory, or is at the end of the log: it will ask again soon."""

    async def refresh(self, logs: Sequence[SharedLog]) -> None:
        """Bring the bounds of these logs up to date. Raises Unavailable."""


class Reads:
    def __init__(self, readers: Readers, pieces: PieceReader, following: Following) -> None:
        self._readers = readers
        self._pieces = pieces
        self._following = following
        self._remembered = RememberedPieces()

    async def close(self) -> None:
        await self._readers.close()

    def moved(self, log: SharedLog) -> None:
        """Compaction has replaced segments of the log."""
        self._remembered.forget(log.id)

    async def read(
        self, log: SharedLog, offset: int, max_bytes: int, at_least_one: bool, stable_only: bool
    ) -> Slice:
        if offset > log.end:
            await self._following.refresh([log])
        if not log.start <= offset <= log.end:
            raise OffsetOutOfRange(f"offset {offset} is outside {log.start} to {log.end}")
        bounds = log.bounds
        end = bounds.stable if stable_only else bounds.end
        if offset >= end:
            self._following.watch(log)
            return Slice(b"", bounds)
        if log.tail_start <= offset < log.tail_end:
            self._following.watch(log)  # memory does not tell that the log was trimmed elsewhere
            batches = _from_tail(log, offset, end, max_bytes, at_least_one)
            aborted: Sequence[AbortedTransaction] | None = ()
            if stable_only and any(each.header.is_transactional for each in batches):
                aborted = await self._aborted(log, offset, batches[-1].header.last_offset)
                _check_not_trimmed(log, offset)
            if aborted is not None:
                return Slice(_joined([each.data for each in batches]), bounds, aborted)
        return await self._cold(log, offset, bounds, end, max_bytes, at_least_one, stable_only)

    async def _aborted(self, log: SharedLog, first: int, last: int) -> list[AbortedTransaction] | None:
        """Those with records from `first` to `last`. None if the records are in segments: compaction may have
        removed them there, and the transactions from the table."""
        async with self._readers.connection(f"reading {log.name}") as connection:
            found = await connection.execute(_ABORTED.encode(), {"log": log.id, "first": first, "last": last})
            rows = await found.fetchall()
        if not rows or rows[0][0] > first:
            return None
        return [AbortedTransaction(*each[1:]) for each in rows if each[1] is not None]

    async def _cold(
        self,
        log: SharedLog,
        offset: int,
        bounds: Bounds,
        end: int,
        max_bytes: int,
        at_least_one: bool,
        stable_only: bool,
    ) -> Slice:
        chunks: list[Readable] = []
        room = max_bytes
        following = offset
        aborted: dict[int, AbortedTransaction] | None = {} if stable_only else None
        async for chunk in self._chunks(log, offset, end, max_bytes, aborted):
            # A chunk may begin before: the index of a segment does not know every batch.
            part, is_cut = _cut(chunk.data, following, end, room, at_least_one and not chunks)
            if chunks and len(part) and _base_offset(part) < following:
                break  # compaction has joined what follows with what was read: the next read returns that
            following = chunk.next
            if len(part):
                chunks.append(part)
                room -= len(part)
            if is_cut or room <= 0:
                break
        _check_not_trimmed(log, offset)
        return Slice(
            _joined(chunks),
            bounds,
            [aborted[marker] for marker in sorted(aborted)] if aborted else (),
        )

    async def _chunks(
        self,
        log: SharedLog,
        offset: int,
        end: int,
        max_bytes: int,
        aborted: dict[int, AbortedTransaction] | None = None,
    ) -> AsyncIterator[CheckedBatches]:
        """Checked batches from `offset` to before `end`. Aborted transactions with records in them are added
        to `aborted`, by the offset of the marker."""
        attempts = 0
        while offset < end:
            found = await self._found(log, offset, with_aborted=aborted is not None)
            pieces = found.window(offset, _AHEAD * max_bytes)
            await self._pieces.prepare(log, pieces)
            limit = end
            if aborted is not None:
                limit = min(end, found.stable)
                reached = min(limit, pieces[-1].last + 1 if pieces else offset)
                aborted.update(
                    (each.last_offset, each)
                    for each in found.aborted or ()
                    if each.last_offset >= offset and each.first_offset < reached
                )
            for piece in pieces:
                while offset <= piece.last and offset < limit:
                    chunk = await self._pieces.chunk(log, piece, offset)
                    if chunk is None:
                        break
                    attempts = 0
                    if aborted is not None and chunk.next > limit:
                        chunk = _below(chunk, limit)  # what follows was not decided when this was found
                    yield chunk
                    offset = chunk.next
                else:
                    continue
                break
            else:
                if pieces:
                    continue
            self._remembered.forget(log.id)
            attempts += 1
            if attempts == _ATTEMPTS:
                raise DataDamaged(f"{log.name}: no run or segment has the bytes of offset {offset}")
            await asyncio.sleep(_PAUSE_SECONDS * attempts)

    async def _found(self, log: SharedLog, offset: int, *, with_aborted: bool) -> FoundPieces:
        now = asyncio.get_running_loop().time()
        known = self._remembered.get(log.id, offset, now, with_aborted=with_aborted)
        if known is not None:
            self._following.watch(log)  # what is remembered does not tell that the log was trimmed elsewhere
            return known
        found = await self._find(log, offset, _PIECES_AT_ONCE, with_aborted=with_aborted)
        self._remembered.add(found)
        return found

    async def _find(
        self, log: SharedLog, offset: int, max_pieces: int, *, with_aborted: bool = False
    ) -> FoundPieces:
        stable, until = log.stable, asyncio.get_running_loop().time() + KEPT_SECONDS
        async with self._readers.connection(f"reading {log.name}") as connection:
            found = await find_pieces(
                connection,
                log.id,
                offset,
                max_bytes=_MOST_BYTES,
                max_rows=max_pieces,
                with_aborted=with_aborted,
            )
        if found is None:
            raise UnknownPartition(f"the topic of {log.name} is deleted")
        log.trim(found.start)
        if offset < found.start:
            raise OffsetOutOfRange(f"{log.name}: offset {offset} is no longer there")
        return FoundPieces(
            log=log.id,
            pieces=found.pieces,
            stable=stable,
            aborted=found.aborted if with_aborted else None,
            until=until,
        )

    async def find_timestamp(self, log: SharedLog, timestamp: int) -> TimestampedOffset | None:
        """Raises OffsetOutOfRange if the start of the log in the database stays ahead of that in memory."""
        offset = log.start
        attempts = 0
        while True:
            base = await self._one(_LATER, log, {"from": offset, "time": timestamp})
            if base is None:
                return None
            try:
                pieces = (await self._find(log, max(base, offset), 1)).pieces
                if not pieces:
                    raise OffsetOutOfRange(f"{log.name}: nothing is at offset {max(base, offset)}")
                found = await self._first_in(log, pieces[0], timestamp)
            except OffsetOutOfRange:
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS * attempts)
                offset = log.start  # it moved meanwhile
                continue
            if found is not None:
                return found
            offset = pieces[0].last + 1
            attempts = 0

    async def find_max_timestamp(self, log: SharedLog) -> TimestampedOffset | None:
        """Pieces know their highest timestamp, but its record may be below the start of the log."""
        highest = await self._one(_LATEST, log, {"from": log.start})
        if highest is None:
            return None
        found = await self.find_timestamp(log, highest)
        if found is not None and found.timestamp == highest:
            return found
        return await self._latest(log)

    async def _latest(self, log: SharedLog) -> TimestampedOffset | None:
        best: TimestampedOffset | None = None
        async for chunk in self._chunks(log, log.start, log.end, 2**20):
            for offset, timestamp in _times(log, chunk.data):
                if best is None or timestamp > best.timestamp:
                    best = TimestampedOffset(offset, timestamp)
        return best

    async def _first_in(
        self, log: SharedLog, piece: RunRow | SegmentRow, timestamp: int
    ) -> TimestampedOffset | None:
        start = max(piece.base, log.start)
        async for chunk in self._chunks(log, start, piece.last + 1, 2**20):
            for offset, time in _times(log, chunk.data, timestamp):
                if time >= timestamp:
                    return TimestampedOffset(offset, time)
        return None

    async def _one(self, statement: str, log: SharedLog, values: dict[str, int]) -> int | None:
        async with self._readers.connection(f"searching {log.name} by time") as connection:
            row = await (await connection.execute(statement.encode(), {"log": log.id} | values)).fetchone()
        return None if row is None else row[0]


def _check_not_trimmed(log: SharedLog, offset: int) -> None:
    """Of a read that has waited."""
    if log.start > offset:
        raise OffsetOutOfRange(f"offset {offset} is outside {log.start} to {log.end}")


def _from_tail(log: SharedLog, offset: int, end: int, max_bytes: int, at_least_one: bool) -> list[TailBatch]:
    found: list[TailBatch] = []
    room = max_bytes
    for batch in log.tail_from(offset):
        if batch.header.base_offset >= end or (batch.header.length > room and (found or not at_least_one)):
            break
        found.append(batch)
        room -= batch.header.length
    return found


def _below(chunk: CheckedBatches, limit: int) -> CheckedBatches:
    """The batches of the chunk before `limit`, at which a batch begins."""
    for position, header in iter_headers(chunk.data):
        if header.base_offset >= limit:
            return CheckedBatches(memoryview(chunk.data)[:position], chunk.base, limit)
    return chunk


def _base_offset(batches: Readable) -> int:
    _, header = next(iter(iter_headers(batches)))
    return header.base_offset


def _joined(chunks: Sequence[Readable]) -> Readable:
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _cut(data: Readable, offset: int, end: int, room: int, at_least_one: bool) -> tuple[memoryview, bool]:
    """The batches from the one that holds `offset` on, before `end`, that fit; whether any were left out."""
    view = memoryview(data)
    first = last = -1
    for position, header in iter_headers(data):
        if header.next_offset <= offset:
            continue
        if first < 0:
            first = last = position
        stop = position + header.length
        fits = stop - first <= room or (at_least_one and last == first)
        if header.base_offset >= end or not fits:
            return view[first:last], True
        last = stop
    return view[max(first, 0) : max(last, 0)], False


def _times(log: SharedLog, data: Readable, least: int = -(2**63)) -> list[tuple[int, int]]:
    """Offsets and timestamps of the records that can still be read, without batches before `least`."""
    found: list[tuple[int, int]] = []
    view = memoryview(data)
    for position, header in iter_headers(data):
        if header.max_timestamp < least or header.last_offset < log.start:
            continue
        try:
            records = list(iter_records(view[position : position + header.length]))
        except (CorruptBatch, RecordTooLarge):
            continue  # consumers cannot read it either
        found += [(each.offset, each.timestamp) for each in records if each.offset >= log.start]
    return found
