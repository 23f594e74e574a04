"""The tasks of a read: ranges of offsets, each from the archive or from the broker."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from posthouse.client.cluster import TopicInfo
from posthouse.spark.live import LivePiece, read_live
from posthouse.spark.options import SourceOptions
from posthouse.spark.planning import OffsetRange, split
from posthouse.spark.segments.manifests import TopicRange, find_segments
from posthouse.spark.spanning import Archive, ArchivePiece, read_archived


def pieces(
    options: SourceOptions,
    ranges: Iterable[OffsetRange],
    topics: Mapping[str, TopicInfo],
    archive: Archive | None,
) -> list[InputPartition]:
    """The tasks that read these ranges."""
    planned: list[InputPartition] = []
    live: list[OffsetRange] = []
    for each in ranges:
        for part, is_archived in archive.divided(each) if archive else [(each, False)]:
            if is_archived and archive:
                planned += archive.pieces(part)
            else:
                live.append(part)
    cut = split(
        live, at_least=options.min_partitions - len(planned), largest=options.max_records_per_partition
    )
    wanted = [TopicRange(each, topics[each.place.topic].id) for each in cut]
    objects = find_segments(options, wanted)
    return planned + [LivePiece(*each, found) for each, found in zip(wanted, objects, strict=True)]


def holds_of(planned: Iterable[InputPartition]) -> set[bytes]:
    """The holds of the objects that these tasks read."""
    found = {each.objects.hold for each in planned if isinstance(each, LivePiece) and each.objects}
    return {hold for hold in found if hold is not None}


def read_piece(options: SourceOptions, schema: pa.Schema, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(piece, ArchivePiece):
        yield from piece.slice.read(schema)
    elif isinstance(piece, LivePiece):
        archived = None if options.archive is None else partial(read_archived, options.archive)
        yield from read_live(options, schema, piece, archived)
    # Spark needs one empty partition if there is nothing to read.
