"""Creating, changing and deleting topics in the database, under the lease."""

from collections.abc import Sequence
from uuid import UUID

from psycopg.types.json import Jsonb

from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.operations import Put
from posthouse.storage.shared.database import Database, DatabaseConnection, meaning
from posthouse.storage.shared.loading import new_log, topic_uuid
from posthouse.storage.shared.shared_logs import SharedLogs

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
_PUT_STATE = """
INSERT INTO state (space, owner, key, value) VALUES (%s, %s, %s, %s)
    ON CONFLICT (space, key_hash) DO UPDATE SET value = excluded.value
"""


class Definitions:
    """Every statement may be repeated after a lost connection: topic ids are never used twice."""

    def __init__(self, database: Database, holder: UUID, epoch: int, logs: SharedLogs) -> None:
        self._database = database
        self._holder = holder
        self._epoch = epoch
        self._logs = logs
        self.topics: dict[TopicId, Topic] = {}

    async def put(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        ids = [topic_uuid(topic.id) for topic in topics]
        partitions = [topic.partitions for topic in topics]
        connection = await self._database.connect("topics", statement_seconds=60)
        try:
            async with meaning(f"creating {_names(topics)}"), connection.transaction():
                await self._check_lease(connection)
                names = [topic.name for topic in topics]
                overrides = [Jsonb(dict(topic.overrides)) for topic in topics]
                await connection.execute(_PUT_TOPICS, [ids, names, partitions, overrides])
                await connection.execute(_PUT_LOGS, [ids, partitions])
                for put in state:
                    await connection.execute(_PUT_STATE, [int(put.space), put.owner, put.key, put.value])
                found = await connection.execute(
                    "SELECT id, topic, partition FROM log WHERE topic = ANY (%s)", [ids]
                )
                rows = await found.fetchall()
        finally:
            await connection.close()
        by_id = {topic.id: topic for topic in topics}
        for id, topic_id, partition in rows:
            log = new_log(id, by_id[TopicId(topic_id.bytes)], partition)
            self._logs.setdefault(log.partition, log)
        self.topics |= by_id

    def adopt(self, topics: Sequence[Topic]) -> None:
        self.topics |= {topic.id: topic for topic in topics}

    async def delete(self, topics: Sequence[TopicId]) -> None:
        """Mark them; housekeeping removes rows and objects."""
        known = [self.topics[id] for id in topics if id in self.topics]
        connection = await self._database.connect("topics")
        try:
            async with meaning(f"deleting {_names(known)}"), connection.transaction():
                await self._check_lease(connection)
                await connection.execute(
                    "UPDATE topic SET deleted_at = now() WHERE id = ANY (%s) AND deleted_at IS NULL",
                    [[topic_uuid(topic.id) for topic in known]],
                )
        finally:
            await connection.close()
        for topic in known:
            del self.topics[topic.id]
            for partition in topic.partition_ids():
                self._logs.pop(partition, None)

    async def _check_lease(self, connection: DatabaseConnection) -> None:
        await connection.execute("SELECT check_lease(%s, %s)", [self._holder, self._epoch])


def _names(topics: Sequence[Topic]) -> str:
    shown = ", ".join(topic.name for topic in topics[:3])
    return shown if len(topics) <= 3 else f"{shown} and {len(topics) - 3} more topics"
