"""Compaction on the event loop: choose the partitions that are due, and swap segments.

The pass itself (`compaction`) runs on its own thread. Planning and swapping hold the checkpoint's lock: a
checkpoint that began before a swap would restore the rows of the old files.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.cleaning.batch_cleaner import Aborted, Rules
from posthouse.storage.files.catalog.rows import SegmentRow
from posthouse.storage.files.commits.checkpoint import segment_row
from posthouse.storage.files.compaction.compaction import Cleaned, Pass, SourceSegment, Stopped
from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.segments.segment import Segment
from posthouse.storage.files.system.disk import Disk, SyncFailed
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.files.system.workers import Workers
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.retention import Needed, nothing_needed

log = logging.getLogger(__name__)

T = TypeVar("T")

MAP_BYTES = 128 * 1024 * 1024
"""Memory limit for the keys of one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionHost:
    """Operations of the storage that compaction needs."""

    checkpoint: Callable[[], Awaitable[bool]]
    """Write a checkpoint; returns whether it succeeded."""
    one_checkpoint: asyncio.Lock
    replace_rows: Callable[[PartitionId, list[int], SegmentRow], Awaitable[None]]
    has: Callable[[PartitionLog], bool]
    """Whether the log still exists: its topic may be deleted during a pass."""
    changed: Callable[[PartitionLog], None]
    remove: Callable[[list[Segment]], None]
    fence: Callable[[str], None]


class Compactor:
    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        clock: Clock,
        host: CompactionHost,
        workers: Workers,
        metrics: StorageMetrics,
        *,
        map_bytes: int = MAP_BYTES,
    ) -> None:
        self._disk = disk
        self._files = files
        self._clock = clock
        self._host = host
        self._metrics = metrics
        self._map_bytes = map_bytes
        self._worker = workers.pool("posthouse-compaction", 1)
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._current: PartitionLog | None = None
        self._stopped = threading.Event()
        self._between = asyncio.Event()
        """Set while no pass is running."""
        self._between.set()

    async def run(self, logs: Iterable[PartitionLog], needed: Needed = nothing_needed) -> None:
        """Compact the partitions that are due. If the caller is cancelled, a running pass continues until
        `close`."""
        if self._running is None and not self._closed:
            self._running = asyncio.create_task(self._run(list(logs), needed), name="compaction")
            self._running.add_done_callback(self._done)
        if self._running is not None:
            await asyncio.shield(self._running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled() and task.exception() is not None:
            log.error("compaction failed, retrying with the next run", exc_info=task.exception())

    async def leave(self, topics: Collection[TopicId]) -> None:
        """Return when no pass works on these topics. The caller must not offer them again."""
        if self._current is not None and self._current.id.topic in topics:
            self._stopped.set()
            await self._between.wait()

    async def close(self) -> None:
        self._closed = True
        self._stopped.set()
        if self._running is not None:
            await asyncio.wait([self._running])
        self._worker.shutdown()

    async def _run(self, logs: list[PartitionLog], needed: Needed) -> None:
        now = self._clock.now_ms()
        compacted = [owner for owner in logs if owner.config.is_compacted]
        due = [owner for owner in compacted if is_due(owner, sources_of(owner, now, needed), now)]
        if not due or not await self._host.checkpoint():
            return
        for owner in due:
            while not self._closed and self._host.has(owner) and await self._one_pass(owner, needed):
                continue

    async def _one_pass(self, owner: PartitionLog, needed: Needed) -> bool:
        """Run one pass; returns whether another is needed because the memory limit was reached."""
        self._stopped.clear()
        self._current = owner
        self._between.clear()
        begun = self._clock.monotonic()
        try:
            is_compacted = await self._compact(owner, needed)
            self._metrics.compacted_partitions += 1
            return is_compacted
        except Stopped:
            return False
        except SyncFailed as error:
            self._host.fence(str(error))
            return False
        except (OSError, PosthouseError) as error:
            log.warning("%s: not compacted, retrying with the next run: %s", owner.name, error)
            return False
        finally:
            self._metrics.compaction_seconds += self._clock.monotonic() - begun
            self._current = None
            self._between.set()

    async def _compact(self, owner: PartitionLog, needed: Needed) -> bool:
        now = self._clock.now_ms()
        async with self._host.one_checkpoint:
            sources = sources_of(owner, now, needed, checkpointed=True)
            if not is_due(owner, sources, now):
                return False
            work = self._pass(owner, sources, now)
        await self._in_worker(work.collect_keys)
        for group in work.groups():
            there = [owner.has(source.segment) for source in group]
            if not any(there):
                continue  # trimmed meanwhile
            if not all(there):
                return True
            for cleaned in await self._in_worker(partial(work.clean, group)):
                if not await self._swap(owner, cleaned):
                    # Part of the group was trimmed, so the rest stays unchanged. Later tombstones and markers
                    # would be removed before the records that need them: start the pass again.
                    return True
        if work.forgotten:
            owner.producers.forget_aborted(work.forgotten)
            self._host.changed(owner)
        return work.is_partial

    def _pass(self, owner: PartitionLog, sources: list[SourceSegment], now: int) -> Pass:
        end = sources[-1].end_offset
        rules = Rules(
            partition=owner.name,
            now_ms=now,
            delete_retention_ms=owner.config.delete_retention_ms,
            log_start=owner.start,
            dirty_from=dirty_from(sources),
            aborted=Aborted(owner.producers.aborted_between(0, end)),
            producers=owner.producers.active(),
        )
        return Pass(
            self._disk,
            self._files,
            owner,
            sources,
            rules,
            map_bytes=self._map_bytes,
            stopped=self._stopped,
        )

    async def _swap(self, owner: PartitionLog, cleaned: Cleaned) -> bool:
        """Swap one group; returns whether all of its old segments were replaced."""
        async with self._host.one_checkpoint:
            there = [owner.has(segment) for segment in cleaned.sources]
            if self._stopped.is_set() or not all(there):
                if cleaned.segment is not None:
                    self._host.remove([cleaned.segment])
                if self._stopped.is_set():
                    raise Stopped
                return not any(there)
            if cleaned.segment is None:
                await self._note(owner, cleaned)
                return True
            bases = [segment.base_offset for segment in cleaned.sources]
            await self._host.replace_rows(owner.id, bases, segment_row(owner.id, cleaned.segment))
            if not owner.replace(cleaned.sources, cleaned.segment):
                # The whole group was trimmed meanwhile: the next checkpoint removes the row.
                owner.was_trimmed = True
                self._host.changed(owner)
                self._host.remove([cleaned.segment])
        self._host.remove(list(cleaned.sources))
        return True

    async def _note(self, owner: PartitionLog, cleaned: Cleaned) -> None:
        """Store that the segment was compacted although no record had to be removed."""
        [segment] = cleaned.sources
        if (segment.clean_to, segment.horizon) != (cleaned.clean_to, cleaned.horizon):
            row = replace(segment_row(owner.id, segment), clean_to=cleaned.clean_to, horizon=cleaned.horizon)
            await self._host.replace_rows(owner.id, [segment.base_offset], row)
            segment.clean_to, segment.horizon = cleaned.clean_to, cleaned.horizon

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)


