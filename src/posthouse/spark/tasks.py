"""The tasks of a read: from ranges of offsets, on executors, to Arrow record batches."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from posthouse.client import Client
from posthouse.client.cluster import TopicInfo
from posthouse.client.errors import BrokerUnreachable, OffsetGone, RecordsDamaged, TopicNotFound
from posthouse.client.patience import Patience
from posthouse.client.ranges import RangeReading
from posthouse.client.reading import Fetched
from posthouse.client.visibility import visible_batches
from posthouse.model.errors import PosthouseError
from posthouse.records.batch import verify_crc
from posthouse.spark.access import access_of
from posthouse.spark.columns import Decoder
from posthouse.spark.errors import DataLoss
from posthouse.spark.offsets import Place
from posthouse.spark.options import EARLIEST, SourceOptions
from posthouse.spark.planning import OffsetRange, split
from posthouse.spark.spanning import Archive, ArchivePiece, read_archived

log = logging.getLogger(__name__)

_CORRUPT = 2


@dataclass(frozen=True, slots=True)
class LivePiece(InputPartition):
    """A range to be read from the broker. The id tells a topic from a later one of the same name."""

    range: OffsetRange
    topic_id: bytes


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
    return planned + [LivePiece(each, topics[each.place.topic].id) for each in cut]


def read_piece(options: SourceOptions, schema: pa.Schema, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(piece, ArchivePiece):
        yield from piece.slice.read(schema)
    elif isinstance(piece, LivePiece):
        yield from _read_live(options, schema, piece)
    # Spark asks for one empty partition where there is nothing to read.


def _read_live(options: SourceOptions, schema: pa.Schema, piece: LivePiece) -> Iterator[pa.RecordBatch]:
    place = piece.range.place
    decoder = Decoder(schema, place.topic, place.partition)
    try:
        for fetched in _fetches(options, piece):
            yield from _decoded(decoder, fetched, piece)
        yield from decoder.finish()
    except _Gone as gone:
        yield from decoder.finish()
        yield from _read_gone(options, schema, piece, gone)


def _decoded(decoder: Decoder, fetched: Fetched, piece: LivePiece) -> Iterator[pa.RecordBatch]:
    view, end = memoryview(fetched.data), piece.range.end
    try:
        for position, header in visible_batches(view, fetched.aborted):
            if header.next_offset <= fetched.first or header.base_offset >= end:
                continue
            if not verify_crc(view, position, header.length):
                raise _damaged(piece, header.base_offset, "its checksum is wrong")
            batch = view[position : position + header.length]
            yield from decoder.add(batch, header, fetched.first, end)
    except PosthouseError as error:
        raise _damaged(piece, fetched.first, str(error)) from None


def _read_gone(
    options: SourceOptions, schema: pa.Schema, piece: LivePiece, gone: "_Gone"
) -> Iterator[pa.RecordBatch]:
    """What the broker let go of after the query was planned may have been archived in the meantime."""
    left = replace(piece.range, first=gone.position)
    if options.archive is not None and gone.info is not None:
        reached, batches = read_archived(options.archive, gone.info, left, schema)
        if reached > left.first:
            yield from batches
            rest = replace(piece, range=replace(left, first=reached))
            yield from _read_live(options, schema, rest)
            return
    lost(options, gone.reason)
    if gone.log_start is not None:
        rest = replace(piece, range=replace(left, first=gone.log_start))
        yield from _read_live(options, schema, rest)


class _Gone(Exception):
    """The broker does not have what is to be read next."""

    def __init__(self, reason: str, position: int, info: TopicInfo | None, log_start: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position
        self.info = info
        self.log_start = log_start
        """Where the log goes on, if it does."""


def _fetches(options: SourceOptions, piece: LivePiece) -> Iterator[Fetched]:
    """Goes on where it was when the broker comes back. Raises _Gone."""
    access = access_of(options)
    position, end = piece.range.first, piece.range.end
    patience = Patience(options.patience)
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
                patience.renew()
            patience.pause(error)
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
    )


def _log_start(client: Client, *, info: TopicInfo, place: Place) -> int:
    [start] = client.find_offsets([(info, [place.partition])], EARLIEST).values()
    return start


def lost(options: SourceOptions, what: str) -> None:
    """Records that should be read are gone: fail, or go on with what is left."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}; if that is no loss for you, say .option('failOnDataLoss', 'false')")
    log.warning("skipping lost records (failOnDataLoss is false): %s", what)


def _damaged(piece: LivePiece, offset: int, problem: str) -> RecordsDamaged:
    place = piece.range.place
    return RecordsDamaged(
        f"records of topic {place.topic!r}, partition {place.partition}, from offset {offset} on cannot be "
        f"read: {problem}; find out more with 'posthouse log verify' on the broker's data directory",
        _CORRUPT,
    )
