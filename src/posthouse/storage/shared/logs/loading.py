"""What a new holder of the lease reads from the database: topics, logs, producers and state."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.producers import NOT_OPEN, AbortedTransaction, BatchMemory, Producer
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.time_limit import stall_limit
from posthouse.storage.stored_state import StoredState

_ROWS_AT_ONCE = 10_000
_STALL_SECONDS = 60.0
"""For each page of rows. A holder that waits for a database that hangs keeps the lease from the others."""
_TOPICS = "SELECT id, name, partitions, overrides, coordinated FROM topic WHERE deleted_at IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    cluster_id: str
    topics: dict[TopicId, Topic]
    logs: SharedLogs
    state: StoredState


async def load(connection: DatabaseConnection, defaults: TopicConfig) -> Loaded:
    """All in one snapshot. Raises DatabaseAway."""
    with stall_limit(connection, _STALL_SECONDS) as moved:
        return await _load(connection, defaults, moved)


async def _load(connection: DatabaseConnection, defaults: TopicConfig, moved: Callable[[], None]) -> Loaded:
    async with meaning("loading the logs"), connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        await connection.execute("SET LOCAL statement_timeout = 0")
        cluster_id = (await _all(connection, "SELECT id FROM cluster"))[0][0]
        topics: dict[TopicId, Topic] = {}
        for id, name, partitions, overrides, coordinated in await _all(connection, _TOPICS):
            topics[TopicId(id.bytes)] = Topic(
                id=TopicId(id.bytes),
                name=name,
                partitions=partitions,
                overrides=overrides,
                config=defaults.with_stored(overrides, name),
                is_coordinated=coordinated,
            )
        logs, by_id = await _logs(connection, topics, moved)
        await _producers(connection, by_id, moved)
        spaces: dict[int, dict[bytes, bytes]] = {}
        async for rows in _pages(connection, "SELECT space, key, value FROM state", moved):
            for space, key, value in rows:
                spaces.setdefault(space, {})[bytes(key)] = bytes(value)
    return Loaded(cluster_id=cluster_id, topics=topics, logs=logs, state=StoredState(spaces))


async def _logs(
    connection: DatabaseConnection, topics: dict[TopicId, Topic], moved: Callable[[], None]
) -> tuple[SharedLogs, dict[int, SharedLog]]:
    logs, by_id = SharedLogs(), {}
    statement = "SELECT id, topic, partition, start, next, bytes FROM log"
    async for rows in _pages(connection, statement, moved):
        for id, topic_id, partition, start, end, size in rows:
            topic = topics.get(TopicId(topic_id.bytes))
            if topic is not None:
                found = by_id[id] = new_log(id, topic, partition)
                found.observe(start, end, size, None)
                logs.add(found)
    return logs, by_id


def new_log(id: int, topic: Topic, partition: int) -> SharedLog:
    return SharedLog(id, PartitionId(topic.id, partition), f"{topic.name}-{partition}")


async def _producers(
    connection: DatabaseConnection, logs: dict[int, SharedLog], moved: Callable[[], None]
) -> None:
    statement = "SELECT log, id, epoch, batches, last_time, open_since FROM producer"
    async for rows in _pages(connection, statement, moved):
        for log, id, epoch, batches, last_time, open_since in rows:
            if log in logs:
                memory = tuple(BatchMemory(*batches[at : at + 3]) for at in range(0, len(batches), 3))
                logs[log].producers.load_producer(id, Producer(epoch, memory, last_time, open_since))
                if open_since != NOT_OPEN:
                    logs[log].stable = min(logs[log].stable, open_since)
    for log, last, first, producer in await _all(
        connection, "SELECT log, last, first, producer FROM aborted"
    ):
        if log in logs:
            logs[log].producers.load_aborted(AbortedTransaction(producer, first, last))


async def _pages(
    connection: DatabaseConnection, statement: str, moved: Callable[[], None]
) -> AsyncIterator[list[tuple[Any, ...]]]:
    async with connection.cursor(name="loading", binary=True) as cursor:
        await cursor.execute(statement.encode())
        while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
            moved()
            yield rows


async def _all(connection: DatabaseConnection, statement: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement.encode())).fetchall()


def topic_uuid(id: TopicId) -> UUID:
    return UUID(bytes=bytes(id))
