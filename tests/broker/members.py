"""Two brokers on one log in memory. One coordinates; the other one, a member, learns of changes late."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from posthouse.broker.broker import Broker
from posthouse.model.clock import Clock, ManualClock
from posthouse.model.errors import NotLeader, PosthouseError, UnknownPartition
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append, Operation, Put
from posthouse.storage.outcomes import Outcome


class CoordinatorStorage(MemoryStorage):
    @property
    def is_shared(self) -> bool:
        return True


class MemberStorage(CoordinatorStorage):
    """The log of `coordinator` as another broker sees it: it appends to logs, and changes nothing else."""

    def __init__(self, coordinator: MemoryStorage, clock: Clock) -> None:
        super().__init__(clock)
        self._coordinator = coordinator
        self._logs = coordinator._logs
        self._state = coordinator._state

    async def open(self) -> None:
        await super().open()
        self._topics = dict(self._coordinator._topics)

    def commit(self, operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        for each in operations:
            if not isinstance(each, Append) or each.header.is_transactional:
                raise NotLeader("only the coordinator commits this")
        return super().commit(operations)

    def _refusal(self, operation: Operation) -> PosthouseError | None:
        if isinstance(operation, Append):
            topic = self._coordinator.topics.get(operation.partition.topic)
            if topic is None:
                return UnknownPartition("the topic is deleted")
            if topic.is_coordinated:
                return NotLeader("only the coordinator writes to it")
        return super()._refusal(operation)

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        raise NotLeader("only the coordinator changes topics")

    async def update_topic(self, topic: Topic) -> None:
        raise NotLeader("only the coordinator changes topics")

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        raise NotLeader("only the coordinator changes topics")


class Pair:
    def __init__(self, clock: ManualClock, settings: Settings) -> None:
        self.clock = clock
        self.storage = CoordinatorStorage(clock)
        self.coordinator = Broker(self.storage, settings, clock)
        self.member_storage = MemberStorage(self.storage, clock)
        self.member = Broker(self.member_storage, settings, clock)


@asynccontextmanager
async def pair(**settings: Any) -> AsyncIterator[Pair]:
    """The coordinator has started, the member has not."""
    made = Pair(ManualClock(), Settings(memory=True, **settings))
    await made.coordinator.start()
    await made.coordinator.coordinate()
    try:
        yield made
    finally:
        await made.coordinator.stop()


@asynccontextmanager
async def started(broker: Broker) -> AsyncIterator[Broker]:
    """A member."""
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
