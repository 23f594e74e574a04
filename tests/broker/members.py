"""Two brokers on one log in memory. One coordinates; the other one, a member, learns of changes late."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from posthouse.broker.broker import Broker
from posthouse.model.clock import Clock, ManualClock
from posthouse.model.errors import NotLeader, OffsetOutOfRange, PosthouseError, UnknownPartition
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.settings import Settings
from posthouse.storage.bounds import Bounds, Slice
from posthouse.storage.definition_changes import DefinitionChange, DefinitionsChanged
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append, Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space


class CoordinatorStorage(MemoryStorage):
    @property
    def is_shared(self) -> bool:
        return True


DEFINITIONS = (
    Space.USERS,
    Space.ACLS,
    Space.QUOTAS,
    Space.SECRETS,
    Space.BROKER_CONFIGS,
    Space.GROUP_CONFIGS,
    Space.CLIENT_METRICS,
)


class MemberStorage(CoordinatorStorage):
    """The log of `coordinator` as another broker sees it: it appends to logs, and changes nothing else.

    Definitions and the ends of logs are those of the last refresh.
    """

    def __init__(self, coordinator: MemoryStorage, clock: Clock) -> None:
        super().__init__(clock)
        self._coordinator = coordinator
        self._logs = coordinator._logs
        self._state = coordinator._state
        self._known: dict[Space, dict[bytes, bytes]] = {}
        self._ends: dict[PartitionId, int] = {}
        self._followers: list[DefinitionsChanged] = []
        self.refreshes = 0
        """How often definitions were refreshed."""
        self.watched: set[PartitionId] = set()
        self.failure: PosthouseError | None = None
        """The database cannot be reached."""

    async def open(self) -> None:
        await super().open()
        self._topics = dict(self._coordinator._topics)
        self._known = self._definitions()
        await self.refresh(list(self._logs))

    def subscribe_definitions(self, changed: DefinitionsChanged) -> None:
        self._followers.append(changed)

    async def refresh_definitions(self) -> None:
        self.refreshes += 1
        if self.failure is not None:
            raise self.failure
        self.follow()

    def follow(self) -> None:
        """Learn of what the coordinator has changed."""
        before, self._topics = self._topics, dict(self._coordinator._topics)
        known, self._known = self._known, self._definitions()
        change = DefinitionChange(
            topics=[topic for id, topic in self._topics.items() if before.get(id) != topic],
            deleted=[topic for id, topic in before.items() if id not in self._topics],
            state={space: state for space, state in self._known.items() if known[space] != state},
        )
        for changed in self._followers:
            changed(change)

    def _definitions(self) -> dict[Space, dict[bytes, bytes]]:
        return {space: dict(self._state.get(space, {})) for space in DEFINITIONS}

    def watch(self, partitions: Iterable[PartitionId]) -> None:
        self.watched |= set(partitions)

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        if self.failure is not None:
            raise self.failure
        self._ends |= {partition: self._log(partition).end for partition in partitions}

    def bounds(self, partition: PartitionId) -> Bounds:
        bounds = super().bounds(partition)
        end = self._ends.get(partition, 0)
        return Bounds(bounds.start, end, min(bounds.stable, end))

    async def read(
        self,
        partition: PartitionId,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        stable_only: bool = False,
    ) -> Slice:
        bounds = self.bounds(partition)
        if offset > bounds.end:
            raise OffsetOutOfRange(f"offset {offset} is outside {bounds.start} to {bounds.end}")
        if offset == bounds.end:
            return Slice(b"", bounds)
        return await super().read(
            partition, offset, max_bytes, at_least_one=at_least_one, stable_only=stable_only
        )

    def commit(self, operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        for each in operations:
            if not isinstance(each, Append) or each.header.is_control:
                raise NotLeader("only the coordinator commits this")
        done = super().commit(operations)
        for each in operations:
            self._ends[each.partition] = self._log(each.partition).end  # type: ignore[union-attr]
        return done

    def _refusal(self, operation: Operation) -> PosthouseError | None:
        if isinstance(operation, Append):
            topic = self._coordinator.topics.get(operation.partition.topic)
            if topic is None:
                return UnknownPartition("the topic is deleted")
            if topic.is_coordinated:
                return NotLeader("only the coordinator writes to it")
            if operation.header.is_transactional and not self._is_admitted(operation):
                return NotLeader("only the coordinator appends to the transaction")
        return super()._refusal(operation)

    def _is_admitted(self, append: Append) -> bool:
        """As the function `commit_group` decides."""
        partition, producer = append.partition, append.header.producer_id
        key = partition.topic + partition.index.to_bytes(4, "big") + producer.to_bytes(8, "big")
        stored = self._state.get(Space.ADMISSIONS, {}).get(key)
        return stored is not None and stored == append.admission

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
