"""One compaction pass over a partition: choose segments, collect their keys, write the cleaned segments.

A pass works on closed segments that the catalog has in full, below the last stable offset. First it collects
the latest offset of each key in the *dirty* part, which no pass has compacted yet, as far as its memory
allows. Then it cleans all segments from the start of the log. Small neighbours are merged into one segment.

The swap, one group of segments after the other, first to last:

    1  the new file is written as `….log.part` and synced, renamed, its directory synced   (segment_writer)
    2  one transaction of the catalog removes the rows of the old files and adds that of the new one
    3  the event loop reads from the new one; the old files are removed

A crash before 2 leaves the old files unchanged and a new file without a row. A crash after 2 leaves old files
without rows. Recovery removes both. Stopping between two groups is safe as well: every removed record has a
later record with the same key. Groups are swapped in order, so that a marker or tombstone is removed only
after every record that needs it.

All calls block. No call changes a Segment that other threads see. Between two batches the pass yields to
other threads, above all to the event loop.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from posthouse.storage.cleaning.batch_cleaner import NO_HORIZON, BatchCleaner, Rules
from posthouse.storage.cleaning.batch_keys import put_keys
from posthouse.storage.cleaning.key_map import KeyMap
from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.segments.reader import Reader, Step, walk
from posthouse.storage.files.segments.segment import Segment, segment_name
from posthouse.storage.files.segments.writer import SegmentWriter
from posthouse.storage.files.system.disk import Disk
from posthouse.storage.files.system.open_files import OpenFiles


class Stopped(Exception):
    """The pass was cancelled."""


class _Damaged(Exception):
    """The segment has bytes that are not batches: it stays unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A segment and the first offset behind it."""

    segment: Segment
    end_offset: int

    @property
    def is_clean(self) -> bool:
        return self.segment.clean_to >= self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """The result of cleaning a group: a new segment that replaces the old ones, or one that needed no
    change."""

    sources: tuple[Segment, ...]
    segment: Segment | None
    clean_to: int
    horizon: int


class Pass:
    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        owner: PartitionLog,
        sources: list[SourceSegment],
        rules: Rules,
        *,
        map_bytes: int,
        stopped: threading.Event,
    ) -> None:
        self._disk = disk
        self._files = files
        self._directory = owner.directory
        self._partition = owner.id.index
        self._config = owner.config
        self._generation = 1 + max((each.generation for each in owner.segments), default=0)
        self._sources = sources
        self._rules = rules
        self._keys = KeyMap(map_bytes)
        self._stopped = stopped
        self._cleaner = BatchCleaner(rules, self._keys, rules.dirty_from)
        self.clean_to = rules.dirty_from

    @property
    def is_partial(self) -> bool:
        """The memory limit was reached before all keys were collected."""
        return self.clean_to < self._sources[-1].end_offset

    @property
    def forgotten(self) -> list[int]:
        """Abort markers whose transactions leave the list of aborted transactions once all groups are
        swapped."""
        return self._cleaner.forgotten

    def collect_keys(self) -> None:
        """Collect the latest offset of every key. Must be called first."""
        for source in self._sources:
            if source.is_clean:
                continue
            self.clean_to = self._collect(source)
            if self.clean_to < source.end_offset:
                break
        self._cleaner = BatchCleaner(self._rules, self._keys, self.clean_to)

    def _collect(self, source: SourceSegment) -> int:
        """Collect the keys of one segment; returns the first offset that was not read."""
        with self._opened(source.segment) as read:
            for step in self._walk(read, source):
                header = step.header
                if header is None or header.base_offset < self._rules.dirty_from:
                    continue
                if not header.is_control and not self._rules.aborted.covers(header):
                    put_keys(self._keys, step.batch, header)
                if self._keys.is_full:
                    return header.next_offset
        return source.end_offset

    def groups(self) -> Iterator[list[SourceSegment]]:
        """Neighbours that fit into one segment, in order. A damaged segment is a group of its own."""
        group: list[SourceSegment] = []
        size = 0
        for source in self._sources:
            if source.segment.base_offset >= self.clean_to:
                break
            fits = size + source.segment.batch_bytes <= self._config.segment_bytes
            if group and (not fits or source.segment.damage or group[-1].segment.damage):
                yield group
                group, size = [], 0
            group.append(source)
            size += source.segment.batch_bytes
        if group:
            yield group

    def clean(self, group: list[SourceSegment]) -> list[Cleaned]:
        """Clean one group. Groups must be cleaned in order."""
        first = group[0].segment
        path = f"{self._directory}/{segment_name(self._partition, first.base_offset, self._generation)}"
        interval = self._config.index_interval_bytes
        self._cleaner.take_horizon()
        with ExitStack() as opened:
            only = opened.enter_context(self._opened(first)) if len(group) == 1 else None
            writer = SegmentWriter(self._disk, path, first.base_offset, interval, only, first.first_position)
            try:
                for source in group:
                    self._rewrite(source, writer)
                is_new = writer.finish(group[-1].end_offset)
            except _Damaged:
                writer.abandon()
                self._cleaner.may_forget = False
                return [self._unchanged(source, NO_HORIZON) for source in group]
            except BaseException:
                writer.abandon()
                raise
        horizon = self._cleaner.take_horizon()
        return [self._replaced(group, writer, horizon) if is_new else self._unchanged(group[0], horizon)]

    def _rewrite(self, source: SourceSegment, writer: SegmentWriter) -> None:
        with self._opened(source.segment) as read:
            for step in self._walk(read, source):
                if step.header is None:
                    raise _Damaged
                batch = step.batch
                left = self._cleaner.clean(batch, step.header)
                if left is None:
                    writer.drop(step.header)
                else:
                    writer.keep(left, step.header, is_changed=left is not batch)

    def _unchanged(self, source: SourceSegment, horizon: int) -> Cleaned:
        return Cleaned(
            sources=(source.segment,),
            segment=None,
            clean_to=min(self.clean_to, source.end_offset),
            horizon=horizon,
        )

    def _replaced(self, group: list[SourceSegment], writer: SegmentWriter, horizon: int) -> Cleaned:
        clean_to = min(self.clean_to, group[-1].end_offset)
        segment = Segment(
            self._directory,
            self._partition,
            group[0].segment.base_offset,
            created_ms=group[-1].segment.created_ms,
            interval=self._config.index_interval_bytes,
            size=writer.size,
            index_size=writer.index_size,
            generation=self._generation,
            clean_to=clean_to,
            horizon=horizon,
        )
        segment.index = writer.index
        sources = tuple(source.segment for source in group)
        return Cleaned(sources=sources, segment=segment, clean_to=clean_to, horizon=horizon)

    def _walk(self, read: Reader, source: SourceSegment) -> Iterator[Step]:
        segment = source.segment
        for step in walk(read, 0, segment.size, segment.base_offset, source.end_offset):
            if self._stopped.is_set():
                raise Stopped
            yield step
            time.sleep(0)  # releases the interpreter: waiting threads run first

    @contextmanager
    def _opened(self, segment: Segment) -> Iterator[Reader]:
        file = self._files.acquire(segment.path)
        try:
            yield lambda size, position: self._disk.read(file.handle, size, position)
        finally:
            self._files.release(file)
