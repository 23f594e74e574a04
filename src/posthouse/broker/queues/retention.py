"""What queues still need of the log; the rest of it is trimmed.

From time to time, in this order:

    -  transactions that other brokers have committed are referred to
    0  streams remove messages beyond their retention
    1  every lane's progress is stored, so that its floor is durable
    2  reference logs and stashes are trimmed to what is above that
    3  references that are new are looked at: which records do they lead to?
    4  topics that exist only as queues are trimmed to the first record that a queue needs
    5  a few old messages that hold much back are copied into the stash of their queue

For all other topics, retention asks `needed` and keeps what that says.

Invariant: a record is removed only when all messages that lead to it are durably settled. References written
while this goes on lead to records behind the ends that were taken before it began, and count as needed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from posthouse.broker.progress.progress import ProgressWriter
from posthouse.broker.queues.backing_topics import QUEUE_TOPIC
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import MessageLane
from posthouse.broker.queues.needs import LaneNeeds
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.sources import Sources
from posthouse.broker.queues.stragglers import (
    StragglerLimits,
    Straggling,
    is_sparse,
    put_aside,
    rewrite,
    straggling_to,
)
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.broker.topics import Topics
from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged, NotFound
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import DEFAULT_NAMESPACE, scope_of_namespace
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Trim

log = logging.getLogger(__name__)

IsRead = Callable[[PartitionId], bool]
"""Whether a group reads the partition as a Kafka topic."""
ReadersOf = Callable[[Sequence[Topic]], Awaitable[IsRead]]
"""The answer is for the partitions of these topics."""

_OF_TOPICS: Final = scope_of_namespace(DEFAULT_NAMESPACE)
"""Its holder looks after topics that feed no queue."""
_LANES_PER_TURN = 100
"""Lanes that are looked at before others get the event loop."""


@dataclass(slots=True)
class _Known:
    """What is known of a lane."""

    queue: LogQueue
    floor: int
    """Surely durable."""
    trimmed_to: int
    is_new: bool = True
    """Nothing was looked at yet: there may be leftovers of the broker's last life."""
    needs: LaneNeeds = field(default_factory=LaneNeeds)
    straggling: Straggling | None = None
    is_damaged: bool = False
    """Some of its references cannot be read."""


