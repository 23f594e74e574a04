"""Brokers that commit to one database at the same time, the coordinator and others: only their committers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from posthouse.model.clock import Clock
from posthouse.model.errors import StorageClosed, StorageFenced
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import COORDINATOR, NAMESPACES, SCOPES
from posthouse.model.topic_config import Latency, TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome
from posthouse.storage.remote_metrics import CallMetrics
from posthouse.storage.shared.commits.commit_call import CommitCall
from posthouse.storage.shared.commits.committer import INLINE_PATH, OBJECT_PATH, Committer
from posthouse.storage.shared.commits.payloads import Uploads
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.logs.loading import load
from posthouse.storage.shared.logs.shared_log import Tails
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.objects.names import ObjectNames
from posthouse.storage.shared.objects.store import ObjectStore
from tests.storage.shared.opened import TestLease, take_lease

ANSWER_SECONDS = 6.0


class Member:
    """`open` first. It knows the topics that were there then, and serves the namespaces of its lease."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        clock: Clock,
        lease: TestLease,
        *,
        inline_bytes: int = 2**19,
    ) -> None:
        self.database = database
        self.clock = clock
        self.lease = lease
        self.coordinates = lease.holds(COORDINATOR)
        self.incarnation = lease.incarnation
        self.logs = SharedLogs()
        self.topics: dict[str, Topic] = {}
        self.fenced: StorageFenced | None = None
        self.inline, self.object = self._call(INLINE_PATH), self._call(OBJECT_PATH)
        self.committer = Committer(
            clock=clock,
            lease=lease,
            logs=self.logs,
            tails=Tails(300),
            inline=self.inline,
            objects=self.object,
            uploads=Uploads(objects, ObjectNames(self.incarnation).new, clock),
            metrics=StorageMetrics(),
            is_object_topic=self._is_object_topic,
            inline_bytes=inline_bytes,
            on_fenced=self._on_fenced,
        )

    def _call(self, path: int) -> CommitCall:
        return CommitCall(
            self.database,
            self.lease,
            path=path,
            seconds=ANSWER_SECONDS,
            clock=self.clock,
            metrics=CallMetrics(),
        )

    def _is_object_topic(self, partition: PartitionId) -> bool:
        return any(
            topic.id == partition.topic and topic.config.latency is Latency.OBJECT
            for topic in self.topics.values()
        )

    def _on_fenced(self, error: StorageFenced) -> None:
        self.fenced = error

    async def open(self) -> None:
        await self.reload()
        await self.committer.open()
        if self.coordinates:
            self.committer.coordinates = True
        self.committer.serve_namespaces(*filter(self.lease.holds, NAMESPACES))

    async def reload(self) -> None:
        connection = await self.database.connect("tests")
        has_all = all(map(self.lease.holds, SCOPES))
        loaded = await load(connection, TopicConfig(), coordinates=self.coordinates, has_all=has_all)
        await connection.close()
        self.topics = {topic.name: topic for topic in loaded.topics.values()}
        for each in loaded.logs:
            self.logs.add(each)

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        return self.committer.add(operations)

    async def close(self) -> None:
        await self.committer.close(StorageClosed("the test is over"), seconds=10)


@asynccontextmanager
async def members(
    count: int, database: Database, objects: ObjectStore, clock: Clock
) -> AsyncIterator[list[Member]]:
    """Not the coordinator, on the topics that are there."""
    made = [Member(database, objects, clock, await take_lease(database, scopes=())) for _ in range(count)]
    try:
        for each in made:
            await each.open()
        yield made
    finally:
        for each in made:
            await each.close()