def sources_of(
    owner: PartitionLog, now_ms: int, needed: Needed = nothing_needed, *, checkpointed: bool = False
) -> list[SourceSegment]:
    """The segments that a pass may clean: all from the first on, except the active one."""
    sources: list[SourceSegment] = []
    lowest, stable = needed(owner.id), owner.bounds.stable
    end = stable if lowest is None else min(lowest, stable)
    lag = owner.config.min_compaction_lag_ms
    for segment, following in zip(owner.segments, owner.segments[1:], strict=False):
        source = SourceSegment(segment=segment, end_offset=following.base_offset)
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if (
            following.base_offset > end
            or not segment.is_settled
            or segment.misplaced
            or (checkpointed and segment.is_changed)
            or (lag and newest > now_ms - lag and not source.is_clean)
        ):
            break
        sources.append(source)
    return sources


def dirty_from(sources: list[SourceSegment]) -> int:
    for source in sources:
        if not source.is_clean:
            return max(source.segment.clean_to, source.segment.base_offset)
    return sources[-1].end_offset


def is_due(owner: PartitionLog, sources: list[SourceSegment], now_ms: int) -> bool:
    """Whether enough bytes are dirty, a dirty record is too old, or a delete horizon has passed."""
    config = owner.config
    if not sources:
        return False
    if any(source.segment.horizon <= now_ms for source in sources):
        return True
    dirty = [source.segment for source in sources if not source.is_clean]
    if not dirty:
        return False
    size = sum(segment.size for segment in dirty)
    total = sum(source.segment.size for source in sources)
    return (
        size >= config.min_cleanable_dirty_ratio * total
        or now_ms - dirty[0].created_ms >= config.max_compaction_lag_ms
    )
