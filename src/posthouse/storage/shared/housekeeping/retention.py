"""Retention: removes expired records of logs, except those that consumers or queues still need.

The rules are those of the file engine, for pieces (segments and runs) instead of segment files. Retention
moves starts only, by ordinary commits; `Removal` removes what lies below them. Each broker does it for the
logs that it cleans (`KeptLogs`). The commits name the scopes of these logs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import Scope, scope_of_log
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation, Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.retention import KeptElsewhere, Needed, checked_archived
from posthouse.storage.shared.database import DatabaseConnection, ScopeNeeded, meaning
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.fresh_view import FreshView
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs

_LOGS_AT_ONCE = 500
_PIECES_AT_ONCE = 1000
"""Of one log."""
_PRODUCERS_AT_ONCE = 1000
_TRIMS_AT_ONCE = 100
"""In one commit: it locks their logs."""

_PIECES = """
SELECT l.id, l.topic, l.partition, l.start, l.next, p.last, p.size, p.max_time, p.created_ms
FROM log l
CROSS JOIN LATERAL (
    (SELECT s.base, s.last, s.batch_bytes AS size, s.max_time, s.created_ms FROM segment s
     WHERE s.log = l.id AND s.last >= l.start AND s.base >= coalesce(
         (SELECT max(b.base) FROM segment b WHERE b.log = l.id AND b.base <= l.start), 0)
     ORDER BY s.base LIMIT %(pieces)s)
    UNION ALL
    (SELECT r.base, r.last, r.size::bigint, r.max_time, r.created_ms FROM run r
     WHERE r.log = l.id AND r.last >= l.start AND r.base >= l.segments_to
     ORDER BY r.base LIMIT %(pieces)s)
    ORDER BY base LIMIT %(pieces)s
) p
WHERE l.start < l.next AND l.id > %(after)s AND (%(logs)s::integer[] IS NULL OR l.id = ANY (%(logs)s))
  AND CASE WHEN l.namespaces IS NULL THEN shard_of_log(l.id) = ANY (%(shards)s)
           ELSE l.namespaces = ANY (%(namespaces)s::smallint[]) END
ORDER BY l.id, p.base
LIMIT %(rows)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    next: int
    """The first offset behind it."""
    size: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    id: int
    partition: PartitionId
    start: int
    next: int
    pieces: list[_Piece]


