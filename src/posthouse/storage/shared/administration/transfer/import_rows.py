"""The rows that an import writes. Every call can be repeated after a crash."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, LiteralString

from psycopg.types.json import Jsonb

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.owners import owner_of
from posthouse.storage.partition_view import PartitionView
from posthouse.storage.shared.administration.transfer.comparison import State
from posthouse.storage.shared.administration.transfer.cutting import CutSegment
from posthouse.storage.shared.administration.transfer.local_source import LocalLog
from posthouse.storage.shared.administration.transfer.transfer_lease import ImportLease, TransferRefused
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.logs.loading import topic_uuid

_ROWS_AT_ONCE = 5000

_PUT_TOPICS = """
INSERT INTO topic (id, name, partitions, overrides)
SELECT * FROM unnest(%s::uuid[], %s::text[], %s::integer[], %s::jsonb[])
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, partitions = excluded.partitions,
       overrides = excluded.overrides
"""
_PUT_LOGS = """
INSERT INTO log (topic, partition, start, next, segments_to)
SELECT * FROM unnest(%s::uuid[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT (topic, partition) DO NOTHING
"""
_PUT_SEGMENTS = """
SELECT import_segments(
    %s, %s, %s, %s, %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::integer[], %s::bigint[], %s::bigint[], %s::bytea[])
"""
_PUT_PRODUCER = """
INSERT INTO producer (log, id, epoch, batches, last_time, open_since) VALUES (%s, %s, %s, %s, %s, %s)
"""
_FIRST_OPEN = """
UPDATE log SET first_open = (SELECT min(open_since) FROM producer WHERE log = log.id AND open_since >= 0)
"""
_PUT_ABORTED = "INSERT INTO aborted (log, last, first, producer) VALUES (%s, %s, %s, %s)"
_PUT_STATE = "INSERT INTO state (space, owner, key, value) VALUES (%s, %s, %s, %s)"


class ImportRows:
    def __init__(self, connection: DatabaseConnection, lease: ImportLease) -> None:
        self._connection = connection
        self._lease = lease
        self._ids: dict[PartitionId, int] = {}
        """The numbers of the logs in the database."""
        self._segments_to: dict[PartitionId, int] = {}

    def imported_to(self, log: LocalLog) -> int:
        """The offset behind the segments of a log that are imported."""
        return self._segments_to[log.partition]

    @asynccontextmanager
    async def _transaction(self, doing: str) -> AsyncIterator[None]:
        async with meaning(doing), self._connection.transaction():
            await self._connection.execute(
                "SELECT check_coordinator(%s, %s)", [self._lease.incarnation, self._lease.epoch]
            )
            yield

    async def put_logs(self, topics: Sequence[Topic], logs: Sequence[LocalLog]) -> None:
        """Raises TransferRefused if an earlier attempt has found other topics or bounds."""
        async with self._transaction("importing topics"):
            await self._connection.execute(
                _PUT_TOPICS,
                [
                    [topic_uuid(topic.id) for topic in topics],
                    [topic.name for topic in topics],
                    [topic.partitions for topic in topics],
                    [Jsonb(dict(topic.overrides)) for topic in topics],
                ],
            )
            await self._connection.execute(
                _PUT_LOGS,
                [
                    [topic_uuid(log.topic.id) for log in logs],
                    [log.partition.index for log in logs],
                    [log.start for log in logs],
                    [log.end for log in logs],
                    [log.first_offset for log in logs],
                ],
            )
            found = await self._connection.execute(
                "SELECT id, topic, partition, start, next, segments_to FROM log"
            )
            rows = await found.fetchall()
        bounds: dict[PartitionId, tuple[int, int]] = {}
        for id, topic, index, start, end, segments_to in rows:
            partition = PartitionId(TopicId(topic.bytes), index)
            bounds[partition] = (start, end)
            self._ids[partition] = id
            self._segments_to[partition] = segments_to
        if bounds != {log.partition: (log.start, log.end) for log in logs}:
            raise TransferRefused(
                "the data directory has changed since its import was begun, so the import cannot go on; drop "
                "the schema posthouse of the database, and begin again"
            )

    async def put_segments(self, key: str, segments: Sequence[CutSegment]) -> None:
        """The segments lie in the object `key` one after the other; they follow what is imported."""
        images = [(self._ids[each.log.partition], each.image) for each in segments]
        positions, size = [], 0
        for _, image in images:
            positions.append(size)
            size += len(image.data)
        logs = {each.log.partition: each.log for each in segments}
        reached: dict[PartitionId, int] = {}
        added = dict.fromkeys(logs, 0)
        for each in segments:
            reached[each.log.partition] = each.image.next_offset
            if each.image.next_offset > each.log.start:
                added[each.log.partition] += each.image.batch_bytes
        async with meaning("importing segments"):
            await self._connection.execute(
                _PUT_SEGMENTS,
                [
                    self._lease.incarnation,
                    self._lease.epoch,
                    key,
                    size,
                    [self._ids[partition] for partition in logs],
                    [self._segments_to[partition] for partition in logs],
                    list(reached.values()),
                    list(added.values()),
                    [id for id, _ in images],
                    [image.base_offset for _, image in images],
                    [image.next_offset - 1 for _, image in images],
                    positions,
                    [len(image.data) for _, image in images],
                    [image.max_timestamp for _, image in images],
                    [image.created_ms for _, image in images],
                    [image.generation for _, image in images],
                    [each.clean_to for each in segments],
                    [each.horizon for each in segments],
                    [image.index() for _, image in images],
                ],
            )
        self._segments_to |= reached

    async def put_producers(self, logs: Sequence[LocalLog], source: PartitionView) -> None:
        """Producers and aborted transactions of all logs, in the place of those of an earlier attempt."""
        producers = [
            (
                self._ids[log.partition],
                id,
                each.epoch,
                list(chain(*each.batches)),
                each.last_time,
                each.open_since,
            )
            for log in logs
            for id, each in source.producers(log.partition).items()
        ]
        aborted = [
            (self._ids[log.partition], each.last_offset, each.first_offset, each.producer_id)
            for log in logs
            for each in source.aborted(log.partition, 0, log.end)
        ]
        async with self._transaction("importing producers"):
            await self._connection.execute("TRUNCATE producer, aborted")
            await self._insert(_PUT_PRODUCER, producers)
            await self._connection.execute(_FIRST_OPEN)
            await self._insert(_PUT_ABORTED, aborted)

    async def put_state(self, state: State) -> None:
        """All state, in the place of that of an earlier attempt."""
        rows = [
            (int(space), owner_of(space, key), key, value)
            for space, values in state.items()
            for key, value in values.items()
        ]
        async with self._transaction("importing state"):
            await self._connection.execute("TRUNCATE state")
            await self._insert(_PUT_STATE, rows)

    async def _insert(self, statement: LiteralString, rows: Sequence[tuple[Any, ...]]) -> None:
        async with self._connection.cursor() as cursor:
            for first in range(0, len(rows), _ROWS_AT_ONCE):
                await cursor.executemany(statement, rows[first : first + _ROWS_AT_ONCE])
