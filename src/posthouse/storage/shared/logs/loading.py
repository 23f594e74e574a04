"""What a storage reads from the database: topics, logs and state; for the coordinator also producers."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import NAMESPACES
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.producers import AbortedTransaction, BatchMemory, Producer
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.time_limit import stall_limit
from posthouse.storage.spaces import CLUSTER_WIDE, COORDINATORS, Space
from posthouse.storage.stored_state import StoredState

_ROWS_AT_ONCE = 10_000
_STALL_SECONDS = 60.0
"""For each page of rows. A holder that waits for a database that hangs keeps its scopes from the others."""
AWAITS_SCOPES = "SELECT EXISTS (SELECT FROM local_import WHERE awaits_coordinator)"
_CLUSTER = f"SELECT id, confirmed_losses, seq, ({AWAITS_SCOPES}) FROM cluster, last_change"
_TOPICS = "SELECT id, name, partitions, overrides, namespaces FROM topic WHERE deleted_at IS NULL"
_LOGS = "SELECT l.id, l.topic, l.partition, l.start, l.next, l.bytes, l.first_open FROM log l"
PRODUCERS = "SELECT log, id, epoch, batches, last_time, open_since FROM producer"
_STATE = "SELECT space, key, value FROM state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    cluster_id: str
    confirmed_losses: int
    """How often an operator has accepted that the database lost commits."""
    awaits_coordinator: bool
    """Since an import, the scopes of topics of namespaces are not known."""
    topics: dict[TopicId, Topic]
    logs: Sequence[SharedLog]
    state: StoredState
    changes: int
    """The number of the last change of definitions."""


async def load(
    connection: DatabaseConnection, defaults: TopicConfig, *, coordinates: bool, has_all: bool
) -> Loaded:
    """All in one snapshot. Only the coordinator needs producers and its state; who `has_all` scopes gets all
    state. Raises DatabaseAway."""
    with stall_limit(connection, _STALL_SECONDS) as moved:
        return await _load(connection, defaults, coordinates, has_all, moved)


async def _load(
    connection: DatabaseConnection,
    defaults: TopicConfig,
    coordinates: bool,
    has_all: bool,
    moved: Callable[[], None],
) -> Loaded:
    async with meaning("loading the logs"), connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        await connection.execute("SET LOCAL statement_timeout = 0")
        [(cluster_id, confirmed_losses, changes, awaits_coordinator)] = await _all(connection, _CLUSTER)
        topics = await load_topics(connection, defaults)
        by_id: dict[int, SharedLog] = {}
        async for rows in _pages(connection, _LOGS, moved):
            for row in rows:
                if (each := _stored_log(row, topics)) is not None:
                    by_id[each.id] = each
        spaces: dict[int, dict[bytes, bytes]]
        if coordinates:
            await _producers(connection, by_id.get, moved)
        if has_all:
            spaces = await _state(connection, _STATE, moved)
        else:
            wanted = CLUSTER_WIDE | COORDINATORS if coordinates else CLUSTER_WIDE
            found = await load_spaces(connection, list(wanted))
            spaces = {int(space): values for space, values in found.items()}
    return Loaded(
        cluster_id=cluster_id,
        confirmed_losses=confirmed_losses,
        awaits_coordinator=awaits_coordinator,
        topics=topics,
        logs=list(by_id.values()),
        state=StoredState(spaces),
        changes=changes,
    )


async def load_topics(
    connection: DatabaseConnection, defaults: TopicConfig, ids: Sequence[UUID] | None = None
) -> dict[TopicId, Topic]:
    """All topics, or those of `ids` that are not deleted."""
    rows = (
        await _all(connection, _TOPICS)
        if ids is None
        else await _all(connection, f"{_TOPICS} AND id = ANY (%s)", [list(ids)])
    )
    return {
        TopicId(id.bytes): Topic(
            id=TopicId(id.bytes),
            name=name,
            partitions=partitions,
            overrides=overrides,
            config=defaults.with_stored(overrides, name),
            scope=None if namespaces is None else NAMESPACES[namespaces],
        )
        for id, name, partitions, overrides, namespaces in rows
    }


async def load_logs(connection: DatabaseConnection, topics: Mapping[TopicId, Topic]) -> list[SharedLog]:
    """The logs of these topics, without their producers."""
    rows = await _all(
        connection, f"{_LOGS} WHERE l.topic = ANY (%s)", [[topic_uuid(topic) for topic in topics]]
    )
    found = [_stored_log(row, topics) for row in rows]
    return [each for each in found if each is not None]


async def load_spaces(
    connection: DatabaseConnection, spaces: Sequence[Space]
) -> dict[Space, dict[bytes, bytes]]:
    """The whole content of these spaces."""
    found: dict[Space, dict[bytes, bytes]] = {space: {} for space in spaces}
    if found:
        for space, key, value in await _all(
            connection, f"{_STATE} WHERE space = ANY (%s)", [list(map(int, spaces))]
        ):
            found[Space(space)][bytes(key)] = bytes(value)
    return found


def _stored_log(row: tuple[Any, ...], topics: Mapping[TopicId, Topic]) -> SharedLog | None:
    """None if its topic is deleted."""
    id, topic_id, partition, start, end, size, first_open = row
    topic = topics.get(TopicId(topic_id.bytes))
    if topic is None:
        return None
    found = new_log(id, topic, partition)
    found.observe(start, end, size, first_open)
    return found


def new_log(id: int, topic: Topic, partition: int) -> SharedLog:
    return SharedLog(id, PartitionId(topic.id, partition), topic.name)


async def load_coordinated(
    connection: DatabaseConnection, log_numbered: Callable[[int], SharedLog | None]
) -> StoredState:
    """What only the coordinator knows, in one snapshot: producers, which are added to their logs, and its
    state. Raises DatabaseAway."""
    spaces = ", ".join(str(int(space)) for space in sorted(COORDINATORS))
    with stall_limit(connection, _STALL_SECONDS) as moved:
        async with meaning("loading what the coordinator knows"), connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await connection.execute("SET LOCAL statement_timeout = 0")
            await _producers(connection, log_numbered, moved)
            return StoredState(await _state(connection, f"{_STATE} WHERE space IN ({spaces})", moved))


async def _state(
    connection: DatabaseConnection, statement: str, moved: Callable[[], None]
) -> dict[int, dict[bytes, bytes]]:
    spaces: dict[int, dict[bytes, bytes]] = {}
    async for rows in _pages(connection, statement, moved):
        for space, key, value in rows:
            spaces.setdefault(space, {})[bytes(key)] = bytes(value)
    return spaces


async def _producers(
    connection: DatabaseConnection,
    log_numbered: Callable[[int], SharedLog | None],
    moved: Callable[[], None],
) -> None:
    async for rows in _pages(connection, PRODUCERS, moved):
        for row in rows:
            number, id, producer = stored_producer(row)
            if (found := log_numbered(number)) is not None:
                found.producers.load_producer(id, producer)
    for number, last, first, id in await _all(connection, "SELECT log, last, first, producer FROM aborted"):
        if (found := log_numbered(number)) is not None:
            found.producers.load_aborted(AbortedTransaction(id, first, last))


def stored_producer(row: tuple[Any, ...]) -> tuple[int, int, Producer]:
    """The number of the log, the id of the producer, and the producer, of a row of `PRODUCERS`."""
    log, id, epoch, batches, last_time, open_since = row
    memory = tuple(BatchMemory(*batches[at : at + 3]) for at in range(0, len(batches), 3))
    return log, id, Producer(epoch, memory, last_time, open_since)


async def _pages(
    connection: DatabaseConnection, statement: str, moved: Callable[[], None]
) -> AsyncIterator[list[tuple[Any, ...]]]:
    async with connection.cursor(name="loading", binary=True) as cursor:
        await cursor.execute(statement.encode())
        while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
            moved()
            yield rows


async def _all(
    connection: DatabaseConnection, statement: str, values: Sequence[Any] | None = None
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement.encode(), values)).fetchall()


def topic_uuid(id: TopicId) -> UUID:
    return UUID(bytes=bytes(id))
