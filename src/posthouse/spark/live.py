"""A range of offsets read from the broker or from its objects, as Arrow record batches. Runs on executors."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from posthouse.client import Client
from posthouse.client.backoff import Backoff
from posthouse.client.cluster import TopicInfo
from posthouse.client.errors import BrokerUnreachable, OffsetGone, RecordsDamaged, TopicNotFound
from posthouse.client.ranges import RangeReading
from posthouse.client.reading import Fetched
from posthouse.client.spans import Span
from posthouse.client.topic_partitions import TopicPartition
from posthouse.model.errors import PosthouseError
from posthouse.records.batch import verify_crc
from posthouse.records.record_names import Name
from posthouse.records.visibility import visible_batches
from posthouse.spark.access import access_of
from posthouse.spark.columns import BatchDecoder
from posthouse.spark.errors import DataLoss
from posthouse.spark.name_filter import may_have
from posthouse.spark.options import EARLIEST, SourceOptions
from posthouse.spark.planning import OffsetRange
from posthouse.spark.segments.manifests import RangeSegments, TopicRange
from posthouse.spark.segments.reading import SegmentReading

log = logging.getLogger(__name__)

_CORRUPT = 2

ReadArchived: TypeAlias = Callable[[TopicInfo, OffsetRange, pa.Schema], tuple[int, Iterator[pa.RecordBatch]]]
"""The offset up to which the archive covers the range, and the records up to there."""


@dataclass(frozen=True, slots=True)
class LivePiece(InputPartition):
    """A range to read from the broker. The id distinguishes a topic from a later one of the same name."""

    range: OffsetRange
    topic_id: bytes
    objects: RangeSegments | None = None
    """Segments that are read from the object store instead."""
    spans: tuple[Span, ...] | None = None
    """The parts of the range that are read; None for all of it."""


def read_live(
    options: SourceOptions, schema: pa.Schema, piece: LivePiece, read_archived: ReadArchived | None = None
) -> Iterator[pa.RecordBatch]:
    """`read_archived` is called for records that the broker has deleted after the query was planned."""
    place = piece.range.place
    decoder = BatchDecoder(schema, place.topic, place.partition)
    try:
        for fetched in _fetches(options, piece):
            yield from _decoded(decoder, fetched, piece, options.name)
        yield from decoder.finish()
    except _Gone as gone:
        yield from decoder.finish()
        yield from _read_gone(options, schema, piece, gone, read_archived)


def _decoded(
    decoder: BatchDecoder, fetched: Fetched, piece: LivePiece, name: Name | None
) -> Iterator[pa.RecordBatch]:
    """Without batches that have no record of the name. Of the others, all records."""
    view = memoryview(fetched.data)
    end = piece.range.end if fetched.end is None else min(piece.range.end, fetched.end)
    try:
        for position, header in visible_batches(view, fetched.aborted):
            if header.next_offset <= fetched.first or header.base_offset >= end:
                continue
            if not verify_crc(view, position, header.length):
                raise _damaged(piece, header.base_offset, "its checksum is wrong")
            batch = view[position : position + header.length]
            if name is not None and not may_have(batch, header, name):
                continue
            yield from decoder.add(batch, header, fetched.first, end)
    except PosthouseError as error:
        raise _damaged(piece, fetched.first, str(error)) from None


def _read_gone(
    options: SourceOptions,
    schema: pa.Schema,
    piece: LivePiece,
    gone: "_Gone",
    read_archived: ReadArchived | None,
) -> Iterator[pa.RecordBatch]:
    left = replace(piece.range, first=gone.position)
    if read_archived is not None and gone.info is not None:
        reached, batches = read_archived(gone.info, left, schema)
        if reached > left.first:
            yield from batches
            rest = replace(piece, range=replace(left, first=reached))
            yield from read_live(options, schema, rest, read_archived)
            return
    lost(options, gone.reason)
    if gone.log_start is not None:
        rest = replace(piece, range=replace(left, first=gone.log_start))
        yield from read_live(options, schema, rest, read_archived)


class _Gone(Exception):
    """The broker no longer has the next offset."""

    def __init__(self, reason: str, position: int, info: TopicInfo | None, log_start: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position
        self.info = info
        self.log_start = log_start
        """The log start, if the log still exists."""


def _fetches(options: SourceOptions, piece: LivePiece) -> Iterator[Fetched]:
    """Raises _Gone."""
    if piece.objects is None:
        return _broker_fetches(options, piece)
    return iter(
        SegmentReading(
            options,
            TopicRange(piece.range, piece.topic_id),
            piece.objects,
            lambda part: _broker_fetches(options, replace(piece, range=part)),
        )
    )


def _broker_fetches(options: SourceOptions, piece: LivePiece) -> Iterator[Fetched]:
    """Resumes at its position after a reconnect. Raises _Gone."""
    access = access_of(options)
    position, end = piece.range.first, piece.range.end
    backoff = Backoff(options.patience)
    while position < end:
        reading = access.call(partial(_open, options=options, piece=piece, position=position))
        try:
            yield from reading
            return
        except OffsetGone as error:
            start = access.call(partial(_log_start, info=reading.info, place=piece.range.place))
            follows = start if start > reading.position else None
            raise _Gone(str(error), reading.position, reading.info, follows) from None
        except TopicNotFound as error:
            raise _Gone(str(error), reading.position, None, None) from None
        except BrokerUnreachable as error:
            access.drop()
            if reading.position > position:
                backoff.renew()
            backoff.pause(error)
            position = reading.position


def _open(client: Client, *, options: SourceOptions, piece: LivePiece, position: int) -> RangeReading:
    place = piece.range.place
    try:
        info = client.topic(place.topic)
    except TopicNotFound:
        info = None
    if info is None or info.id != piece.topic_id:
        raise _Gone(f"topic {place.topic!r} was deleted while it was read", position, None, None)
    return client.range_of(
        info,
        place.partition,
        position,
        piece.range.end,
        committed=options.is_committed,
        fetch_bytes=options.fetch_bytes,
        spans=piece.spans,
    )


def _log_start(client: Client, *, info: TopicInfo, place: TopicPartition) -> int:
    [start] = client.find_offsets([(info, [place.partition])], EARLIEST).values()
    return start


def lost(options: SourceOptions, what: str) -> None:
    """Records that should be read were deleted: fail, or continue with the rest."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}; to skip lost records, set .option('failOnDataLoss', 'false')")
    log.warning("skipping lost records (failOnDataLoss is false): %s", what)


def _damaged(piece: LivePiece, offset: int, problem: str) -> RecordsDamaged:
    place = piece.range.place
    return RecordsDamaged(
        f"records of topic {place.topic!r}, partition {place.partition}, from offset {offset} on cannot be "
        f"read: {problem}; find out more with 'posthouse log verify' on the broker's data directory",
        _CORRUPT,
    )
