"""The partitions of subscriptions: load and store their progress, and choose where new ones begin."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from posthouse.broker.progress.progress import Progress, ProgressWriter, lane_of
from posthouse.broker.subscriptions import store
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.broker.subscriptions.rules import RulesOf
from posthouse.model.clock import Clock
from posthouse.model.errors import OffsetOutOfRange, PosthouseError, UnknownGroup
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.spaces import Space


class SubscribedPartitions:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, clock: Clock, rules: RulesOf) -> None:
        self._storage = storage
        self._clock = clock
        self._rules = rules
        self._progress_writer = ProgressWriter(storage)
        self._groups: dict[GroupId, dict[PartitionId, SubscribedPartition]] = {}
        self._opening: dict[tuple[GroupId, PartitionId], asyncio.Task[SubscribedPartition]] = {}

    def load(self) -> None:
        lanes: dict[tuple[bytes, int], tuple[GroupId, PartitionId]] = {}
        leftovers: list[Operation] = []
        for group, topic_id in store.stored_groups(self._storage.take_state(Space.SHARE_GROUPS)):
            if topic_id is None:
                self._groups.setdefault(group, {})
                continue
            topic = self._storage.topics.get(topic_id)
            if topic is None:
                leftovers.append(store.drop_group(group, topic_id))
                continue
            lanes |= {store.lane_of(group, each): (group, each) for each in topic.partition_ids()}
        found: dict[tuple[GroupId, PartitionId], Progress] = {}
        for key, value in self._storage.take_state(Space.SHARE_PROGRESS).items():
            place = lanes.get(lane_of(key))
            if place is None:
                leftovers.append(Put(Space.SHARE_PROGRESS, key, None))
                continue
            if place not in found:
                found[place] = store.new_progress(*place, 0)
            found[place].load(key, value)
        for (group, partition), progress in found.items():
            progress.loaded(self._storage.bounds(partition).start)
            self._groups.setdefault(group, {})[partition] = SubscribedPartition(progress)
        if leftovers:
            self._storage.commit(leftovers)

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
        progress = store.new_progress(group, partition, await self._beginning(group, partition))
        await self._storage.commit([store.put_group(group, partition.topic), *progress.puts()])
        return self._take(group, partition, progress)

    def _take(self, group: GroupId, partition: PartitionId, progress: Progress) -> SubscribedPartition:
        groups = self._groups.get(group)
        if groups is None or partition.topic not in self._storage.topics:
            self._storage.commit([store.drop_group(group, partition.topic), *progress.removals()])
            raise UnknownGroup(f"the subscription {group!r} has just been deleted")
        known = groups[partition] = SubscribedPartition(progress)
        return known

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
        changed = [subscribed for subscribed in partitions if subscribed.progress.is_changed]
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
        of_group = self.of(group)
        operations: list[Operation] = []
        moved: dict[PartitionId, Progress] = {}
        for partition, offset in offsets.items():
            if offset < 0:
                raise OffsetOutOfRange(f"there is no offset {offset}")
            operations += self._removals(of_group, [partition])
            moved[partition] = store.new_progress(group, partition, offset)
            operations += [store.put_group(group, partition.topic), *moved[partition].puts()]
        await self._storage.commit(operations)
        for partition, progress in moved.items():
            self._take(group, partition, progress)

    async def forget_topic(self, group: GroupId, topic: TopicId) -> bool:
        """Remove the group's progress in the topic; False if there is none."""
        of_group = self._groups.get(group, {})
        partitions = [partition for partition in of_group if partition.topic == topic]
        removals = self._removals(of_group, partitions)
        for partition in partitions:
            del of_group[partition]
        if removals:
            await self._storage.commit([store.drop_group(group, topic), *removals])
        return bool(removals)

    async def forget_group(self, group: GroupId) -> None:
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
                self._progress_writer.forget(subscribed)
                removals += subscribed.progress.removals()
        return removals

    async def close(self) -> None:
        for opening in list(self._opening.values()):
            opening.cancel()
        partitions = [subscribed for of_group in self._groups.values() for subscribed in of_group.values()]
        await self._progress_writer.close(each for each in partitions if each.progress.is_changed)
