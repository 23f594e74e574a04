"""The rows of a manifest: the segments of ranges of logs, and the aborted transactions in them.

The statements of a manifest run in one transaction with one snapshot. Compaction removes a transaction from
`aborted` once none of its records is left: a later list would miss those that the older segments still have.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from posthouse.model.ids import TopicId
from posthouse.storage.producers import AbortedTransaction
from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.reads.runs import SegmentRow

_HAS_SEGMENTS = """
SELECT EXISTS (
    SELECT FROM unnest(%s::integer[], %s::bigint[]) AS w(log, first)
    JOIN log l ON l.id = w.log WHERE w.first < l.segments_to)
"""
_SEGMENTS = """
SELECT w.place, l.start, coalesce(undecided.since, l.next), s.base, s.last, s.object, o.key, o.size, s.pos,
       s.size, s.max_time, s.created_ms, s.generation
FROM unnest(%(logs)s::integer[], %(firsts)s::bigint[], %(ends)s::bigint[]) WITH ORDINALITY
     AS w(log, first, before, place)
JOIN log l ON l.id = w.log AND NOT l.deleted
CROSS JOIN LATERAL (
    SELECT min(p.open_since) AS since FROM producer p WHERE p.log = l.id AND p.open_since >= 0
) AS undecided
LEFT JOIN LATERAL (
    SELECT f.base, f.last, f.object, f.pos, f.size, f.max_time, f.created_ms, f.generation FROM segment f
    WHERE f.log = l.id AND f.last >= w.first AND f.base < w.before
      AND f.base >= coalesce((SELECT max(b.base) FROM segment b WHERE b.log = l.id AND b.base <= w.first), 0)
    ORDER BY f.base LIMIT %(rows)s
) AS s ON true
LEFT JOIN object o ON o.id = s.object
ORDER BY w.place, s.base
"""
_ABORTED = """
SELECT w.place, a.producer, a.first, a.last
FROM unnest(%s::bigint[], %s::integer[], %s::bigint[], %s::bigint[]) AS w(place, log, first, last)
JOIN aborted a ON a.log = w.log
 AND box(point(a.log, a.first), point(a.log, a.last)) && box(point(w.log, w.first), point(w.log, w.last))
ORDER BY w.place, a.last
"""
_OWNERS = """
SELECT s.object, array_agg(DISTINCT l.topic) FILTER (WHERE NOT l.deleted),
       bool_or(l.deleted) OR sum(s.size) < min(o.size)
FROM segment s JOIN log l ON l.id = s.log JOIN object o ON o.id = s.object
WHERE s.object = ANY (%s::bigint[]) GROUP BY s.object
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    log: int
    first: int
    end: int


@dataclass(slots=True, kw_only=True)
class RangeRows:
    """What the database has of a range."""

    start: int
    """The first offset of the log."""
    stable: int
    """Every transaction below is decided."""
    segments: list[SegmentRow] = field(default_factory=list)
    next: int | None = None
    """The offset behind the segments if there may be more; None if these are all."""
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def limit_aborted(self, most: int) -> None:
        """Leave out the last segments if those before them have `most` aborted transactions already."""
        if len(self.aborted) <= most:
            return
        firsts = sorted(each.first_offset for each in self.aborted)
        kept = [each for each in self.segments if bisect_right(firsts, each.last) <= most]
        left_out = self.segments[len(kept)]
        # Brokers have the first segment, which alone has too many.
        self.next = left_out.base if kept else left_out.last + 1
        self.segments = kept
        end = self.next
        self.aborted = [each for each in self.aborted if kept and each.first_offset < end]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOwners:
    """Whose records an object has."""

    topics: Sequence[TopicId]
    has_others: bool
    """It has records of segments that are not there any more, or of deleted topics."""


async def has_segments(connection: DatabaseConnection, wanted: Sequence[LogRange]) -> bool:
    """Whether any of the ranges may have some. Cheap: streams that have caught up ask often."""
    found = await connection.execute(
        _HAS_SEGMENTS, [[each.log for each in wanted], [each.first for each in wanted]]
    )
    [(has,)] = await found.fetchall()
    return bool(has)


async def find_segments(
    connection: DatabaseConnection, wanted: Sequence[LogRange], *, rows: int
) -> list[RangeRows | None]:
    """At most `rows` segments of each range; None for a log that is deleted."""
    found = await connection.execute(
        _SEGMENTS,
        {
            "logs": [each.log for each in wanted],
            "firsts": [each.first for each in wanted],
            "ends": [each.end for each in wanted],
            "rows": rows,
        },
    )
    ranges: list[RangeRows | None] = [None] * len(wanted)
    for place, start, stable, *segment in await found.fetchall():
        known = ranges[place - 1]
        if known is None:
            known = ranges[place - 1] = RangeRows(start=start, stable=stable)
        if segment[0] is not None:
            known.segments.append(_segment(wanted[place - 1].log, *segment))
            if len(known.segments) == rows:
                known.next = known.segments[-1].last + 1
    return ranges


def _segment(
    log: int,
    base: int,
    last: int,
    object_id: int,
    key: str,
    object_size: int,
    pos: int,
    size: int,
    max_time: int,
    created_ms: int,
    generation: int,
) -> SegmentRow:
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


async def find_aborted(
    connection: DatabaseConnection, wanted: Sequence[LogRange], ranges: Sequence[RangeRows | None]
) -> None:
    """Add the aborted transactions with records in the segments."""
    covered = [
        (place, each.log, each.first, rows.segments[-1].last)
        for place, (each, rows) in enumerate(zip(wanted, ranges, strict=True))
        if rows is not None and rows.segments
    ]
    found = await connection.execute(_ABORTED, [list(column) for column in zip(*covered, strict=True)])
    for place, producer, first, last in await found.fetchall():
        rows = ranges[place]
        assert rows is not None
        rows.aborted.append(AbortedTransaction(producer, first, last))


async def owners_of(connection: DatabaseConnection, objects: Sequence[int]) -> dict[int, ObjectOwners]:
    """By object."""
    found = await connection.execute(_OWNERS, [list(objects)])
    return {
        object_id: ObjectOwners(topics=[_topic(each) for each in topics or ()], has_others=has_others)
        for object_id, topics, has_others in await found.fetchall()
    }


def _topic(id: UUID) -> TopicId:
    return TopicId(id.bytes)
