"""Where the bytes of a log lie: in segments below `log.segments_to`, in runs from there on.

Housekeeping moves bytes from runs to segments while others read. One statement sees one state of the tables:
it locks the slots before it takes its snapshot, so no slot is truncated in between (a STABLE function has the
snapshot of its caller, taken before the locks). So `find_pieces` never misses bytes.

What it found can go before its bytes are read: inline data is truncated with its slot once its runs are in
segments. A reader that misses inline data calls `find_pieces` again. Objects stay for the grace period of
garbage collection, which is longer than any read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posthouse.model.errors import DataDamaged
from posthouse.storage.files.segments.header import Identity
from posthouse.storage.files.segments.index import SparseIndex, decode_blocks
from posthouse.storage.producers import AbortedTransaction
from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The bounds of a log, and consecutive pieces of it, all as of one moment."""

    start: int
    next: int
    pieces: Sequence[SegmentRow | RunRow]
    aborted: Sequence[AbortedTransaction] = ()
    """Those with records in the pieces, if they were asked for; others may be among them."""


_ABORTED = -1
"""In the column of the generation: the row is an aborted transaction."""
_PIECES = """
SELECT l.start, l.next, p.slot, p.base, p.last, p.inline, p.object, o.key, o.size AS object_size,
       p.pos, p.size, p.max_time, p.created_ms, p.refs, p.generation
FROM log l
LEFT JOIN LATERAL (
    (SELECT NULL::smallint AS slot, s.base, s.last, NULL::bigint AS inline, s.object, s.pos, s.size,
            s.max_time, s.created_ms, NULL::bytea AS refs, s.generation
     FROM segment s
     WHERE s.log = l.id AND s.last >= greatest(%(offset)s, l.start) AND s.base >= coalesce(
         (SELECT max(b.base) FROM segment b
           WHERE b.log = l.id AND b.base <= greatest(%(offset)s, l.start)), 0)
     ORDER BY s.base LIMIT %(rows)s)
    UNION ALL
    (SELECT r.slot, r.base, r.last, r.inline, r.object, r.pos::bigint, r.size::bigint,
            r.max_time, r.created_ms, r.refs, 0
     FROM run r
     WHERE r.log = l.id AND r.last >= greatest(%(offset)s, l.start) AND r.base >= greatest(l.segments_to,
         (SELECT max(b.base) FROM run b WHERE b.log = l.id AND b.base <= greatest(%(offset)s, l.start)))
     ORDER BY r.base LIMIT %(rows)s)
    ORDER BY base LIMIT %(rows)s
) p ON true
LEFT JOIN object o ON o.id = p.object
WHERE l.id = %(log)s AND NOT l.deleted
ORDER BY p.base
"""
# The index on boxes finds the transactions that reach into the pieces, among all that the log has. The first
# piece counts as a whole: what is found is remembered, also for readers at an earlier offset of that piece.
# One statement, so that both are of one moment: compaction removes a transaction from `aborted` once none of
# its records is left.
_PIECES_AND_ABORTED = f"""
WITH found AS MATERIALIZED ({_PIECES})
SELECT * FROM found
UNION ALL
SELECT NULL, NULL, NULL, a.first, a.last, a.producer, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       {_ABORTED}
FROM aborted a
WHERE a.log = %(log)s
  AND box(point(a.log, a.first), point(a.log, a.last)) && (
      SELECT box(point(%(log)s, min(base)), point(%(log)s, max(last)))
      FROM (SELECT base, last, sum(size) OVER (ORDER BY base) - size AS before FROM found) AS counted
      WHERE before < %(bytes)s)
"""


