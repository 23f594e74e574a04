"""Archive and log as one: archived offsets are read from the archive, the rest from the broker.

The broker may delete archived records while a query runs. A task whose records are deleted looks into the
archive again.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from posthouse.client.cluster import TopicInfo
from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.archive.reading import ArchivePlan, ArchiveRange, ArchiveSlice
from posthouse.spark.offsets import Offsets
from posthouse.spark.planning import OffsetRange


@dataclass(frozen=True, slots=True)
class ArchivePiece(InputPartition):
    """A slice to read from the archive."""

    slice: ArchiveSlice


class Archive:
    """The archived part of the topics, as of the manifest when this was created."""

    def __init__(self, url: str, topics: Mapping[str, TopicInfo]) -> None:
        self._plan = ArchivePlan.open(url)
        self._ids = {name: info.id for name, info in topics.items()}

    def starts(self, live: Mapping[TopicPartition, int]) -> Offsets:
        """The first offsets of archive and log together; `live` are the log starts."""
        found = dict(live)
        for place in live:
            for covered in self._covered(place):
                found[place] = min(found[place], covered.first)
        return found

    def since(self, timestamp: int, places: Collection[TopicPartition]) -> Offsets:
        """The first archived offset at or after the time, for partitions that have one."""
        offsets = {
            place: self._plan.offset_since(self._ids[place.topic], place.partition, timestamp)
            for place in places
        }
        return {place: offset for place, offset in offsets.items() if offset is not None}

    def divided(self, wanted: OffsetRange) -> Iterator[tuple[OffsetRange, bool]]:
        """Parts of a range in order, and whether the archive has them."""
        first, place = wanted.first, wanted.place
        for covered in self._covered(place):
            begin, end = max(first, covered.first), min(wanted.end, covered.end)
            if begin >= end:
                continue
            if first < begin:
                yield OffsetRange(place, first, begin), False
            yield OffsetRange(place, begin, end), True
            first = end
        if first < wanted.end:
            yield OffsetRange(place, first, wanted.end), False

    def pieces(self, part: OffsetRange) -> list[ArchivePiece]:
        wanted = ArchiveRange(partition=part.place.partition, first=part.first, end=part.end)
        return [ArchivePiece(each) for each in self._plan.slices(self._ids[part.place.topic], wanted)]

    def _covered(self, place: TopicPartition) -> list[OffsetRange]:
        known = self._plan.covered(self._ids[place.topic], place.partition)
        return sorted(
            (OffsetRange(place, each.start, each.end) for each in known), key=lambda each: each.first
        )


def read_archived(
    url: str, info: TopicInfo, wanted: OffsetRange, schema: pa.Schema
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """The offset up to which the archive covers the range, and the records up to there."""
    archive = Archive(url, {info.name: info})
    part, is_archived = next(archive.divided(wanted))
    if not is_archived:
        return wanted.first, iter(())
    pieces = archive.pieces(part)
    return part.end, (batch for piece in pieces for batch in piece.slice.read(schema))