class QueueRetention:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        topics: Topics,
        clock: Clock,
        progress_writer: ProgressWriter,
        sources: Sources,
        queues: Callable[[], Iterable[LogQueue]],
        delete_forsaken: Callable[[Sequence[Topic]], Awaitable[None]],
        readers_of: ReadersOf,
        refer_committed: Callable[[], Awaitable[None]],
    ) -> None:
        """`refer_committed` refers to the records of transactions that were committed before the call."""
        self._storage = storage
        self._topics = topics
        self._clock = clock
        self._progress_writer = progress_writer
        self._sources = sources
        self._queues = queues
        self._delete_forsaken = delete_forsaken
        self._readers_of = readers_of
        self._refer_committed = refer_committed
        self.held_back: Mapping[PartitionId, int] = {}
        """Up to which offset retention would have removed records when it last ran, but for `needed`."""
        self.limits = StragglerLimits()
        self._known: dict[MessageLane, _Known] = {}
        self._ends: dict[PartitionId, int] | None = None
        self._lowest: dict[PartitionId, int] = {}
        self._uncut: set[LogQueue] = set()
        """Streams that could not be cut the last time, because they cannot be read."""
        self._reclaiming = asyncio.Lock()
        self._loads = 0

    def queues_changed(self) -> None:
        """Queues were loaded or unloaded: what is known does not say what those need that are there now."""
        self._loads += 1
        self._ends = None

    async def paused(self) -> None:
        """Return when the look that is under way has ended: it knows queues that are about to be unloaded."""
        async with self._reclaiming:
            return

    def needed(self, partition: PartitionId) -> int | None:
        """The lowest offset that a queue may need, now or later; None where none needs anything."""
        if self._ends is None:
            return 0 if any(True for _ in self._queues()) else None
        end, lowest = self._ends.get(partition), self._lowest.get(partition)
        if end is None or lowest is None:
            one = lowest if end is None else end
            return 0 if one is None and self._is_source(partition) else one
        return min(end, lowest)

    def _is_source(self, partition: PartitionId) -> bool:
        topic = self._storage.topics.get(partition.topic)
        return topic is not None and topic.name in self._sources.by_topic

    async def reclaim(self) -> None:
        """Trim what no queue needs any more. Costs little where nothing has changed."""
        async with self._reclaiming:
            # In this order. Transactions with records before the ends were decided before the ends were
            # known, so that all of them are referred to. A queue that is declared later has only messages
            # that lie behind the ends.
            ends, loads = self._ends_now(), self._loads
            await self._refer_committed()
            await self._cut_streams(list(self._queues()))
            # Those that are stopped, because this broker ends or gives them up, still need their messages.
            queues = list(self._queues())
            lanes = [lane for queue in queues for lane in queue.lanes]
            self._known = {
                lane: self._known.get(lane) or self._new(queue, lane)
                for queue in queues
                for lane in queue.lanes
            }
            stored = await self._store(lanes)
            await self._trim(self._lane_trims() + self._stash_trims(queues, stored))
            for known in self._known.values():
                known.trimmed_to = known.floor
            lowest = await self._survey()
            if loads != self._loads:
                return  # there are queues that it has not seen, or has seen no more
            self._ends, self._lowest = ends, lowest
            await self._trim(await self._consumed_trims(ends))
            forsaken = await self._forsaken(ends)
            if forsaken:
                await self._delete_forsaken(forsaken)
            await self._relieve(queues)

    async def _cut_streams(self, queues: Iterable[LogQueue]) -> None:
        """Streams remove messages by their own limits, and need from then on no more than other queues."""
        uncut: set[LogQueue] = set()
        for queue in queues:
            if isinstance(queue, StreamQueue):
                try:
                    await queue.cut()
                except NotFound:
                    continue  # deleted meanwhile
                except DataDamaged as error:
                    if queue not in self._uncut:
                        log.error("%s: cannot be read, so its retention removes nothing: %s", queue, error)
                    uncut.add(queue)
        self._uncut = uncut

    def _new(self, queue: LogQueue, lane: MessageLane) -> _Known:
        start = self._storage.bounds(lane.log).start
        return _Known(queue, start, start)

    def _ends_now(self) -> dict[PartitionId, int]:
        """Before which offsets nothing new can be referred to: what is undecided may yet be."""
        topics = [topic for name in self._sources.by_topic if (topic := self._topics.find(name)) is not None]
        return {
            partition: self._storage.bounds(partition).stable
            for topic in (*topics, *self._consumed())
            for partition in topic.partition_ids()
        }

    def _consumed(self) -> list[Topic]:
        """Topics whose records go when queues are done with them, and none that another broker's queues may
        need."""
        return [
            topic
            for topic in self._storage.topics.values()
            if topic.config.retention_consumed
            and not topic.is_internal
            and self._sources.serves(topic.scope or _OF_TOPICS)
        ]

    async def _store(self, lanes: Iterable[MessageLane]) -> set[MessageLane]:
        """Make floors durable, and learn of them; returns the lanes that had changed."""
        changed = {}
        puts: list[Operation] = []
        for lane in lanes:
            progress, known = lane.progress, self._known[lane]
            if known.is_new or progress.is_changed or progress.stash.gone or known.floor != progress.floor:
                changed[lane] = progress.floor, progress.stash.gone, progress.failures
                puts += progress.puts()
        if changed:
            await asyncio.shield(self._progress_writer.store(dict.fromkeys(changed), puts))
        stored = set()
        for lane, (floor, gone, failures) in changed.items():
            # Otherwise an earlier commit has failed, when this one was on its way.
            if lane.progress.failures == failures:
                self._known[lane].floor = floor
                self._known[lane].is_new = False
                lane.progress.stash.forget(gone)
                stored.add(lane)
        return stored

    def _lane_trims(self) -> list[Trim]:
        known = self._known.items()
        return [Trim(lane.log, each.floor) for lane, each in known if each.floor > each.trimmed_to]

    def _stash_trims(self, queues: Iterable[LogQueue], stored: set[MessageLane]) -> list[Trim]:
        trims = []
        for queue in queues:
            if queue.is_closed or stored.isdisjoint(queue.lanes):
                continue
            stashes = [lane.progress.stash for lane in queue.lanes]
            if any(stash.changed for stash in stashes):
                continue
            bounds = self._storage.bounds(queue.stash)
            needed = [lowest for stash in stashes if (lowest := stash.lowest) is not None]
            start = min(needed, default=bounds.end)
            if start > bounds.start:
                trims.append(Trim(queue.stash, start))
        return trims

    async def _trim(self, trims: Sequence[Trim]) -> None:
        there = [trim for trim in trims if trim.partition.topic in self._storage.topics]
        if there:
            await self._storage.commit(there)

    async def _survey(self) -> dict[PartitionId, int]:
        """The lowest offset of each partition that a queue needs."""
        lowest: dict[PartitionId, int] = {}
        damaged: set[str] = set()
        for number, (lane, known) in enumerate(self._known.items()):
            try:
                await known.needs.follow(self._storage, lane.log, known.floor)
                known.is_damaged = False
            except NotFound:
                continue  # its queue was deleted
            except DataDamaged as error:
                self._warn(known, error)
                damaged.add(known.queue.namespace)
            for partition, offset in known.needs.lowest(known.floor).items():
                lowest[partition] = min(offset, lowest.get(partition, offset))
            if number % _LANES_PER_TURN == 0:
                await asyncio.sleep(0)
        if damaged:
            lowest |= dict.fromkeys(self._partitions_for(damaged), 0)
        return lowest

    def _partitions_for(self, namespaces: set[str]) -> Iterator[PartitionId]:
        """All that a queue of these namespaces may refer to: what does not come from another namespace."""
        for topic in self._storage.topics.values():
            source = self._sources.by_topic.get(topic.name)
            if not topic.is_internal and (source is None or source.namespace in namespaces):
                yield from topic.partition_ids()

    def _warn(self, known: _Known, error: DataDamaged) -> None:
        if not known.is_damaged:
            known.is_damaged = True
            log.error(
                "%s: its references cannot be read, so everything that it may refer to is kept: put the file "
                "back and restart, or delete the queue: %s",
                known.queue,
                error,
            )

    async def _consumed_trims(self, ends: Mapping[PartitionId, int]) -> list[Trim]:
        consumed: list[tuple[Topic, Trim]] = []
        for topic in self._consumed():
            for partition in topic.partition_ids():
                if partition not in ends:
                    continue  # younger than this look at it
                start = min(ends[partition], self._lowest.get(partition, ends[partition]))
                if start > self._storage.bounds(partition).start:
                    consumed.append((topic, Trim(partition, start)))
        trims = []
        is_read = await self._readers_of(list({topic.id: topic for topic, _ in consumed}.values()))
        for topic, trim in consumed:
            start = trim.offset
            if is_read(trim.partition):
                start = min(start, await self._expired_before(topic, trim.partition))
            if start > self._storage.bounds(trim.partition).start:
                trims.append(Trim(trim.partition, start))
        return trims

    async def _expired_before(self, topic: Topic, partition: PartitionId) -> int:
        """The offset up to which the broker's default retention applies to a topic that a group reads."""
        default_ms = self._topics.defaults.retention_ms
        if topic.config.retention_ms >= 0 or default_ms < 0:
            return 0  # storage sees to that
        bounds = self._storage.bounds(partition)
        found = await self._storage.find_timestamp(partition, self._clock.now_ms() - default_ms)
        return bounds.end if found is None else found.offset

    async def _forsaken(self, ends: Mapping[PartitionId, int]) -> list[Topic]:
        """Topics that were made for a queue that is gone, and that no other queue and no group needs."""
        unused = [topic for topic in self._consumed() if self._is_unused(topic, ends)]
        is_read = await self._readers_of(unused)
        # A queue may have been declared meanwhile.
        return [
            topic
            for topic in unused
            if self._is_unused(topic, ends) and not any(map(is_read, topic.partition_ids()))
        ]

    def _is_unused(self, topic: Topic, ends: Mapping[PartitionId, int]) -> bool:
        """Of a topic without a scope this broker does not know whether another one gives it to a queue."""
        return (
            topic.name not in self._sources.by_topic
            and topic.overrides.keys() == QUEUE_TOPIC.keys()
            and not any(each in self._lowest for each in topic.partition_ids())
            and all(
                each in ends and self._sources.time_of(each) is not None for each in topic.partition_ids()
            )
        )

    # Stragglers

    async def _relieve(self, queues: Iterable[LogQueue]) -> None:
        now = self._clock.monotonic()
        for number, queue in enumerate(queues):
            if number % _LANES_PER_TURN == 0:
                await asyncio.sleep(0)
            if not isinstance(queue, Queue):
                continue  # a stream needs all that it has, where it is
            try:
                await self._relieve_queue(queue, now)
            except DataDamaged as error:
                log.warning("%s: old messages stay where they are: %s", queue, error)

    async def _relieve_queue(self, queue: Queue, now: float) -> None:
        for lane in queue.lanes:
            end = self._due(lane, now)
            room = self.limits.stashed - len(lane.progress.stash)
            if end and room > 0 and not queue.is_stopped:
                most = min(self.limits.most, room)
                await put_aside(self._storage, queue, lane, end, most)
        if not queue.is_stopped and is_sparse(self._storage, queue, self.limits):
            await rewrite(self._storage, queue)

    def _due(self, lane: MessageLane, now: float) -> int:
        """Up to where messages have held much back for too long; 0, where none have."""
        known, floor = self._known[lane], lane.progress.floor
        straggling = known.straggling
        if straggling is None and not lane.progress.settled_above and not self.held_back:
            return 0
        if straggling is None or straggling.end <= floor:
            end = straggling_to(lane, known.needs, self._overdue(known), self.limits)
            known.straggling = Straggling(end, now) if end > floor else None
            return 0
        if now - straggling.since < self.limits.seconds:
            return 0
        known.straggling = None
        if len(lane.progress.unsettled(straggling.end, self.limits.most + 1)) > self.limits.most:
            return 0
        return straggling.end

    def _overdue(self, known: _Known) -> dict[PartitionId, int]:
        """The partitions where this lane holds retention back by much, each up to which offset."""
        overdue: dict[PartitionId, int] = {}
        if not self.held_back:
            return overdue
        for partition, lowest in known.needs.lowest(known.floor).items():
            wanted = self.held_back.get(partition, 0)
            if wanted > lowest and partition.topic in self._storage.topics:
                bounds = self._storage.bounds(partition)
                share = (wanted - lowest) / max(bounds.end - bounds.start, 1)
                if self._storage.size(partition) * share >= self.limits.size:
                    overdue[partition] = wanted
        return overdue
