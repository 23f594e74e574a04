"""Several brokers on one log in memory. One coordinates; the others, members, learn of changes late.

Scopes of groups belong to whom the test says: see `ScopeTable`. Those of transactional ids and of namespaces
belong to the coordinator unless the test moves them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from posthouse.broker.broker import Broker
from posthouse.model.clock import Clock, ManualClock
from posthouse.model.errors import NotLeader, OffsetOutOfRange, PosthouseError, TopicExists, UnknownPartition
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import GROUPS, NAMESPACES, TRANSACTIONS, Scope, owner_shards, shard_of
from posthouse.model.topics import Topic
from posthouse.records.control import is_commit
from posthouse.settings import Settings
from posthouse.storage.bounds import Bounds, Slice
from posthouse.storage.contract import Storage
from posthouse.storage.definition_changes import DefinitionChange, DefinitionsChanged
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append, Operation, Put, Refer, Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.owners import owner_of
from posthouse.storage.shared_state import StoredOffsets
from posthouse.storage.spaces import OF_NAMESPACES, OF_TRANSACTIONS, Space

FoundT = TypeVar("FoundT")


_OF_GROUPS = {
    Space.OFFSETS: 20,
    Space.GROUPS: 0,
    Space.GROUP_MEMBERS: 0,
    Space.STREAMS_GROUPS: 0,
    Space.SHARE_GROUPS: 16,
}
"""Where the name of the group begins in keys."""
_OF_MEMBERS = (*_OF_GROUPS, Space.SHARE_PROGRESS, *OF_TRANSACTIONS, *OF_NAMESPACES)
"""State that any broker commits, if it holds the scope."""


class ScopeTable:
    """Who holds each scope, as the database knows it. Commits of others are errors of the test."""

    def __init__(self) -> None:
        self.holders: dict[Scope, Broker] = {}

    async def take(self, broker: Broker, *scopes: Scope) -> None:
        """As the keeper of a node does it."""
        for scope in scopes:
            assert scope not in self.holders, f"{scope} is held"
            self.holders[scope] = broker
            await broker.take_scope(scope)

    async def move(self, scope: Scope, to: Broker) -> None:
        await self.holders[scope].release_scope(scope)
        del self.holders[scope]
        await self.take(to, scope)

    def check(self, storage: Storage, operations: Sequence[Operation]) -> None:
        puts = [each for each in operations if isinstance(each, Put)]
        needed = [
            TRANSACTIONS[shard_of(put.owner)]
            for put in puts
            if put.space in OF_TRANSACTIONS and put.space != Space.ADMISSIONS
        ]
        if not needed:
            needed = [
                GROUPS[shard_of(put.key[_OF_GROUPS[Space(put.space)] :])]
                for put in puts
                if put.space in _OF_GROUPS
            ]
        needed += [
            NAMESPACES[shard_of(put.owner) % len(NAMESPACES)]
            for put in puts
            if put.space in (Space.EXCHANGES, Space.BINDINGS, Space.QUEUES, Space.DELIVERY_LIMITS)
        ]
        for scope in needed:
            holder = self.holders.get(scope)
            assert holder is not None and holder._storage is storage, f"a commit of {scope}"


class MemoryState:
    """Implements `SharedState`."""

    def __init__(self, state: dict[int, dict[bytes, bytes]]) -> None:
        self._state = state
        self.failure: PosthouseError | None = None
        """The database cannot be reached."""
        self.may_answer = asyncio.Event()
        """What was read is not answered before: it may be old then."""
        self.may_answer.set()
        self.is_asked = asyncio.Event()

    async def of_shard(self, space: Space, shard: int) -> dict[bytes, bytes]:
        return await self._found(space, lambda owner: shard_of(owner) == shard)

    async def of_space(self, space: Space) -> dict[bytes, bytes]:
        return await self._found(space, lambda owner: True)

    async def of_namespaces(self, shard: int) -> Mapping[Space, dict[bytes, bytes]]:
        shards = owner_shards(shard)
        return {
            space: await self._found(space, lambda owner: shard_of(owner) in shards)
            for space in (Space.EXCHANGES, Space.BINDINGS, Space.QUEUES)
        }

    async def of_owners(self, space: Space, owners: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._found(space, lambda owner: owner in owners)

    async def offsets_of_shard(self, shard: int) -> StoredOffsets:
        return await self._offsets(lambda group: shard_of(group) == shard)

    async def offsets_of_groups(self, groups: Sequence[bytes]) -> StoredOffsets:
        return await self._offsets(lambda group: group in groups)

    async def keys_of_topics(self, space: Space, topics: Sequence[bytes]) -> list[bytes]:
        return await self._answered([key for key in self._state.get(space, {}) if key[:16] in topics])

    async def reserve_producer_ids(self, count: int, end: int) -> int | None:
        reserved = self._state.setdefault(Space.PRODUCER_IDS, {})
        first = int.from_bytes(reserved.get(b"next", b""), "big")
        if first + count > end:
            return None
        reserved[b"next"] = (first + count).to_bytes(8, "big")
        return await self._answered(first)

    async def _offsets(self, is_wanted: Callable[[bytes], bool]) -> StoredOffsets:
        committed = self._state.get(Space.OFFSETS, {})
        pending = {
            key[2 + int.from_bytes(key[:2]) :] for key in self._state.get(Space.TRANSACTION_OFFSETS, {})
        }
        return await self._answered(
            StoredOffsets(
                committed={key: value for key, value in committed.items() if is_wanted(key[20:])},
                pending={key for key in pending if is_wanted(key[20:])},
            )
        )

    async def _found(self, space: Space, is_wanted: Callable[[bytes], bool]) -> dict[bytes, bytes]:
        stored = self._state.get(space, {})
        return await self._answered(
            {key: value for key, value in stored.items() if is_wanted(owner_of(space, key))}
        )

    async def _answered(self, found: FoundT) -> FoundT:
        if self.failure is not None:
            raise self.failure
        self.is_asked.set()
        await self.may_answer.wait()
        return found


class CoordinatorStorage(MemoryStorage):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._shared_state = MemoryState(self._state)
        self.scopes = ScopeTable()
        self.may_commit = asyncio.Event()
        """Commits are not durable before."""
        self.may_commit.set()
        self._waiting: deque[tuple[Sequence[Operation], asyncio.Future[list[Outcome]]]] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._followers: list[DefinitionsChanged] = []
        self._taken: set[Scope] = set()
        self._served: set[Scope] = set()

    def subscribe_definitions(self, changed: DefinitionsChanged) -> None:
        self._followers.append(changed)

    def tell(self, change: DefinitionChange) -> None:
        for changed in self._followers:
            changed(change)

    async def take_namespaces(self, scope: Scope) -> None:
        await self.refresh_definitions()
        topics = [topic for topic in self._topics.values() if topic.scope == scope]
        await self.refresh([partition for topic in topics for partition in topic.partition_ids()])
        self._taken.add(scope)

    def serve_namespaces(self, scope: Scope) -> None:
        assert scope in self._taken
        self._served.add(scope)

    def leave_namespaces(self, scope: Scope) -> None:
        self._taken.discard(scope)
        self._served.discard(scope)

    @property
    def _truth(self) -> "CoordinatorStorage":
        return self

    async def announce_sources(self, names: Collection[str], scope: Scope) -> list[str]:
        if scope not in self._taken:
            raise NotLeader(f"another broker has taken {scope}")
        shard = scope.namespace_shard
        assert shard is not None
        await self.commit([Put(Space.SOURCES, name.encode(), bytes([shard])) for name in names])
        topics = self._truth._topics.values()
        return [each.name for each in topics if each.name in names and each.scope is None]

    async def give_topics(self, topics: Sequence[Topic], scope: Scope) -> None:
        if scope not in self._taken:
            raise NotLeader(f"another broker has taken {scope}")
        for topic in topics:
            given = replace(self._truth._topics[topic.id], scope=scope)
            self._truth._topics[topic.id] = self._topics[topic.id] = given

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        known = {topic.name for topic in self._topics.values()}
        for topic in topics:
            if topic.name in known:
                raise TopicExists(f"topic {topic.name!r} exists already")
        sources = self._state.get(Space.SOURCES, {})
        made = [
            replace(topic, scope=NAMESPACES[value[0]])
            if (value := sources.get(topic.name.encode())) is not None
            else topic
            for topic in topics
        ]
        await super().create_topics(made, state)

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def shared_state(self) -> MemoryState:  # type: ignore[override]
        return self._shared_state

    def commit(self, operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        if self.may_commit.is_set() and not self._waiting:
            return self._commit(operations)
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._waiting.append((operations, done))
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_waiting())
        return done

    async def _commit_waiting(self) -> None:
        await self.may_commit.wait()
        while self._waiting:
            operations, done = self._waiting.popleft()
            try:
                done.set_result(await self._commit(operations))
            except PosthouseError as error:
                done.set_exception(error)
        self._committing = None

    def _commit(self, operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        self.scopes.check(self, operations)
        for each in operations:
            assert not isinstance(each, Refer) or self._is_served(each.partition), "references of others"
        return super().commit(operations)

    def _is_served(self, partition: PartitionId) -> bool:
        topic = self._truth._topics.get(partition.topic)
        return topic is None or topic.scope is None or topic.scope in self._served

    def _refusal(self, operation: Operation) -> PosthouseError | None:
        if (
            isinstance(operation, Append | Trim)
            and not _may_be_appended(operation)
            and not self._is_served(operation.partition)
        ):
            return NotLeader("only the holder of its scope writes to it")
        return super()._refusal(operation)


DEFINITIONS = (
    Space.USERS,
    Space.ACCESS_KEYS,
    Space.ACLS,
    Space.QUOTAS,
    Space.SECRETS,
    Space.BROKER_CONFIGS,
    Space.GROUP_CONFIGS,
    Space.CLIENT_METRICS,
)


class MemberStorage(CoordinatorStorage):
    """The log of `coordinator` as another broker sees it: it appends to logs, creates and deletes
    topics, and changes nothing else.

    Definitions and the ends of logs are those of the last refresh.
    """

    def __init__(self, coordinator: CoordinatorStorage, clock: Clock) -> None:
        super().__init__(clock)
        self._coordinator = coordinator
        self.scopes = coordinator.scopes
        self._logs = coordinator._logs
        self._state = coordinator._state
        self._shared_state = MemoryState(self._state)
        self._known: dict[Space, dict[bytes, bytes]] = {}
        self._ends: dict[PartitionId, int] = {}
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

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        if self.failure is not None:
            raise self.failure
        await self._coordinator.create_topics(topics, state)
        made = {topic.id: self._coordinator._topics[topic.id] for topic in topics}
        self._topics |= made
        self._coordinator.tell(DefinitionChange(topics=list(made.values()), deleted=[]))

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        if self.failure is not None:
            raise self.failure
        deleted = [self._coordinator._topics[id] for id in topics if id in self._coordinator._topics]
        await self._coordinator.delete_topics(topics)
        for id in topics:
            self._topics.pop(id, None)
        self._coordinator.tell(DefinitionChange(topics=[], deleted=deleted))

    async def refresh_definitions(self) -> None:
        self.refreshes += 1
        if self.failure is not None:
            raise self.failure
        self.follow()

    def follow(self) -> None:
        """Learn of what others have changed."""
        before, self._topics = self._topics, dict(self._coordinator._topics)
        known, self._known = self._known, self._definitions()
        change = DefinitionChange(  # what this broker has changed itself is among it
            topics=[topic for id, topic in self._topics.items() if before.get(id) != topic],
            deleted=[topic for id, topic in before.items() if id not in self._topics],
            state={space: state for space, state in self._known.items() if known[space] != state},
        )
        self.tell(change)

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

    def _commit(self, operations: Sequence[Operation]) -> "asyncio.Future[list[Outcome]]":
        for each in operations:
            if isinstance(each, Append):
                if (each.header.is_control or each.header.is_transactional) and not each.admission:
                    holder = None if each.scope is None else self.scopes.holders.get(each.scope)
                    if holder is None or holder._storage is not self:
                        raise NotLeader("only the holder of the transactional id commits this")
            elif isinstance(each, Put) and each.space not in _OF_MEMBERS:
                raise NotLeader("only the coordinator commits this")
        done = super()._commit(operations)
        for each in operations:
            if isinstance(each, Append | Refer):
                self._ends[each.partition] = self._log(each.partition).end
        return done

    @property
    def _truth(self) -> CoordinatorStorage:
        return self._coordinator

    def _refusal(self, operation: Operation) -> PosthouseError | None:
        if isinstance(operation, Append):
            topic = self._coordinator.topics.get(operation.partition.topic)
            if topic is None:
                return UnknownPartition("the topic is deleted")
            if operation.admission is not None and not self._is_admitted(operation):
                return NotLeader("another broker coordinates the transaction")
        return super()._refusal(operation)

    def _is_admitted(self, append: Append) -> bool:
        """As the function `commit_group` decides."""
        partition, producer = append.partition, append.header.producer_id
        key = partition.topic + partition.index.to_bytes(4, "big") + producer.to_bytes(8, "big")
        stored = self._state.get(Space.ADMISSIONS, {}).get(key)
        return stored is not None and stored == append.admission

    async def update_topic(self, topic: Topic) -> None:
        if topic.scope is None or not topic.is_internal or topic.scope not in self._taken:
            raise NotLeader("only the coordinator changes topics")
        await self._coordinator.update_topic(topic)
        self._topics[topic.id] = topic


def _may_be_appended(append: Append | Trim) -> bool:
    """To any log, as the function `commit_group` decides."""
    if isinstance(append, Trim):
        return False
    header = append.header
    is_committing = header.is_control and is_commit(append.batch)
    return header.is_transactional and (append.has_referral or not is_committing)


class Pair:
    def __init__(self, clock: ManualClock, settings: Settings) -> None:
        self.clock = clock
        self.storage = CoordinatorStorage(clock)
        self.scopes = self.storage.scopes
        self.coordinator = Broker(self.storage, settings, clock)
        self.member_storage = MemberStorage(self.storage, clock)
        self.member = Broker(self.member_storage, settings, clock)


@asynccontextmanager
async def pair(**settings: Any) -> AsyncIterator[Pair]:
    """The coordinator has started, the member has not."""
    made = Pair(ManualClock(), Settings(memory=True, **settings))
    await made.coordinator.start()
    await made.coordinator.coordinate()
    await made.scopes.take(made.coordinator, *TRANSACTIONS, *NAMESPACES)
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
