"""The segments of logs, page by page, for merging."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.housekeeping.merging.tiers import SmallSegment

# The page is cut before the joins: the primary key has its order, so a page reads no more than its rows, and
# those of other shards in between.
_PAGE = """
SELECT s.log, l.topic, l.partition, s.last >= l.start, s.base, s.last, o.key, s.pos, s.size, s.max_time,
       s.created_ms, s.generation, s.horizon
FROM (SELECT * FROM segment WHERE (log, base) > (%s, %s) AND shard_of_log(log) = ANY (%s)
      ORDER BY log, base LIMIT %s) s
JOIN log l ON l.id = s.log
JOIN object o ON o.id = s.object
ORDER BY s.log, s.base
"""

_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedLog:
    id: int
    partition: PartitionId
    segments: list[SmallSegment]
    """Those that are not below the start of the log."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last segment that was looked at."""

    log: int = 0
    base: int = _LAST


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    logs: list[SegmentedLog]
    next: Cursor


async def page_behind(
    connection: DatabaseConnection, cursor: Cursor, rows: int, shards: Sequence[int]
) -> LogPage:
    """Logs of these shards with all their segments; a log with more than `rows` comes in parts. Begins again
    at the end."""
    wanted = [cursor.log, cursor.base, list(shards), rows]
    found = await (await connection.execute(_PAGE, wanted)).fetchall()
    by_id: dict[int, SegmentedLog] = {}
    for log, topic, index, is_live, *values in found:
        if log not in by_id:
            partition = PartitionId(TopicId(topic.bytes), index)
            by_id[log] = SegmentedLog(id=log, partition=partition, segments=[])
        if is_live:
            by_id[log].segments.append(_segment(*values))
    logs = list(by_id.values())
    if len(found) < rows:
        return LogPage(logs=logs, next=Cursor())
    if len(logs) == 1:
        return LogPage(logs=logs, next=Cursor(logs[0].id, found[-1][4]))
    return LogPage(logs=logs[:-1], next=Cursor(logs[-2].id))


def _segment(
    base: int,
    last: int,
    key: str,
    pos: int,
    size: int,
    max_time: int,
    created_ms: int,
    generation: int,
    horizon: int,
) -> SmallSegment:
    return SmallSegment(
        base=base,
        last=last,
        key=key,
        pos=pos,
        size=size,
        max_time=max_time,
        created_ms=created_ms,
        generation=generation,
        horizon=horizon,
    )
