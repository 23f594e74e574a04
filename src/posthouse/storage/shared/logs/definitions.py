"""Creating, changing and deleting topics in the database.

Any broker creates and deletes topics under its lease. Only the coordinator changes them: a change replaces
the whole definition, so there must be one broker that knows it. Two things belong to the holder of a scope of
namespaces: to change the internal topics of that scope, and to give it topics that feed queues. Every change
is noted for the other brokers (`note_change`), in the same transaction.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from psycopg.types.json import Jsonb

from posthouse.model.errors import TopicExists, UnknownTopic
from posthouse.model.ids import TopicId
from posthouse.model.scopes import COORDINATOR, NAMESPACES, Scope
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import INTERNAL_PREFIX, Topic
from posthouse.storage.definition_changes import DefinitionsChanged
from posthouse.storage.operations import Put
from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection, LeaseLost, meaning
from posthouse.storage.shared.logs.loading import new_log, topic_uuid
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.logs.topics_in_doubt import LOCK_CHANGES, TopicsInDoubt
from posthouse.storage.shared.time_limit import time_limit
from posthouse.storage.spaces import CLUSTER_WIDE, Space

log = logging.getLogger(__name__)

# A topic that is there already was created by the first try: see `_repeated`.
_CREATE_TOPICS = """
INSERT INTO topic (id, name, partitions, overrides, namespaces)
SELECT new.id, new.name, new.partitions, new.overrides, coalesce(new.namespaces, (
       SELECT get_byte(value, 0) FROM state
        WHERE space = 28 AND key_hash = sha256(convert_to(new.name, 'UTF8'))))
  FROM unnest(%s::uuid[], %s::text[], %s::integer[], %s::jsonb[], %s::smallint[])
       AS new (id, name, partitions, overrides, namespaces)
    ON CONFLICT (id) DO NOTHING
"""
_CHANGE_TOPIC = """
UPDATE topic SET partitions = %s, overrides = %s WHERE id = %s AND deleted_at IS NULL RETURNING id
"""
_PUT_LOGS = """
INSERT INTO log (topic, partition, namespaces)
SELECT topic.id, number, topic.namespaces FROM topic, generate_series(0, topic.partitions - 1) AS number
 WHERE topic.id = ANY (%s)
    ON CONFLICT (topic, partition) DO NOTHING
