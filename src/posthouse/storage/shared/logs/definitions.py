"""Creating, changing and deleting topics in the database, under the lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from psycopg.types.json import Jsonb

from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.operations import Put
from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection, LeaseLost, meaning
from posthouse.storage.shared.logs.loading import new_log, topic_uuid
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.time_limit import time_limit

log = logging.getLogger(__name__)

_PUT_TOPICS = """
INSERT INTO topic (id, name, partitions, overrides)
SELECT * FROM unnest(%s::uuid[], %s::text[], %s::integer[], %s::jsonb[])
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, partitions = excluded.partitions,
       overrides = excluded.overrides
"""
_PUT_LOGS = """
INSERT INTO log (topic, partition)
SELECT each.topic, number FROM unnest(%s::uuid[], %s::integer[]) AS each (topic, partitions),
       generate_series(0, each.partitions - 1) AS number
    ON CONFLICT (topic, partition) DO NOTHING
"""
_DELETE_NAMESAKES = """
UPDATE topic SET deleted_at = now() WHERE name = ANY (%s) AND id <> ALL (%s) AND deleted_at IS NULL
"""
"""Topics that this broker does not know: their creation failed for the broker, but counted."""
_PUT_STATE = """
INSERT INTO state (space, owner, key, value) VALUES (%s, %s, %s, %s)
    ON CONFLICT (space, key_hash) DO UPDATE SET value = excluded.value
"""


_STATEMENT_SECONDS = 30.0
_PAUSES = (0.1, 0.5, 1.0)

T = TypeVar("T")


class Definitions:
    """Every statement may be repeated after a lost connection: topic ids are never used twice."""

    def __init__(self, database: Database, holder: UUID, epoch: int, logs: SharedLogs) -> None:
        self._database = database
        self._holder = holder
        self._epoch = epoch
        self._logs = logs
        self.topics: dict[TopicId, Topic] = {}

    async def put(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        rows = await self._repeated(lambda connection: self._put(connection, topics, state), _names(topics))
        by_id = {topic.id: topic for topic in topics}
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
        await connection.execute(_DELETE_NAMESAKES, [names, ids])
        await connection.execute(_PUT_TOPICS, [ids, names, partitions, overrides])
        await connection.execute(_PUT_LOGS, [ids, partitions])
        for put in state:
            await connection.execute(_PUT_STATE, [int(put.space), put.owner, put.key, put.value])
        found = await connection.execute("SELECT id, topic, partition FROM log WHERE topic = ANY (%s)", [ids])
        return await found.fetchall()

    def adopt(self, topics: Sequence[Topic]) -> None:
        self.topics |= {topic.id: topic for topic in topics}

    async def delete(self, topics: Sequence[TopicId]) -> None:
        """Mark them; housekeeping removes rows and objects.

        If it is not known at the end whether the database has deleted them, this broker acts as if: what is
        written to a deleted topic would be lost.
        """
        known = [self.topics[id] for id in topics if id in self.topics]
        ids = [topic_uuid(id) for id in topics]

        async def delete(connection: DatabaseConnection) -> None:
            await connection.execute(
                "UPDATE topic SET deleted_at = now() WHERE id = ANY (%s) AND deleted_at IS NULL", [ids]
            )

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
                    await self._check_lease(connection)
                    return await work(connection)
        finally:
            await connection.close()

    async def _check_lease(self, connection: DatabaseConnection) -> None:
        await connection.execute("SELECT check_lease(%s, %s)", [self._holder, self._epoch])


def _names(topics: Sequence[Topic]) -> str:
    shown = ", ".join(topic.name for topic in topics[:3])
    return shown if len(topics) <= 3 else f"{shown} and {len(topics) - 3} more topics"
