"""Merging: small neighbouring segments of a log become one, in the background.

Consolidation writes a segment of a log with little traffic every ten minutes. Merging keeps their number low
(see `tiers`). Compacted topics are left out: compaction merges their segments itself.

The swap, for the merged segments of several logs, which lie in one object:

    1  the object is uploaded under a new key
    2  one transaction (merge_segments) puts the rows of its segments in the place of the old ones

A crash before 2 leaves an orphan, and so does a broker that has lost the scope of a log: 2 is refused. A
crash after 2 leaves nothing to do. Readers see the old segments before 2 and the new ones after it, with the
same batches; old objects stay for the grace of garbage collection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.shared.database import DatabaseConnection, ScopeNeeded, meaning
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs
from posthouse.storage.shared.housekeeping.merging.merge import MergedSegment, SegmentMerge, merged
from posthouse.storage.shared.housekeeping.merging.sources import Cursor, page_behind
from posthouse.storage.shared.housekeeping.merging.swap import swap
from posthouse.storage.shared.housekeeping.merging.tiers import FAN_IN, MergeLimits, merges
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.range_reads import ByteRange, RangeReads
from posthouse.storage.shared.objects.names import ObjectNames

log = logging.getLogger(__name__)

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MergingSettings:
    segment_bytes: int = 32 * MIB
    """Largest segment that is made of several, unless the topic asks for smaller ones."""
    fan_in: int = FAN_IN
    """Segments of about the same size that become one."""
    mixed_bytes: int = 8 * MIB
    """Largest object of several logs."""
    rows_at_once: int = 10_000
    """Segments that a turn looks at."""
    turn_bytes: int = 64 * MIB
    """Bytes that a turn rewrites; it ends with the log that exceeds them."""


class Merging:
    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        objects: HousekeptObjects,
        names: ObjectNames,
        lease: HeldLease,
        kept: KeptLogs,
        topics: Callable[[], Mapping[TopicId, Topic]],
        metrics: HousekeepingMetrics,
        settings: MergingSettings | None = None,
    ) -> None:
        self._connect = connect
        self._objects = objects
        self._ranges = RangeReads(objects)
        self._names = names
        self._lease = lease
        self._kept = kept
        self._topics = topics
        self._metrics = metrics
        self._settings = settings or MergingSettings()
        self._cursor = Cursor()
        self._damaged: set[tuple[int, int, int]] = set()
        """Log, offset and generation of the first segment of merges that failed: they are not tried again."""

    async def run_once(self) -> None:
        """Merge what is due among the next segments of logs that this broker keeps, up to the limits of a
        turn."""
        if not self._kept.shards:
            return
        async with await self._connect() as connection:
            for group in self._groups(await self._due(connection)):
                left = [each for each in group if self._kept.keeps(each.log)]
                try:
                    with self._kept.step(each.log for each in left):
                        await self._merge(connection, left)
                except ScopeNeeded as error:
                    log.info("%s: another broker merges its segments", error)

    async def _due(self, connection: DatabaseConnection) -> list[SegmentMerge]:
        async with meaning("looking for segments to merge"):
            page = await page_behind(connection, self._cursor, self._settings.rows_at_once, self._kept.shards)
        self._cursor = page.next
        found: list[SegmentMerge] = []
        room = self._settings.turn_bytes
        for owner in page.logs:
            topic = self._topics().get(owner.partition.topic)
            if topic is None or topic.config.is_compacted:
                continue
            limits = MergeLimits.of(topic.config, self._settings.segment_bytes, self._settings.fan_in)
            for sources in merges(owner.segments, limits):
                merge = SegmentMerge(
                    log=owner.id, partition=owner.partition, config=topic.config, sources=sources
                )
                if merge.identity not in self._damaged:
                    found.append(merge)
                    room -= merge.size
            if room < 0:
                self._cursor = Cursor(owner.id)
                break
        return found

    def _groups(self, found: Sequence[SegmentMerge]) -> Iterator[list[SegmentMerge]]:
        """Merges whose segments fit into one object. A larger one has an object of its own."""
        group: list[SegmentMerge] = []
        size = 0
        for each in found:
            if group and size + each.size > self._settings.mixed_bytes:
                yield group
                group, size = [], 0
            group.append(each)
            size += each.size
        if group:
            yield group

    async def _merge(self, connection: DatabaseConnection, group: Sequence[SegmentMerge]) -> None:
        if not group:
            return
        try:
            made = await self._made(group)
        except DataDamaged as error:
            if len(group) > 1:
                for each in group:
                    await self._merge(connection, [each])
                return
            self._damaged.add(group[0].identity)
            log.error(
                "%s: segments from offset %d on are not merged: %s",
                group[0].partition,
                group[0].sources[0].base,
                error,
            )
            return
        images = [each.image.data for each in made]
        key = self._names.new()
        await self._objects.put(key, images[0] if len(images) == 1 else b"".join(images))
        async with meaning("putting a merged segment in the place of small ones"):
            done = await swap(connection, self._lease, key, made)
        self._metrics.merged_segments += sum(len(each.merge.sources) for each in done)

    async def _made(self, group: Sequence[SegmentMerge]) -> list[MergedSegment]:
        ranges = [ByteRange(each.key, each.pos, each.size) for merge in group for each in merge.sources]
        data = iter(await self._ranges.read(ranges))
        # Checking some megabytes must not hold up the event loop.
        return [
            await asyncio.to_thread(merged, merge, [bytes(next(data)) for _ in merge.sources])
            for merge in group
        ]
