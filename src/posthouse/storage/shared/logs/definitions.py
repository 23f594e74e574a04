"""Creating, changing and deleting topics in the database, by the coordinator.

Every change is noted for the other brokers (`note_change`), in the same transaction.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from psycopg.types.json import Jsonb

from posthouse.model.errors import TopicExists
from posthouse.model.ids import TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.definition_changes import DefinitionsChanged
from posthouse.storage.operations import Put
from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection, LeaseLost, meaning
from posthouse.storage.shared.logs.loading import new_log, topic_uuid
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.logs.topics_in_doubt import TopicsInDoubt
from posthouse.storage.shared.time_limit import time_limit
from posthouse.storage.spaces import CLUSTER_WIDE

log = logging.getLogger(__name__)

_PUT_TOPICS = """
INSERT INTO topic (id, name, partitions, overrides, coordinated)
SELECT * FROM unnest(%s::uuid[], %s::text[], %s::integer[], %s::jsonb[], %s::boolean[])
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, partitions = excluded.partitions,
       overrides = excluded.overrides, coordinated = topic.coordinated OR excluded.coordinated
"""
_PUT_LOGS = """
INSERT INTO log (topic, partition, coordinated)
SELECT topic.id, number, topic.coordinated FROM topic, generate_series(0, topic.partitions - 1) AS number
 WHERE topic.id = ANY (%s)
    ON CONFLICT (topic, partition) DO NOTHING
"""
_COORDINATE_LOGS = "UPDATE log SET coordinated = true WHERE topic = ANY (%s) AND NOT coordinated"
_NAMESAKES = "SELECT name FROM topic WHERE name = ANY (%s) AND id <> ALL (%s) AND deleted_at IS NULL"
_DELETE_TOPICS = "UPDATE topic SET deleted_at = now() WHERE id = ANY (%s) AND deleted_at IS NULL"
_DELETE_LOGS = "UPDATE log SET deleted = true WHERE topic = ANY (%s) AND NOT deleted"
_LOCK_LOGS = "SELECT lock_logs(%s)"
_NOTE_CHANGE = "SELECT note_change(%s::uuid[], %s::smallint[])"
_PUT_STATE = """
INSERT INTO state (space, owner, key, value) VALUES (%s, %s, %s, %s)
    ON CONFLICT (space, key_hash) DO UPDATE SET value = excluded.value
