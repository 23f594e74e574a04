"""The computing part of a compaction pass over a log: collect keys, then clean group after group.

All calls compute only, and run on another thread. Between two batches they yield to other threads, above all
to the event loop.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import TopicConfig
from posthouse.records.batch import parse_header
from posthouse.records.spans import filler
from posthouse.storage.cleaning.batch_cleaner import NO_HORIZON, BatchCleaner, Rules
from posthouse.storage.cleaning.batch_keys import put_keys
from posthouse.storage.cleaning.key_map import KeyMap
from posthouse.storage.files.segments.reader import Step, walk
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.shared.housekeeping.compaction.sources import CompactionSource
from posthouse.storage.shared.housekeeping.segment_image import SegmentImage


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    sources: Sequence[CompactionSource]
    image: SegmentImage | None
    """The new segment; None if the old ones need no change."""
    clean_to: int
    horizon: int


class Cleaning:
    """First `collect` for every dirty source, then `begin_group`, `add` and `finish_group` for each group."""

    def __init__(
        self,
        partition: PartitionId,
        config: TopicConfig,
        rules: Rules,
        *,
        generation: int,
        map_bytes: int,
    ) -> None:
        self._partition = partition
        self._config = config
        self._rules = rules
        self._generation = generation
        self._keys = KeyMap(map_bytes)
        self._cleaner = BatchCleaner(rules, self._keys, rules.dirty_from)
        self._image: SegmentImage | None = None
        self._is_changed = False
        self._is_damaged = False
        self.clean_to = rules.dirty_from
        """The first offset whose key is not collected."""

    @property
    def forgotten(self) -> list[int]:
        """Abort markers whose transactions leave the list of aborted ones once all groups are swapped."""
        return self._cleaner.forgotten

    def collect(self, source: CompactionSource, data: bytes) -> bool:
        """Collect the keys of one segment. Returns whether there is room for more."""
        self.clean_to = source.next
        for step in _walk(source, data):
            header = step.header
            if header is None or header.base_offset < self._rules.dirty_from:
                continue
            if not header.is_control and not self._rules.aborted.covers(header):
                put_keys(self._keys, step.batch, header)
            if self._keys.is_full:
                self.clean_to = header.next_offset
                break
        self._cleaner = BatchCleaner(self._rules, self._keys, self.clean_to)
        return not self._keys.is_full

    def begin_group(self, sources: Sequence[CompactionSource]) -> None:
        self._cleaner.take_horizon()
        self._is_changed, self._is_damaged = len(sources) > 1, False
        self._image = SegmentImage(
            self._partition,
            sources[0].base,
            self._config,
            created_ms=sources[-1].created_ms,
            generation=self._generation,
        )

    def add(self, source: CompactionSource, data: bytes) -> None:
        """Clean the next segment of the group. From a damaged one on the group stays unchanged."""
        image = self._image
        assert image is not None
        for step in () if self._is_damaged else _walk(source, data):
            if step.header is None or step.header.is_damage:
                self._is_damaged = True
                self._cleaner.may_forget = False
                return
            batch = step.batch
            left = self._cleaner.clean(batch, step.header)
            if left is not None:
                _fill(image, step.header.base_offset)
                image.add(left, step.header if left is batch else parse_header(left))
        _fill(image, source.next)
        self._is_changed = self._is_changed or image.data[HEADER_BYTES:] != data[HEADER_BYTES:]

    def finish_group(self, sources: Sequence[CompactionSource]) -> CleanedGroup:
        image, self._image = self._image, None
        horizon = self._cleaner.take_horizon()
        return CleanedGroup(
            sources=sources,
            image=image if self._is_changed and not self._is_damaged else None,
            clean_to=min(self.clean_to, sources[-1].next),
            horizon=NO_HORIZON if self._is_damaged else horizon,
        )


def _fill(image: SegmentImage, offset: int) -> None:
    """Fill the gap of removed batches before `offset`."""
    for batch in filler(image.next_offset, offset):
        image.add(batch, parse_header(batch))


def _walk(source: CompactionSource, data: bytes) -> Iterator[Step]:
    for step in walk(lambda size, at: data[at : at + size], 0, len(data), source.base, source.next):
        yield step
        time.sleep(0)  # releases the interpreter: waiting threads run first
