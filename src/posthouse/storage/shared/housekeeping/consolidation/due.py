"""Which logs are due for consolidation, and their runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.reads.runs import RunRow

_DUE = """
SELECT l.id, l.topic, l.partition, l.start, l.segments_to, d.size, d.runs, d.oldest
FROM (
    SELECT r.log, sum(r.size)::bigint AS size, count(*)::integer AS runs, min(r.created_ms) AS oldest
    FROM run r JOIN log b ON b.id = r.log
    WHERE r.base >= b.segments_to AND {of_logs}
    GROUP BY r.log
    HAVING sum(r.size) >= %(bytes)s OR min(r.created_ms) <= %(created)s OR max(r.created_ms) >= %(ahead)s
) d
JOIN log l ON l.id = d.log
JOIN topic t ON t.id = l.topic AND t.deleted_at IS NULL
ORDER BY l.id
"""

# Two statements, because one with an optional condition is planned without the index.
_DUE_OF_SHARDS = _DUE.format(of_logs="shard_of_log(r.log) = ANY (%(shards)s)")
_DUE_OF_SOME = _DUE.format(of_logs="r.log = ANY (%(logs)s)")

_RUNS = """
SELECT r.log, r.base, r.last, r.slot, r.inline, r.object, o.key, o.size AS object_size, r.pos, r.size,
       r.max_time, r.created_ms, r.refs
FROM unnest(%s::integer[], %s::bigint[]) AS w(log, base)
CROSS JOIN LATERAL (
    SELECT * FROM run WHERE run.log = w.log AND run.base >= w.base ORDER BY run.base LIMIT %s
) r
LEFT JOIN object o ON o.id = r.object
ORDER BY r.log, r.base
"""

_NEVER_MS = 2**63 - 1

_COLUMNS = (
    "log",
    "base",
    "last",
    "slot",
    "inline",
    "object",
    "key",
    "object_size",
    "pos",
    "size",
    "max_time",
    "created_ms",
    "refs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLog:
    """A log as of one moment; `size` and `runs` are those of its runs."""

    id: int
    partition: PartitionId
    config: TopicConfig
    start: int
    segments_to: int
    size: int
    runs: int
    oldest_ms: int


async def due_logs(
    connection: DatabaseConnection,
    topics: Mapping[TopicId, Topic],
    *,
    size: int,
    created_ms: int,
    shards: Sequence[int] = (),
    ahead_ms: int | None = None,
    logs: Sequence[int] | None = None,
) -> list[DueLog]:
    """Logs with runs of at least `size` bytes, with a run from `created_ms` or before, or with one from
    `ahead_ms` or after, by id. The clock of a broker is ahead then, or was: such a run would wait for long.

    Of all logs of `topics` that are in these shards, or of those that `logs` names, in any shard.
    """
    wanted = {"bytes": size, "created": created_ms, "ahead": _NEVER_MS if ahead_ms is None else ahead_ms}
    found = (
        await connection.execute(_DUE_OF_SHARDS, wanted | {"shards": list(shards)})
        if logs is None
        else await connection.execute(_DUE_OF_SOME, wanted | {"logs": list(logs)})
    )
    return [
        DueLog(
            id=id,
            partition=PartitionId(topic.id, index),
            config=topic.config,
            start=start,
            segments_to=segments_to,
            size=run_bytes,
            runs=runs,
            oldest_ms=oldest,
        )
        for id, topic_id, index, start, segments_to, run_bytes, runs, oldest in await found.fetchall()
        if (topic := topics.get(TopicId(topic_id.bytes))) is not None
    ]


async def runs_of(
    connection: DatabaseConnection, logs: Sequence[tuple[int, int]], *, limit: int
) -> dict[int, list[RunRow]]:
    """The runs of logs, each from an offset on, at most `limit` of each."""
    found = await connection.execute(_RUNS, [[log for log, _ in logs], [base for _, base in logs], limit])
    by_log: dict[int, list[RunRow]] = {log: [] for log, _ in logs}
    for row in await found.fetchall():
        run = RunRow(**dict(zip(_COLUMNS, row, strict=True)))
        by_log[run.log].append(run)
    return by_log