async def find_pieces(
    connection: DatabaseConnection,
    log: int,
    offset: int,
    *,
    max_bytes: int,
    max_rows: int = 256,
    with_aborted: bool = False,
) -> Pieces | None:
    """The pieces from the one that holds `offset` on: at least one, then up to `max_bytes`.

    None if the log does not exist or its topic is deleted. Raises DataDamaged if no piece holds `offset`, but
    the log ends behind it.
    """
    statement = _PIECES_AND_ABORTED if with_aborted else _PIECES
    wanted = {"log": log, "offset": offset, "rows": max_rows, "bytes": max_bytes}
    found = await connection.execute(statement.encode(), wanted)
    rows = await found.fetchall()
    aborted: list[AbortedTransaction] = []
    if with_aborted:
        aborted = [AbortedTransaction(row[5], row[3], row[4]) for row in rows if row[-1] == _ABORTED]
        rows = [row for row in rows if row[-1] != _ABORTED]
    if not rows:
        return None
    start, end = rows[0][:2]
    pieces: list[SegmentRow | RunRow] = []
    expected, room = max(offset, start), max_bytes
    for row in rows:
        if row[3] is None:
            break
        piece = _piece(log, row[2:])
        if piece.last < expected:
            continue
        if piece.base > expected or (pieces and piece.size > room):
            break
        room -= piece.size
        pieces.append(piece)
        expected = piece.last + 1
    if not pieces and expected < end:
        raise DataDamaged(f"log {log} ends at {end}, but no run or segment holds offset {expected}")
    return Pieces(start=start, next=end, pieces=pieces, aborted=aborted)


def _piece(log: int, row: tuple[Any, ...]) -> SegmentRow | RunRow:
    (
        slot,
        base,
        last,
        inline,
        object_id,
        key,
        object_size,
        pos,
        size,
        max_time,
        created_ms,
        refs,
        generation,
    ) = row
    if slot is None:
        return SegmentRow(
            log=log,
            base=base,
            last=last,
            object=object_id,
            key=key,
            object_size=object_size,
            pos=pos,
            size=size,
            max_time=max_time,
            created_ms=created_ms,
            generation=generation,
        )
    return RunRow(
        log=log,
        base=base,
        last=last,
        slot=slot,
        inline=inline,
        object=object_id,
        key=key,
        object_size=object_size,
        pos=pos,
        size=size,
        max_time=max_time,
        created_ms=created_ms,
        refs=refs,
    )


async def read_inline(connection: DatabaseConnection, run: RunRow) -> bytes | None:
    """The bytes of an inline run; None if its slot was truncated: then the run is in a segment."""
    found = await connection.execute(
        "SELECT substring(data FROM %s FOR %s) FROM inline_data WHERE slot = %s AND id = %s",
        [run.pos + 1, run.size, run.slot, run.inline],
    )
    row = await found.fetchone()
    return None if row is None else row[0]


async def read_inline_runs(connection: DatabaseConnection, runs: Sequence[RunRow]) -> list[bytes | None]:
    """The same for several runs, by one query."""
    found = await connection.execute(
        """
        SELECT substring(data.data FROM wanted.pos + 1 FOR wanted.size)
          FROM unnest(%s::smallint[], %s::bigint[], %s::integer[], %s::integer[]) WITH ORDINALITY
               AS wanted (slot, id, pos, size, place)
          LEFT JOIN inline_data AS data ON data.slot = wanted.slot AND data.id = wanted.id
         ORDER BY wanted.place
        """,
        [
            [run.slot for run in runs],
            [run.inline for run in runs],
            [run.pos for run in runs],
            [run.size for run in runs],
        ],
    )
    return [row[0] for row in await found.fetchall()]


async def read_index(
    connection: DatabaseConnection, segment: SegmentRow, identity: Identity
) -> SparseIndex | None:
    """The index of a segment; its positions count from the start of the segment. None if the row is gone.

    Raises DataDamaged if the index is not that of this segment.
    """
    found = await connection.execute(
        "SELECT index FROM segment WHERE log = %s AND base = %s AND generation = %s",
        [segment.log, segment.base, segment.generation],
    )
    row = await found.fetchone()
    if row is None:
        return None
    index, is_whole = decode_blocks(row[0], 0, segment.size, identity.checksum)
    if not is_whole or index.covered != segment.size:
        raise DataDamaged(f"log {segment.log}: the index of the segment at {segment.base} is damaged")
    return index