"""
# A directory that was exported from another cluster has those of that time.
_FORGET_SOURCES = "DELETE FROM state WHERE space = 28"
_GIVE_TOPICS = "UPDATE topic SET namespaces = %s WHERE id = ANY (%s) AND namespaces IS NULL"
_GIVE_LOGS = "UPDATE log SET namespaces = %s WHERE topic = ANY (%s) AND namespaces IS NULL"
_NAMESAKES = "SELECT name FROM topic WHERE name = ANY (%s) AND id <> ALL (%s) AND deleted_at IS NULL"
_FOUND_LOGS = "SELECT log.id, topic, partition, namespaces FROM log WHERE topic = ANY (%s)"
_SCOPELESS = "SELECT name FROM topic WHERE name = ANY (%s) AND namespaces IS NULL AND deleted_at IS NULL"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """What a transaction has left."""

    logs: Sequence[tuple[int, UUID, int, int | None]]
    """All logs of the topics: number, topic, partition, and the number of their scope of namespaces."""
    number: int
    """Of the change."""


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
        changed_here: Callable[[int], None],
    ) -> None:
        """`changed` is told of changes that failed for this broker and yet count, `changed_here` gets the
        number of every change that this broker has made."""
        self._changed_here = changed_here
        self._database = database
        self._holder = holder
        self._epoch = epoch
        self._logs = logs
        self.topics = topics
        self._in_doubt = TopicsInDoubt(database, holder, epoch, topics, logs, defaults, changed)
        self.settle = self._in_doubt.settle
        self.close = self._in_doubt.close

        self.is_changing = self._in_doubt.is_changing
        """Whether a change of the topic by this broker is under way, or its outcome is not known."""

    async def create(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        """Raises TopicExists if there is another topic with the name of one of them.

        If it is not known at the end whether the database has done it, `settle` finds out.
        """
        by_id = {topic.id: topic for topic in topics}

        async def create(connection: DatabaseConnection) -> _Stored:
            await self._check_lease(connection)
            await connection.execute(LOCK_CHANGES)
            return await self._create(connection, topics, state)

        with self._in_doubt.change(by_id):
            self._learn(by_id, await self._repeated(create, _names(topics)))

    async def _create(
        self, connection: DatabaseConnection, topics: Sequence[Topic], state: Sequence[Put]
    ) -> _Stored:
        ids = [topic_uuid(topic.id) for topic in topics]
        names = [topic.name for topic in topics]
        partitions = [topic.partitions for topic in topics]
        overrides = [Jsonb(dict(topic.overrides)) for topic in topics]
        scopes = [None if topic.scope is None else topic.scope.namespace_shard for topic in topics]
        namesake = await (await connection.execute(_NAMESAKES, [names, ids])).fetchone()
        if namesake is not None:
            raise TopicExists(f"topic {namesake[0]!r} exists already")
        await connection.execute(_CREATE_TOPICS, [ids, names, partitions, overrides, scopes])
        await connection.execute(_PUT_LOGS, [ids])
        for put in state:
            await connection.execute(_PUT_STATE, [int(put.space), put.owner, put.key, put.value])
        spaces = {int(put.space) for put in state if put.space in CLUSTER_WIDE}
        return await _stored(connection, ids, list(spaces))

    async def change(self, topic: Topic) -> None:
        """Settings and partitions: as the coordinator, or of an internal topic as the holder of its scope.
        Raises UnknownTopic if another broker has deleted it."""
        id = topic_uuid(topic.id)
        scope = COORDINATOR if topic.scope is None or not topic.is_internal else topic.scope

        async def change(connection: DatabaseConnection) -> _Stored:
            await self._check_lease(connection, scope)
            values = [topic.partitions, Jsonb(dict(topic.overrides)), id]
            if await (await connection.execute(_CHANGE_TOPIC, values)).fetchone() is None:
                raise UnknownTopic(f"there is no topic {topic.name!r}: it was deleted meanwhile")
            await connection.execute(_PUT_LOGS, [[id]])
            return await _stored(connection, [id], [])

        with self._in_doubt.change([topic.id]):
            self._learn({topic.id: topic}, await self._repeated(change, topic.name))

    async def give(self, topics: Sequence[Topic], scope: Scope) -> None:
        """As the holder of the scope: from now on only this broker writes to these topics, if they have no
        scope yet."""
        by_id = {topic.id: topic for topic in topics}
        ids = [topic_uuid(id) for id in by_id]

        async def give(connection: DatabaseConnection) -> _Stored:
            await self._check_lease(connection, scope)
            await connection.execute(_GIVE_TOPICS, [scope.namespace_shard, ids])
            await connection.execute(_LOCK_LOGS, [ids])
            await connection.execute(_GIVE_LOGS, [scope.namespace_shard, ids])
            return await _stored(connection, ids, [])

        with self._in_doubt.change(by_id):
            self._learn(by_id, await self._repeated(give, _names(topics)))

    async def assign(self, scopes: Mapping[str, Scope]) -> None:
        """As the coordinator, after an import: topics of these names belong to these scopes, also if they are
        created later. Then other brokers are admitted, in the same transaction."""
        by_scope: dict[Scope, list[Topic]] = {}
        for topic in self.topics.values():
            if topic.name in scopes:
                by_scope.setdefault(scopes[topic.name], []).append(topic)
        given = [topic for topics in by_scope.values() for topic in topics]

        async def assign(connection: DatabaseConnection) -> _Stored:
            await self._check_lease(connection, COORDINATOR)
            ids = [topic_uuid(topic.id) for topic in given]
            values = [
                (scope.namespace_shard, [topic_uuid(topic.id) for topic in topics])
                for scope, topics in by_scope.items()
            ]
            # Topics before logs, as every other change.
            for each in values:
                await connection.execute(_GIVE_TOPICS, each)
            await connection.execute(_LOCK_LOGS, [ids])
            for each in values:
                await connection.execute(_GIVE_LOGS, each)
            await connection.execute(_FORGET_SOURCES)
            for name, scope in sorted(scopes.items()):
                if not name.startswith(INTERNAL_PREFIX):
                    shard = scope.namespace_shard
                    assert shard is not None
                    put = Put(Space.SOURCES, name.encode(), bytes([shard]))
                    await connection.execute(_PUT_STATE, [int(put.space), put.owner, put.key, put.value])
            await connection.execute("SELECT admit_members(%s, %s)", [self._holder, self._epoch])
            return await _stored(connection, ids, [])

        by_id = {topic.id: topic for topic in given}
        with self._in_doubt.change(by_id):
            self._learn(by_id, await self._repeated(assign, "what was imported"))

    def _learn(self, topics: Mapping[TopicId, Topic], stored: _Stored) -> None:
        scopes: dict[TopicId, Scope | None] = {}
        for id, topic_id, partition, shard in stored.logs:
            topic = topics[TopicId(topic_id.bytes)]
            self._logs.add(new_log(id, topic, partition))
            scopes[topic.id] = None if shard is None else NAMESPACES[shard]
        self.topics |= {id: replace(topic, scope=scopes.get(id)) for id, topic in topics.items()}
        self._changed_here(stored.number)

    async def scopeless(self, names: Sequence[str]) -> list[str]:
        """Those of these names that topics have which belong to no scope. A topic that is created after the
        call sees what was committed before it. Raises DatabaseAway, LeaseLost."""

        async def ask(connection: DatabaseConnection) -> list[str]:
            await self._check_lease(connection)
            await connection.execute(LOCK_CHANGES)
            found = await connection.execute(_SCOPELESS, [list(names)])
            return [name for (name,) in await found.fetchall()]

        return await self._repeated(ask, ", ".join(names[:3]))

    async def delete(self, topics: Sequence[TopicId]) -> None:
        """Mark them; housekeeping removes rows and objects.

        If it is not known at the end whether the database has deleted them, this broker acts as if until
        `settle` has found out: what is written to a deleted topic would be lost.
        """
        known = [self.topics[id] for id in topics if id in self.topics]
        ids = [topic_uuid(id) for id in topics]

        async def delete(connection: DatabaseConnection) -> int:
            await self._check_lease(connection)
            await _delete(connection, ids)
            return await _noted(connection, ids, [])

        with self._in_doubt.change(topics):
            try:
                self._changed_here(await self._repeated(delete, _names(known)))
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
                    return await work(connection)
        finally:
            await connection.close()

    async def _check_lease(self, connection: DatabaseConnection, *scopes: Scope) -> None:
        names = [scope.name for scope in scopes]
        await connection.execute("SELECT check_lease(%s, %s, %s)", [self._holder, self._epoch, names])


async def _stored(connection: DatabaseConnection, topics: Sequence[UUID], spaces: Sequence[int]) -> _Stored:
    """The last step of a transaction."""
    found = await connection.execute(_FOUND_LOGS, [list(topics)])
    logs = await found.fetchall()
    return _Stored(logs=logs, number=await _noted(connection, topics, spaces))


async def _noted(connection: DatabaseConnection, topics: Sequence[UUID], spaces: Sequence[int]) -> int:
    [(number,)] = await (await connection.execute(_NOTE_CHANGE, [list(topics), list(spaces)])).fetchall()
    return int(number)


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
