"""Reads a range from objects, and from brokers what objects do not have. Runs on executors.

An object that is gone, or whose address has expired, is looked up again. One that is damaged, or a store that
does not answer, is left to the brokers, which have the same records: rows are never lost, doubled or wrong.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from posthouse.client.manifests import SegmentObject
from posthouse.client.reading import Fetched
from posthouse.spark.options import SourceOptions
from posthouse.spark.planning import OffsetRange
from posthouse.spark.segments.aborted import AbortedAhead
from posthouse.spark.segments.batches import checked_chunks
from posthouse.spark.segments.errors import ObjectDamaged, ObjectError, ObjectsAway, ObjectStale
from posthouse.spark.segments.holds import renew
from posthouse.spark.segments.manifests import RangeSegments, TopicRange, find_segments
from posthouse.spark.segments.prefetch import ObjectSource
from posthouse.spark.segments.signed_objects import SignedObjects
from posthouse.spark.segments.stored_objects import StoredObjects

log = logging.getLogger(__name__)

ReadBroker: TypeAlias = Callable[[OffsetRange], Iterator[Fetched]]

_AWAY_SECONDS = 60.0

_away: dict[str, float] = {}
"""Object stores that did not answer, and when: the next tasks of this process do not wait for them again."""


def first_part(
    wanted: OffsetRange, segments: Sequence[SegmentObject]
) -> tuple[OffsetRange, list[SegmentObject]]:
    """The first part of a range, and the segments that have it, by offset. If none has, a broker reads it."""
    position = wanted.first
    chosen: list[SegmentObject] = []
    for segment in segments:
        if segment.base > position or position >= wanted.end:
            break
        if segment.last >= position:
            chosen.append(segment)
            position = segment.last + 1
    if not chosen:
        position = min((each.base for each in segments if each.base > wanted.first), default=wanted.end)
    return replace(wanted, end=min(position, wanted.end)), chosen


class SegmentReading:
    """Iterates over fetches of a range, in order."""

    def __init__(
        self, options: SourceOptions, wanted: TopicRange, found: RangeSegments, read_broker: ReadBroker
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._found = found
        self._read_broker = read_broker
        self._position = wanted.range.first
        self._looked_up_at = -1

    def __iter__(self) -> Iterator[Fetched]:
        source: ObjectSource = (
            SignedObjects(timeout=self._options.timeout)
            if self._options.object_store is None
            else StoredObjects(self._options.object_store)
        )
        try:
            while self._position < self._wanted.range.end:
                left = replace(self._wanted.range, first=self._position)
                part, segments = first_part(left, self._found.segments)
                if segments:
                    yield from self._from_objects(source, part, segments)
                else:
                    yield from self._read_broker(part)
                    self._position = part.end
        finally:
            source.close()

    def _from_objects(
        self, source: ObjectSource, part: OffsetRange, segments: Sequence[SegmentObject]
    ) -> Iterator[Fetched]:
        """Stops early if an object cannot be read; then `_found` does not have it any more."""
        origin = source.origin(segments[0].address)
        if time.monotonic() - _away.get(origin, float("-inf")) < _AWAY_SECONDS:
            self._use([])
            return
        try:
            yield from self._chunks(source, part, segments)
        except ObjectStale as error:
            self._look_up(error)
        except ObjectsAway as error:
            _away[origin] = time.monotonic()
            self._warn(error)
            self._use([])
        except ObjectDamaged as error:
            self._warn(error)
            at = self._position
            self._use([each for each in self._found.segments if not each.base <= at <= each.last])

    def _chunks(
        self, source: ObjectSource, part: OffsetRange, segments: Sequence[SegmentObject]
    ) -> Iterator[Fetched]:
        aborted = AbortedAhead(self._found.aborted)
        for chunk in checked_chunks(source, segments):
            renew(self._options, self._found.hold)
            yield Fetched(
                topic=part.place.topic,
                partition=part.place.partition,
                data=chunk.data,
                first=self._position,
                end=part.end,
                aborted=aborted.of(chunk.base, chunk.next - 1),
            )
            self._position = max(self._position, min(chunk.next, part.end))

    def _look_up(self, error: ObjectError) -> None:
        """Compaction may have rewritten the object after the hold was over, or the address has expired."""
        if self._looked_up_at == self._position:
            self._warn(error)
            self._use([])
            return
        self._looked_up_at = self._position
        left = self._wanted._replace(range=replace(self._wanted.range, first=self._position))
        [found] = find_segments(self._options, [left], hold=self._found.hold)
        if found is None:
            self._use([])
        else:
            self._found = found

    def _use(self, segments: Sequence[SegmentObject]) -> None:
        """Brokers have the rest."""
        self._found = replace(self._found, segments=tuple(segments))

    def _warn(self, error: ObjectError) -> None:
        place = self._wanted.range.place
        log.warning(
            "topic %r, partition %d, offset %d: reading from a broker instead of an object: %s",
            place.topic,
            place.partition,
            self._position,
            error,
        )