"""


_STATEMENT_SECONDS = 30.0
_PAUSES = (0.1, 0.5, 1.0)

T = TypeVar("T")


class Definitions:
    """Every statement may be repeated after a lost connection: topic ids are never used twice."""

    def __init__(
        self,
        database: Database,
        holder: UUID,
        epoch: int,
        topics: dict[TopicId, Topic],
        logs: SharedLogs,
        defaults: TopicConfig,
        changed: DefinitionsChanged,
    ) -> None:
        """`changed` is told of changes that failed for this broker and yet count."""
        self._database = database
        self._holder = holder
        self._epoch = epoch
        self._logs = logs
        self.topics = topics
        self._in_doubt = TopicsInDoubt(database, holder, epoch, topics, logs, defaults, changed)
        self.settle = self._in_doubt.settle
        self.close = self._in_doubt.close

    @property
    def are_in_doubt(self) -> bool:
        """Whether the outcome of a change is not known."""
        return bool(self._in_doubt)

    async def put(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        """Create or change topics. Raises TopicExists if another topic has the name.

        If it is not known at the end whether the database has done it, `settle` finds out.
        """
        by_id = {topic.id: topic for topic in topics}
        with self._in_doubt.change(by_id):
            rows = await self._repeated(
                lambda connection: self._put(connection, topics, state), _names(topics)
            )
        for id, topic_id, partition in rows:
            made = new_log(id, by_id[TopicId(topic_id.bytes)], partition)
            self._logs.add(made)
        self.topics |= by_id

    async def _put(
        self, connection: DatabaseConnection, topics: Sequence[Topic], state: Sequence[Put]
    ) -> list[tuple[int, UUID, int]]:
        """All logs of the topics: number, topic and partition."""
        ids = [topic_uuid(topic.id) for topic in topics]
        names = [topic.name for topic in topics]
        partitions = [topic.partitions for topic in topics]
        overrides = [Jsonb(dict(topic.overrides)) for topic in topics]
        coordinated = [topic.is_coordinated or topic.is_internal for topic in topics]
        namesake = await (await connection.execute(_NAMESAKES, [names, ids])).fetchone()
        if namesake is not None:
            raise TopicExists(f"topic {namesake[0]!r} exists already")
        await connection.execute(_PUT_TOPICS, [ids, names, partitions, overrides, coordinated])
        await connection.execute(_PUT_LOGS, [ids])
        if any(coordinated):
            chosen = [id for id, is_coordinated in zip(ids, coordinated, strict=True) if is_coordinated]
            await _locked(connection, _COORDINATE_LOGS, chosen)
        for put in state:
            await connection.execute(_PUT_STATE, [int(put.space), put.owner, put.key, put.value])
        found = await connection.execute("SELECT id, topic, partition FROM log WHERE topic = ANY (%s)", [ids])
        rows = await found.fetchall()
        spaces = {int(put.space) for put in state if put.space in CLUSTER_WIDE}
        await connection.execute(_NOTE_CHANGE, [ids, list(spaces)])
        return rows

    async def delete(self, topics: Sequence[TopicId]) -> None:
        """Mark them; housekeeping removes rows and objects.

        If it is not known at the end whether the database has deleted them, this broker acts as if until
        `settle` has found out: what is written to a deleted topic would be lost.
        """
        known = [self.topics[id] for id in topics if id in self.topics]
        ids = [topic_uuid(id) for id in topics]

        async def delete(connection: DatabaseConnection) -> None:
            await _delete(connection, ids)
            await connection.execute(_NOTE_CHANGE, [ids, []])

        with self._in_doubt.change(topics):
            try:
                await self._repeated(delete, _names(known))
            finally:
                for topic in known:
                    self.topics.pop(topic.id, None)
                    for partition in topic.partition_ids():
                        self._logs.remove(partition)

    async def _repeated(self, work: Callable[[DatabaseConnection], Awaitable[T]], names: str) -> T:
        """Do the work in a transaction, again if the connection breaks: it may have counted, and may be
        repeated. Raises DatabaseAway, LeaseLost."""
        for pause in _PAUSES:
            try:
                return await self._once(work, names)
            except LeaseLost:
                raise
            except DatabaseAway as error:
                log.warning("%s; trying again", error)
                await asyncio.sleep(pause)
        return await self._once(work, names)

    async def _once(self, work: Callable[[DatabaseConnection], Awaitable[T]], names: str) -> T:
        connection = await self._database.connect("topics", statement_seconds=_STATEMENT_SECONDS)
        try:
            with time_limit(connection, 2 * _STATEMENT_SECONDS):
                async with meaning(f"changing {names}"), connection.transaction():
                    await self._check_coordinator(connection)
                    return await work(connection)
        finally:
            await connection.close()

    async def _check_coordinator(self, connection: DatabaseConnection) -> None:
        await connection.execute("SELECT check_coordinator(%s, %s)", [self._holder, self._epoch])


async def _delete(connection: DatabaseConnection, topics: Sequence[UUID]) -> None:
    await connection.execute(_DELETE_TOPICS, [list(topics)])
    await _locked(connection, _DELETE_LOGS, topics)


async def _locked(connection: DatabaseConnection, statement: str, topics: Sequence[UUID]) -> None:
    """Change logs after all of them are locked in the order of their ids: commits lock them, too."""
    await connection.execute(_LOCK_LOGS, [list(topics)])
    await connection.execute(statement.encode(), [list(topics)])


def _names(topics: Sequence[Topic]) -> str:
    shown = ", ".join(topic.name for topic in topics[:3])
    return shown if len(topics) <= 3 else f"{shown} and {len(topics) - 3} more topics"
