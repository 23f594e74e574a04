"""The partitions of subscriptions: load and store their progress, and choose where new ones begin."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.progress.progress import Progress, ProgressWriter, lane_of
from posthouse.broker.subscriptions import store
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.broker.subscriptions.rules import RulesOf
from posthouse.model.clock import Clock
from posthouse.model.errors import OffsetOutOfRange, PosthouseError, UnknownGroup
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.model.scopes import Scope
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

_QUEUES_AT_ONCE = 1000
"""Owners of progress in one question to storage."""


class _Place(NamedTuple):
    group: GroupId
    partition: PartitionId


@dataclass(slots=True)
class _StoredPlaces:
    """What storage has of subscriptions, besides their progress."""

    groups: list[GroupId] = field(default_factory=list)
    lanes: dict[tuple[bytes, int], _Place] = field(default_factory=dict)
    leftovers: list[Operation] = field(default_factory=list)
    """Remove what belongs to deleted topics."""


class SubscribedPartitions:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, clock: Clock, rules: RulesOf, held: HeldScopes) -> None:
        self._storage = storage
        self._held = held
        self._clock = clock
        self._rules = rules
        self._progress_writer = ProgressWriter(storage)
        self._groups: dict[GroupId, dict[PartitionId, SubscribedPartition]] = {}
        self._opening: dict[tuple[GroupId, PartitionId], asyncio.Task[SubscribedPartition]] = {}
        self._generation = 0
        self._moves: WeakValueDictionary[GroupId, asyncio.Lock] = WeakValueDictionary()

    def load_all(self) -> None:
        """In a broker that is alone."""
        stored = self._stored_places(self._storage.take_state(Space.SHARE_GROUPS))
        self._take_progress(stored, self._storage.take_state(Space.SHARE_PROGRESS))

    async def load(self, scope: Scope, shared: SharedState) -> None:
        """The subscriptions of a scope that this broker has taken. Raises Unavailable."""
        shard = scope.group_shard
        assert shard is not None
        groups = await shared.of_shard(Space.SHARE_GROUPS, shard)
        if not groups:
            return
        # A topic with progress is older than that: if it is unknown now, it was deleted.
        await self._storage.refresh_definitions()
        stored = self._stored_places(groups)
        queues = list({queue for queue, _ in stored.lanes})
        progress: dict[bytes, bytes] = {}
        for first in range(0, len(queues), _QUEUES_AT_ONCE):
            some = queues[first : first + _QUEUES_AT_ONCE]
            progress |= await shared.of_owners(Space.SHARE_PROGRESS, some)
        topics = self._storage.topics
        read = {place.partition for place in stored.lanes.values() if place.partition.topic in topics}
        await self._storage.refresh(list(read))
        self._take_progress(stored, progress)

    def _stored_places(self, state: Mapping[bytes, bytes]) -> "_StoredPlaces":
        stored = _StoredPlaces()
        for group, topic_id in store.stored_groups(state):
            if topic_id is None:
                stored.groups.append(group)
                continue
            topic = self._storage.topics.get(topic_id)
            if topic is None:
                stored.leftovers.append(store.drop_group(group, topic_id))
                continue
            stored.lanes |= {
                store.lane_of(group, each): _Place(group, each) for each in topic.partition_ids()
            }
        return stored

    def _take_progress(self, stored: "_StoredPlaces", progress: Mapping[bytes, bytes]) -> None:
        found: dict[_Place, Progress] = {}
        leftovers = stored.leftovers
        for key, value in progress.items():
            place = stored.lanes.get(lane_of(key))
            if place is None or place.partition.topic not in self._storage.topics:
                leftovers.append(Put(Space.SHARE_PROGRESS, key, None))
                continue
            if place not in found:
                found[place] = store.new_progress(place.group, place.partition, 0)
            found[place].load(key, value)
        for group in stored.groups:
            self._groups.setdefault(group, {})
        for place, each in found.items():
            each.loaded(self._storage.bounds(place.partition).start)
            self._groups.setdefault(place.group, {})[place.partition] = self._subscribed(each)
        if leftovers:
            self._storage.commit(leftovers)

    async def unload(self, groups: Iterable[GroupId]) -> None:
        """Another broker holds them from now on: store their exact progress, and forget them. What is not
        stored because the storage fails is delivered again."""
        partitions: list[SubscribedPartition] = []
        for group in groups:
            partitions += self._groups.pop(group, {}).values()
        await self._progress_writer.leave(partitions)

    def __contains__(self, group: object) -> bool:
        return group in self._groups

    def groups(self) -> list[GroupId]:
        return list(self._groups)

    def of(self, group: GroupId) -> Mapping[PartitionId, SubscribedPartition]:
        """The partitions that the group has begun to read."""
        found = self._groups.get(group)
        if found is None:
            raise UnknownGroup(f"there is no subscription {group!r}")
        return found

    def in_work(self, group: GroupId) -> int:
        """Records that members of the group hold; not those that only wait until they come again."""
        return sum(each.in_work for each in self._groups.get(group, {}).values())

    def find(self, group: GroupId, partition: PartitionId) -> SubscribedPartition | None:
        return self._groups.get(group, {}).get(partition)

    async def add_group(self, group: GroupId) -> None:
        """Add a group: in memory at once, durable on return."""
        self._groups[group] = {}
        try:
            await self._storage.commit([store.put_group(group)])
        except PosthouseError:
            self._groups.pop(group, None)
            raise

    async def opened(self, group: GroupId, partition: PartitionId) -> SubscribedPartition:
        """Open a partition. Its start position is stored first: records that arrive from now on are
        delivered."""
        known = self.of(group).get(partition)
        if known is not None and known.is_closed:
            async with self._moving(group):
                known = self.of(group).get(partition)
        if known is not None:
            return known
        opening = self._opening.get((group, partition))
        if opening is None:
            opening = self._opening[group, partition] = asyncio.create_task(self._open(group, partition))
            opening.add_done_callback(lambda done: self._opened(group, partition, done))
        return await asyncio.shield(opening)

    def _opened(
        self, group: GroupId, partition: PartitionId, done: asyncio.Task[SubscribedPartition]
    ) -> None:
        del self._opening[group, partition]
        if not done.cancelled():
            done.exception()  # raised where it is awaited, if anywhere

    async def _open(self, group: GroupId, partition: PartitionId) -> SubscribedPartition:
        with self._held.used(group):  # the caller may be gone before this is done
            progress = store.new_progress(group, partition, await self._beginning(group, partition))
            await self._storage.commit([store.put_group(group, partition.topic), *progress.puts()])
            return self._take(group, partition, progress)

    def _take(self, group: GroupId, partition: PartitionId, progress: Progress) -> SubscribedPartition:
        groups = self._groups.get(group)
        if groups is None or partition.topic not in self._storage.topics:
            self._storage.commit([store.drop_group(group, partition.topic), *progress.removals()])
            raise UnknownGroup(f"the subscription {group!r} has just been deleted")
        known = groups[partition] = self._subscribed(progress)
        return known

    def _subscribed(self, progress: Progress) -> SubscribedPartition:
        self._generation = max(self._generation + 1, self._clock.now_ms())
        return SubscribedPartition(progress, self._generation)

    async def _beginning(self, group: GroupId, partition: PartitionId) -> int:
        rules = self._rules(group)
        await self._storage.refresh([partition])
        bounds = self._storage.bounds(partition)
        if rules.begins_at_end:
            return bounds.end
        if rules.begins_ago_ms is None:
            return bounds.start
        found = await self._storage.find_timestamp(partition, self._clock.now_ms() - rules.begins_ago_ms)
        return bounds.end if found is None else found.offset

    def changed(self, group: GroupId, partition: PartitionId, subscribed: SubscribedPartition) -> None:
        """Store the progress soon; if that is lost, records are redelivered."""
        if subscribed.progress.is_changed and self.find(group, partition) is subscribed:
            self._progress_writer.changed(subscribed)

    async def store(self, partitions: Iterable[SubscribedPartition]) -> None:
        """Durable on return."""
        changed = [each for each in partitions if each.progress.is_changed and not each.is_closed]
        puts = [put for subscribed in changed for put in subscribed.progress.puts()]
        if not puts:
            return
        try:
            await self._storage.commit(puts)
        except PosthouseError:
            for subscribed in changed:
                subscribed.progress.not_stored()
                self._progress_writer.changed(subscribed)
            raise

    async def move(self, group: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        """Restart at these offsets; settled state and leases are dropped."""
        if wrong := [offset for offset in offsets.values() if offset < 0]:
            raise OffsetOutOfRange(f"there is no offset {wrong[0]}")
        async with self._moving(group):
            of_group = self.of(group)
            before = {partition: of_group[partition] for partition in offsets if partition in of_group}
            operations: list[Operation] = []
            moved: dict[PartitionId, Progress] = {}
            for partition, offset in offsets.items():
                operations += self._removals(of_group, [partition])
                moved[partition] = store.new_progress(group, partition, offset)
                operations += [store.put_group(group, partition.topic), *moved[partition].puts()]
            try:
                await self._storage.commit(operations)
            except BaseException:
                self._reopen(group, before)
                raise
            self._take_all(group, moved)

    def _moving(self, group: GroupId) -> asyncio.Lock:
        """One move of a group after the other: what follows one must not be stored before it."""
        lock = self._moves.get(group)
        if lock is None:
            lock = self._moves[group] = asyncio.Lock()
        return lock

    def _reopen(self, group: GroupId, partitions: Mapping[PartitionId, SubscribedPartition]) -> None:
        for partition, subscribed in partitions.items():
            if self.find(group, partition) is subscribed:
                subscribed.is_closed = False
                self._progress_writer.resume(subscribed)

    def _take_all(self, group: GroupId, moved: Mapping[PartitionId, Progress]) -> None:
        gone: UnknownGroup | None = None
        for partition, progress in moved.items():
            try:
                self._take(group, partition, progress)
            except UnknownGroup as error:
                gone = error
        if gone is not None:
            raise gone

    async def forget_topic(self, group: GroupId, topic: TopicId) -> bool:
        """Remove the group's progress in the topic; False if there is none."""
        async with self._moving(group):
            of_group = self._groups.get(group, {})
            partitions = [partition for partition in of_group if partition.topic == topic]
            removals = self._removals(of_group, partitions)
            for partition in partitions:
                del of_group[partition]
            if removals:
                await self._storage.commit([store.drop_group(group, topic), *removals])
            return bool(removals)

    async def forget_group(self, group: GroupId) -> None:
        async with self._moving(group):
            of_group = self._groups.pop(group, {})
            operations: list[Operation] = [store.drop_group(group)]
            operations += [store.drop_group(group, topic) for topic in {each.topic for each in of_group}]
            await self._storage.commit([*operations, *self._removals(of_group, list(of_group))])

    def _removals(
        self, of_group: Mapping[PartitionId, SubscribedPartition], partitions: Sequence[PartitionId]
    ) -> list[Put]:
        removals = []
        for partition in partitions:
            subscribed = of_group.get(partition)
            if subscribed is not None:
                subscribed.is_closed = True
                self._progress_writer.abandon(subscribed)
                removals += subscribed.progress.removals()
        return removals

    async def close(self) -> None:
        for opening in list(self._opening.values()):
            opening.cancel()
        partitions = [subscribed for of_group in self._groups.values() for subscribed in of_group.values()]
        open_ones = [each for each in partitions if not each.is_closed]
        await self._progress_writer.close(each for each in open_ones if each.progress.is_changed)
