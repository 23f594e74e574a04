"""Read-only verification of the shared storage: rows against objects, offsets without gaps, checksums.

Works while a broker writes: every look at a log is one statement. If the bytes of a piece are missing, the
log is looked at again before that is a finding, because housekeeping may have moved them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import iter_headers
from posthouse.storage.files.segments.header import Identity
from posthouse.storage.shared.administration.segment_check import SegmentCheck
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.reads.pieces import find_pieces, read_inline
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow, batches_of

_BYTES_AT_ONCE = 8 * 1024 * 1024

_LOGS = """
SELECT l.id, t.name, l.topic, l.partition FROM log l JOIN topic t ON t.id = l.topic
WHERE t.deleted_at IS NULL AND l.id > %s ORDER BY l.id LIMIT 1000
"""

_MISCOUNTED = """
SELECT o.key, o.live, u.uses, o.doomed_at IS NOT NULL
FROM object o
LEFT JOIN (
    SELECT object, count(*) AS uses FROM (
        SELECT s.object FROM segment s
        UNION ALL
        SELECT r.object FROM run r JOIN log l ON l.id = r.log AND r.base >= l.segments_to
        WHERE r.object IS NOT NULL
    ) AS used GROUP BY object
) u ON u.object = o.id
WHERE o.live <> coalesce(u.uses, 0) OR (o.live = 0) <> (o.doomed_at IS NOT NULL)
ORDER BY o.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFinding:
    place: str
    """A log, or the key of an object."""
    problem: str
    is_damage: bool = True
    """Whether records cannot be read; otherwise only the bookkeeping is wrong."""


@dataclass(slots=True)
class SharedTally:
    logs: int = 0
    segments: int = 0
    runs: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0


class _Moved(Exception):
    """The bytes of a piece are not where they were: look for it again."""


class SharedVerification:
    """One pass: iterate `findings` to the end, then read `tally`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        objects: HousekeptObjects,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._connect = connect
        self._objects = objects
        self._on_progress = on_progress
        self.tally = SharedTally()

    async def total_bytes(self) -> int:
        """Bytes to check, for a progress bar."""
        async with await self._connect() as connection, meaning("counting bytes"):
            found = await connection.execute("SELECT coalesce(sum(bytes), 0)::bigint FROM log")
            row = await found.fetchone()
        return 0 if row is None else int(row[0])

    async def findings(self) -> AsyncIterator[SharedFinding]:
        async with await self._connect() as connection, meaning("verifying"):
            last = 0
            while rows := await (await connection.execute(_LOGS, [last])).fetchall():
                for id, name, topic, index in rows:
                    partition = PartitionId(TopicId(topic.bytes), index)
                    async for problem in self._check_log(connection, id, partition):
                        yield SharedFinding(place=f"{name}-{index}", problem=problem)
                    self.tally.logs += 1
                last = rows[-1][0]
            for key, live, uses, is_doomed in await (await connection.execute(_MISCOUNTED)).fetchall():
                doomed = ", and it is doomed" if is_doomed else ""
                problem = f"{live} uses are noted, {uses or 0} are found{doomed}"
                yield SharedFinding(place=key, problem=problem, is_damage=is_doomed and bool(uses))

    async def _check_log(
        self, connection: DatabaseConnection, log: int, partition: PartitionId
    ) -> AsyncIterator[str]:
        offset, has_moved = 0, False
        while True:
            try:
                found = await find_pieces(connection, log, offset, max_bytes=_BYTES_AT_ONCE)
            except DataDamaged as error:
                yield str(error)
                return
            if found is None or not found.pieces:
                return
            for piece in found.pieces:
                try:
                    for problem in await self._check_piece(connection, partition, piece):
                        yield f"{piece.place}: {problem}"
                except DataDamaged as error:
                    yield str(error)
                except _Moved as error:
                    if not has_moved:
                        has_moved = True
                        break
                    yield f"{piece.place}: {error}"
                offset, has_moved = piece.last + 1, False
                self.tally.bytes += piece.size
                self._on_progress(piece.size)

    async def _check_piece(
        self, connection: DatabaseConnection, partition: PartitionId, piece: SegmentRow | RunRow
    ) -> list[str]:
        if isinstance(piece, RunRow):
            await self._check_run(connection, piece)
            return []
        found = await connection.execute(
            "SELECT index FROM segment WHERE log = %s AND base = %s AND generation = %s",
            [piece.log, piece.base, piece.generation],
        )
        row = await found.fetchone()
        if row is None:
            raise _Moved("the segment is gone")
        data = bytes(await self._objects.read(piece.key, piece.pos, piece.size))
        identity = Identity(partition, piece.base, piece.generation)
        check = SegmentCheck(data, identity, piece.last + 1, row[0])
        self.tally.segments += 1
        self.tally.batches += check.batches
        self.tally.records += check.records
        return check.problems

    async def _check_run(self, connection: DatabaseConnection, run: RunRow) -> None:
        data: bytes | memoryview = b""
        if run.key is not None:
            data = await self._objects.read(run.key, run.pos, run.size)
        elif run.inline is not None:
            inline = await read_inline(connection, run)
            if inline is None:
                raise _Moved("the inline data is missing")
            data = inline
        batches = batches_of(run, data)
        self.tally.runs += 1
        for _, header in iter_headers(batches):
            self.tally.batches += 1
            self.tally.records += header.count