class Retention:
    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        lease: HeldLease,
        kept: KeptLogs,
        view: FreshView,
        commit: Callable[[Sequence[Operation]], asyncio.Future[list[Outcome]]],
        clock: Clock,
        metrics: StorageMetrics,
        *,
        producer_expiry_ms: int,
    ) -> None:
        self._connect = connect
        self._lease = lease
        self._kept = kept
        self._view = view
        self._commit = commit
        self._clock = clock
        self._metrics = metrics
        self._producer_expiry_ms = producer_expiry_ms

    async def enforce(self, archived: KeptElsewhere, needed: Needed) -> dict[PartitionId, int]:
        """See `Storage.enforce_retention`. For the logs that this broker cleans."""
        held_back: dict[PartitionId, int] = {}
        async with await self._connect() as connection:
            await self._expire_producers(connection)
            after = 0
            while firsts := await self._pieces(connection, after=after, pieces=1, rows=_LOGS_AT_ONCE):
                after = firsts[-1].id
                candidates = await self._candidates(connection, firsts)
                while candidates:
                    candidates = await self._trim(connection, candidates, archived, needed, held_back)
        self._metrics.retention_runs += 1
        return held_back

    async def _expire_producers(self, connection: DatabaseConnection) -> None:
        before = self._clock.now_ms() - self._producer_expiry_ms
        removed = _PRODUCERS_AT_ONCE
        while removed == _PRODUCERS_AT_ONCE:
            wanted = [self._lease.incarnation, self._lease.epoch, before, _PRODUCERS_AT_ONCE]
            try:
                async with meaning("removing old producers"):
                    found = await connection.execute(
                        "SELECT expire_producers(%s, %s, %s, %s, %s)", [*wanted, self._kept.shards]
                    )
            except ScopeNeeded:
                return  # a scope has just been released; the rest has time until the next turn
            [(removed,)] = await found.fetchall()

    async def _pieces(
        self,
        connection: DatabaseConnection,
        *,
        pieces: int,
        logs: Sequence[int] | None = None,
        after: int = 0,
        rows: int | None = None,
    ) -> list[_Log]:
        wanted = {
            "pieces": pieces,
            "after": after,
            "logs": None if logs is None else list(logs),
            "rows": rows,
            "shards": self._kept.shards,
            "namespaces": self._kept.namespaces,
        }
        async with meaning("looking for expired records"):
            found = await (await connection.execute(_PIECES, wanted)).fetchall()
        by_id: dict[int, _Log] = {}
        for id, topic, index, start, end, last, size, max_time, created_ms in found:
            if id not in by_id:
                partition = PartitionId(TopicId(topic.bytes), index)
                by_id[id] = _Log(id=id, partition=partition, start=start, next=end, pieces=[])
            newest = max_time if max_time >= 0 else created_ms
            by_id[id].pieces.append(_Piece(next=last + 1, size=size, newest_ms=newest))
        return list(by_id.values())

    async def _candidates(self, connection: DatabaseConnection, logs: Sequence[_Log]) -> list[int]:
        """The logs whose first piece may be expired."""
        now = self._clock.now_ms()
        configs = {
            log.id: topic.config
            for log in logs
            if (topic := self._topic(log)) is not None and topic.config.is_deleted
        }
        limited = [
            id
            for id, config in configs.items()
            if config.retention_bytes >= 0 or config.retention_local_bytes >= 0
        ]
        sizes = await self._sizes(connection, limited)
        found = []
        for log in logs:
            if (config := configs.get(log.id)) is not None:
                age = now - log.pieces[0].newest_ms
                behind = sizes.get(log.id, 0) - log.pieces[0].size
                if (
                    0 <= config.retention_ms < age
                    or 0 <= config.retention_bytes <= behind
                    or 0 <= config.retention_local_ms < age
                    or 0 <= config.retention_local_bytes <= behind
                ):
                    found.append(log.id)
        return found

    async def _sizes(self, connection: DatabaseConnection, logs: Sequence[int]) -> dict[int, int]:
        """Bytes of logs, counted: `log.bytes` may be an estimate."""
        if not logs:
            return {}
        async with meaning("counting bytes of logs"):
            found = await connection.execute(
                "SELECT l.id, stored_bytes(l.id) FROM log l WHERE l.id = ANY (%s)", [list(logs)]
            )
            return dict(await found.fetchall())

    async def _trim(
        self,
        connection: DatabaseConnection,
        logs: Sequence[int],
        archived: KeptElsewhere,
        needed: Needed,
        held_back: dict[PartitionId, int],
    ) -> list[int]:
        """Returns the logs that may have more to trim."""
        found = await self._pieces(connection, pieces=_PIECES_AT_ONCE, logs=logs)
        sizes = await self._sizes(connection, logs)
        await self._view.refresh_definitions()
        await self._view.refresh([log.partition for log in found if self._topic(log) is not None])
        trims: list[Operation] = []
        records: list[int] = []
        more: list[int] = []
        # From here to the commit without a pause: later a queue might need the records, or another broker
        # have the scope.
        now = self._clock.now_ms()
        for log in found:
            topic = self._topic(log)
            if topic is None:
                continue  # deleted meanwhile, or another broker's
            kept_elsewhere = checked_archived(archived(log.partition), self._view.bounds(log.partition))
            start = wanted = _expired_before(log, sizes[log.id], topic.config, now, kept_elsewhere)
            if wanted > log.start and (lowest := needed(log.partition)) is not None:
                start = min(wanted, _whole_pieces_before(log, lowest))
            if start < wanted:
                held_back[log.partition] = wanted
            elif wanted == log.pieces[-1].next < log.next:
                more.append(log.id)
            if start > log.start:
                trims.append(Trim(log.partition, start, _scope(log, topic)))
                records.append(start - log.start)
        commits = [
            self._commit(trims[first : first + _TRIMS_AT_ONCE])
            for first in range(0, len(trims), _TRIMS_AT_ONCE)
        ]
        outcomes = [each for done in await asyncio.gather(*commits) for each in done]
        for outcome, count in zip(outcomes, records, strict=True):
            if outcome.refusal is None:
                self._metrics.retention_records += count
        return more

    def _topic(self, log: _Log) -> Topic | None:
        """None unless this broker knows the partition, and cleans its log."""
        topic = self._view.topics.get(log.partition.topic)
        if topic is None or log.partition.index >= topic.partitions or not self._kept.cleans(log.id, topic):
            return None
        return topic


def _scope(log: _Log, topic: Topic) -> Scope:
    return scope_of_log(log.id) if topic.scope is None else topic.scope


def _expired_before(log: _Log, size: int, config: TopicConfig, now_ms: int, archived: int) -> int:
    """The start that the retention settings ask for: whole pieces only.

    Records below `archived` have a copy outside of the broker, so `retention.local.*` applies to them.
    """
    start = log.start
    if not config.is_deleted:
        return start
    behind = size
    for piece in log.pieces:
        behind -= piece.size
        is_last = piece.next >= log.next
        age = now_ms - piece.newest_ms
        too_old = 0 <= config.retention_ms < age
        too_much = not is_last and 0 <= config.retention_bytes <= behind
        old_here = 0 <= config.retention_local_ms < age
        much_here = 0 <= config.retention_local_bytes <= behind
        archived_here = not is_last and piece.next <= archived and (old_here or much_here)
        if not (too_old or too_much or archived_here):
            break
        start = piece.next
    return start


def _whole_pieces_before(log: _Log, offset: int) -> int:
    """The highest start that removes whole pieces only and nothing from `offset` on."""
    return max((piece.next for piece in log.pieces if piece.next <= offset), default=log.start)
