"""Key compaction of segments: removes records whose key has a later record.

A pass works on the segments of a log below its last stable offset, but never on the one with the last record.
It collects the latest offset of each key that no pass has compacted yet, as far as its memory allows, then
cleans all segments from the start of the log. Small neighbours become one segment, of a new generation.

The swap, one group of segments after the other, first to last:

    1  the new segment is uploaded, in an object of its own
    2  one transaction (swap_segments) puts its row in the place of the old ones

A crash before 2 leaves an orphan, and so does a broker that has lost the scope of the log: 2 is refused.
Stopping between two groups is safe as well: every removed record has a later one with the same key, and
markers and tombstones go only after all records that need them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged, UnknownPartition
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.cleaning.batch_cleaner import Aborted, Rules
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.retention import Needed
from posthouse.storage.shared.database import DatabaseConnection, ScopeNeeded, meaning
from posthouse.storage.shared.housekeeping.compaction.cleaning import Cleaning
from posthouse.storage.shared.housekeeping.compaction.sources import (
    CompactionSource,
    Unconsolidated,
    aborted_in,
    dirty_from,
    is_due,
    segments_of,
    sources_of,
)
from posthouse.storage.shared.housekeeping.compaction.swap import CompactedLog, CompactionSwap
from posthouse.storage.shared.housekeeping.consolidation.consolidation import MIB, Consolidation
from posthouse.storage.shared.housekeeping.consolidation.due import due_logs
from posthouse.storage.shared.housekeeping.fresh_view import FreshView
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    segment_bytes: int = 32 * MIB
    """Largest segment that is made of several, unless the topic asks for smaller ones."""
    map_bytes: int = 128 * MIB
    """Memory limit for the keys of one pass."""


class Compaction:
    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        objects: HousekeptObjects,
        swap: CompactionSwap,
        consolidation: Consolidation,
        kept: KeptLogs,
        view: FreshView,
        clock: Clock,
        metrics: StorageMetrics,
        settings: CompactionSettings | None = None,
    ) -> None:
        self._connect = connect
        self._objects = objects
        self._swap = swap
        self._consolidation = consolidation
        self._kept = kept
        self._view = view
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or CompactionSettings()
        self._one_turn = asyncio.Lock()

    async def run_once(self, needed: Needed) -> None:
        """Compact the logs of compacted topics that are due and that this broker cleans. Records from
        `needed` on stay unchanged."""
        topics = {id: topic for id, topic in self._view.topics.items() if topic.config.is_compacted}
        if not topics:
            return
        async with self._one_turn, await self._connect() as connection:
            async with meaning("looking for logs to compact"):
                found = await connection.execute(
                    "SELECT id, topic, partition FROM log WHERE topic = ANY (%s) ORDER BY id",
                    [[UUID(bytes=bytes(id)) for id in topics]],
                )
                logs = [
                    CompactedLog(id=id, partition=PartitionId(TopicId(topic.bytes), index))
                    for id, topic, index in await found.fetchall()
                    if self._kept.cleans(id, topics[TopicId(topic.bytes)])
                ]
                with_runs = await due_logs(
                    connection, topics, size=0, created_ms=0, logs=[each.id for each in logs]
                )
            runs = {each.id: Unconsolidated(size=each.size, oldest_ms=each.oldest_ms) for each in with_runs}
            for owner in logs:
                try:
                    topic = topics[owner.partition.topic]
                    await self._compact(connection, owner, topic, runs.get(owner.id), needed)
                except ScopeNeeded as error:
                    log.info("%s: another broker compacts its logs", error)
                except UnknownPartition:
                    continue  # deleted meanwhile

    async def _compact(
        self,
        connection: DatabaseConnection,
        owner: CompactedLog,
        topic: Topic,
        runs: Unconsolidated | None,
        needed: Needed,
    ) -> None:
        begun = self._clock.monotonic()
        try:
            segments = await self._segments(connection, owner)
            if runs is None and self._is_clean(segments):
                return
            await self._view.refresh_definitions()
            topic = self._view.topics.get(topic.id, topic)
            if not topic.config.is_compacted or not self._cleans(owner):
                return
            await self._view.refresh([owner.partition], with_producers=True)
            sources = self._sources(segments, owner, topic, needed)
            if runs is not None and is_due(sources, topic.config, self._clock.now_ms(), runs):
                await self._consolidation.consolidate([owner.id])
                segments = await self._segments(connection, owner)
                sources = self._sources(segments, owner, topic, needed)
            while is_due(sources, topic.config, self._clock.now_ms()):
                self._metrics.compacted_partitions += 1
                if await self._one_pass(connection, owner, topic, segments, sources):
                    return
                segments = await self._segments(connection, owner)
                sources = self._sources(segments, owner, topic, needed)
        except DataDamaged as error:
            log.error("%s-%d: not compacted: %s", topic.name, owner.partition.index, error)
        finally:
            self._metrics.compaction_seconds += self._clock.monotonic() - begun

    def _cleans(self, owner: CompactedLog) -> bool:
        """Whether it is this broker that compacts the log, now. Not if its topic was deleted meanwhile."""
        topic = self._view.topics.get(owner.partition.topic)
        return topic is not None and self._kept.cleans(owner.id, topic)

    def _is_clean(self, segments: Sequence[CompactionSource]) -> bool:
        now = self._clock.now_ms()
        return all(each.is_clean and each.horizon > now for each in segments)

    async def _segments(self, connection: DatabaseConnection, owner: CompactedLog) -> list[CompactionSource]:
        async with meaning("looking for segments to compact"):
            return await segments_of(connection, owner.id)

    def _sources(
        self, segments: Sequence[CompactionSource], owner: CompactedLog, topic: Topic, needed: Needed
    ) -> list[CompactionSource]:
        if not self._cleans(owner):
            return []
        bounds, lowest = self._view.bounds(owner.partition), needed(owner.partition)
        end = bounds.stable if lowest is None else min(lowest, bounds.stable)
        return sources_of(segments, topic.config, self._clock.now_ms(), end=end, log_end=bounds.end)

    async def _one_pass(
        self,
        connection: DatabaseConnection,
        owner: CompactedLog,
        topic: Topic,
        segments: Sequence[CompactionSource],
        sources: Sequence[CompactionSource],
    ) -> bool:
        """Returns whether the pass is complete: not if the memory did not suffice, segments have gone, or the
        log is another broker's from now on."""
        generation = 1 + max(each.generation for each in segments)
        rules = await self._rules(connection, owner, topic, sources)
        cleaning = Cleaning(
            owner.partition,
            topic.config,
            rules,
            generation=generation,
            map_bytes=self._settings.map_bytes,
        )
        for source in sources:
            if not source.is_clean:
                if not self._cleans(owner):
                    return False
                data = await self._read(source)
                if not await asyncio.to_thread(cleaning.collect, source, data):
                    break
        for group in self._groups(topic, sources, cleaning.clean_to):
            if not self._cleans(owner):
                return False
            with self._kept.step([owner.id]):
                cleaning.begin_group(group)
                for source in group:
                    await asyncio.to_thread(cleaning.add, source, await self._read(source))
                if not await self._swap.put(connection, owner, cleaning.finish_group(group)):
                    # Later tombstones and markers would be removed before the records that need them.
                    return False
        if cleaning.forgotten:
            await self._swap.forget(connection, owner, cleaning.forgotten)
        return cleaning.clean_to >= sources[-1].next

    async def _rules(
        self,
        connection: DatabaseConnection,
        owner: CompactedLog,
        topic: Topic,
        sources: Sequence[CompactionSource],
    ) -> Rules:
        # The last stable offset that `sources` end at may come from the database or another broker, before
        # this broker knows the outcome of its own marker. Memory would call that transaction committed.
        async with meaning("looking for aborted transactions"):
            aborted = await aborted_in(connection, owner.id, sources[-1].next)
        return Rules(
            partition=f"{topic.name}-{owner.partition.index}",
            now_ms=self._clock.now_ms(),
            delete_retention_ms=topic.config.delete_retention_ms,
            log_start=self._view.bounds(owner.partition).start,
            dirty_from=dirty_from(sources),
            aborted=Aborted(aborted),
            producers=self._view.producers(owner.partition),
        )

    async def _read(self, source: CompactionSource) -> bytes:
        return bytes(await self._objects.read(source.key, source.pos, source.size))

    def _groups(
        self, topic: Topic, sources: Sequence[CompactionSource], clean_to: int
    ) -> Iterator[list[CompactionSource]]:
        """Neighbours that fit into one segment, in order."""
        most = min(topic.config.segment_bytes, self._settings.segment_bytes)
        group: list[CompactionSource] = []
        size = 0
        for source in sources:
            if source.base >= clean_to:
                break
            if group and size + source.batch_bytes > most:
                yield group
                group, size = [], 0
            group.append(source)
            size += source.batch_bytes
        if group:
            yield group
