"""The tasks of a read: ranges of offsets, each from the archive or from the broker."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from posthouse.client.cluster import TopicInfo
from posthouse.client.spans import Span
from posthouse.spark.key_ranges import key_ranges
from posthouse.spark.live import LivePiece, read_live
from posthouse.spark.name_filter import NameFilter
from posthouse.spark.options import SourceOptions
from posthouse.spark.planning import OffsetRange, grouped, split
from posthouse.spark.segments.manifests import TopicRange, find_segments
from posthouse.spark.spanning import Archive, ArchivePiece, read_archived


def pieces(
    options: SourceOptions,
    ranges: Iterable[OffsetRange],
    topics: Mapping[str, TopicInfo],
    archive: Archive | None,
    *,
    uses_index: bool = False,
) -> list[InputPartition]:
    """The tasks that read these ranges; with `uses_index` only what the key index of the broker names."""
    planned: list[InputPartition] = []
    live: list[OffsetRange] = []
    for each in ranges:
        for part, is_archived in archive.divided(each) if archive else [(each, False)]:
            if is_archived and archive:
                planned += archive.pieces(part)
            else:
                live.append(part)
    if uses_index and options.name is not None:
        found = key_ranges(options, live, topics)
        planned += _indexed(options, found, topics)
        live = [each for each in live if each not in found]
    cut = split(
        live, at_least=options.min_partitions - len(planned), largest=options.max_records_per_partition
    )
    wanted = [TopicRange(each, topics[each.place.topic].id) for each in cut]
    objects = find_segments(options, wanted)
    return planned + [LivePiece(*each, stored) for each, stored in zip(wanted, objects, strict=True)]


def _indexed(
    options: SourceOptions,
    found: Mapping[OffsetRange, Sequence[OffsetRange]],
    topics: Mapping[str, TopicInfo],
) -> Iterator[LivePiece]:
    """Tasks for parts of ranges; without parts there is none."""
    for whole, parts in found.items():
        for group in grouped(parts, options.max_records_per_partition):
            yield LivePiece(
                replace(whole, first=group[0].first, end=group[-1].end),
                topics[whole.place.topic].id,
                spans=tuple(Span(each.first, each.end) for each in group),
            )


def holds_of(planned: Iterable[InputPartition]) -> set[bytes]:
    """The holds of the objects that these tasks read."""
    found = {each.objects.hold for each in planned if isinstance(each, LivePiece) and each.objects}
    return {hold for hold in found if hold is not None}


def read_piece(options: SourceOptions, schema: pa.Schema, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    if options.name is None:
        yield from _rows(options, schema, piece)
        return
    wanted = NameFilter(options.name, schema)
    for rows in _rows(options, wanted.schema, piece):
        selected = wanted.select(rows)
        if selected.num_rows:
            yield selected


def _rows(options: SourceOptions, schema: pa.Schema, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(piece, ArchivePiece):
        yield from piece.slice.read(schema)
    elif isinstance(piece, LivePiece):
        archived = None if options.archive is None else partial(read_archived, options.archive)
        yield from read_live(options, schema, piece, archived)
    # Spark needs one empty partition if there is nothing to read.
