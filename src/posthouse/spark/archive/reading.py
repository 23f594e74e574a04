"""Reading a partition from an archive: straight from Parquet to Arrow record batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posthouse.spark.archive.files import SCHEMA
from posthouse.spark.archive.manifest import ArchivedFile, ArchiveState, Log, Manifest, Range
from posthouse.spark.archive.root import Root

BATCH_ROWS = 10_000
SLICE_BYTES = 64 * 1024 * 1024
_FILTERED = ("partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRange:
    """The wanted records of a partition: by offset, and optionally by time (in ms, before `until`)."""

    partition: int
    first: int
    end: int
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSlice:
    """Some files of one topic and the wanted records. Sent to executors."""

    root: Root
    topic: str
    paths: tuple[str, ...]
    wanted: ArchiveRange

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Record batches in exactly this schema, about 10,000 rows each; by offset within a file."""
        for path in self.paths:
            with self.root.open(path) as source:
                yield from _read(source, self.topic, self.wanted, schema)


class ArchivePlan:
    """The manifest as of `open`. Its files stay readable at least for the grace period."""

    def __init__(self, root: Root, state: ArchiveState) -> None:
        self.root = root
        self.state = state

    @classmethod
    def open(cls, url: str) -> "ArchivePlan":
        """Raises NoArchive if there is none."""
        manifest = Manifest.open(Root(url))
        return cls(manifest.root, manifest.state)

    def topics(self) -> list[str]:
        return sorted(set(self.state.topics.values()))

    def topic_id(self, topic: str) -> str | None:
        """In hexadecimal. Of several topics with this name, the one that was archived first most recently."""
        return self.state.newest_id(topic)

    def partitions(self, topic_id: bytes | str) -> list[int]:
        return sorted(log.partition for log in self.state.covered if log.topic_id == _hex(topic_id))

    def covered(self, topic_id: bytes | str, partition: int) -> list[Range]:
        """The archived offsets; several ranges if the log had lost some in between."""
        return list(self.state.covered.get(Log(_hex(topic_id), partition), ()))

    def archived_end(self, topic_id: bytes | str, partition: int) -> int | None:
        """The first offset that is not archived; None if nothing is."""
        return self.state.end(Log(_hex(topic_id), partition))

    def files(self, topic_id: bytes | str, wanted: ArchiveRange) -> list[ArchivedFile]:
        """The files that may have wanted records, by their first offset."""
        found = []
        for file in self.state.of_topic(_hex(topic_id)):
            part = file.part(wanted.partition)
            if part is None or part.end <= wanted.first or part.first >= wanted.end:
                continue
            if wanted.since is not None and file.max_timestamp < wanted.since:
                continue
            if wanted.until is not None and file.min_timestamp >= wanted.until:
                continue
            found.append((part.first, file.path, file))
        return [file for _, _, file in sorted(found, key=lambda each: each[:2])]

    def slices(
        self, topic_id: bytes | str, wanted: ArchiveRange, *, slice_bytes: int = SLICE_BYTES
    ) -> list[ArchiveSlice]:
        """Slices to read in parallel; together they have every wanted record once."""
        topic = self.state.topics[_hex(topic_id)]
        pieces: list[list[str]] = []
        size = slice_bytes
        for file in self.files(topic_id, wanted):
            if size + file.bytes > slice_bytes:
                pieces.append([])
                size = 0
            pieces[-1].append(file.path)
            size += file.bytes
        return [
            ArchiveSlice(root=self.root, topic=topic, paths=tuple(paths), wanted=wanted) for paths in pieces
        ]

    def offset_since(self, topic_id: bytes | str, partition: int, timestamp: int) -> int | None:
        """The first archived offset whose record has this time (ms) or a later one."""
        end = self.archived_end(topic_id, partition)
        wanted = ArchiveRange(partition=partition, first=0, end=end or 0, since=timestamp)
        schema = pa.schema([SCHEMA.field("offset")])
        found: int | None = None
        for file in self.files(topic_id, wanted):
            part = file.part(partition)
            if part is None or (found is not None and part.first >= found):
                break
            with self.root.open(file.path) as source:
                for batch in _read(source, "", wanted, schema):
                    lowest = pc.min(batch.column(0)).as_py()
                    found = lowest if found is None else min(found, lowest)
                    break
        return found


def _hex(topic_id: bytes | str) -> str:
    return topic_id if isinstance(topic_id, str) else topic_id.hex()


def _read(
    source: pa.NativeFile, topic: str, wanted: ArchiveRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(source, pre_buffer=True)
    stored = set(file.schema_arrow.names)
    columns = [name for name in schema.names if name in stored]
    for is_whole, groups in groupby(_groups(file.metadata, wanted), key=lambda each: each.is_whole):
        numbers = [group.number for group in groups]
        # With a filter, or if no stored column was requested, at least one column is needed to count rows.
        needed = columns or ["offset"] if is_whole else list(dict.fromkeys([*columns, *_FILTERED]))
        for batch in file.iter_batches(BATCH_ROWS, row_groups=numbers, columns=needed):
            found = batch if is_whole else batch.filter(_mask(batch, wanted))
            if found.num_rows:
                yield _shaped(found, topic, wanted.partition, schema)


class _Group(NamedTuple):
    """A row group with some wanted records, or only wanted ones."""

    number: int
    is_whole: bool


def _groups(metadata: pq.FileMetaData, wanted: ArchiveRange) -> Iterator[_Group]:
    index = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        low_partition, high_partition = _extent(group, index["partition"])
        low, high = _extent(group, index["offset"])
        # Physical values: microseconds, independent of Python's range of dates.
        oldest, newest = _extent(group, index["timestamp"])
        since = None if wanted.since is None else wanted.since * 1000
        until = None if wanted.until is None else wanted.until * 1000
        if (
            not low_partition <= wanted.partition <= high_partition
            or high < wanted.first
            or low >= wanted.end
        ):
            continue
        if (since is not None and newest < since) or (until is not None and oldest >= until):
            continue
        everything = (
            low_partition == high_partition
            and wanted.first <= low
            and high < wanted.end
            and (since is None or since <= oldest)
            and (until is None or newest < until)
        )
        yield _Group(number, everything)


def _extent(group: pq.RowGroupMetaData, column: int) -> tuple[int, int]:
    statistics = group.column(column).statistics
    return int(statistics.min_raw), int(statistics.max_raw)


def _mask(batch: pa.RecordBatch, wanted: ArchiveRange) -> pa.Array:
    offsets, times = batch.column("offset"), batch.column("timestamp").cast(pa.int64())
    mask = pc.and_(
        pc.equal(batch.column("partition"), wanted.partition),
        pc.and_(pc.greater_equal(offsets, wanted.first), pc.less(offsets, wanted.end)),
    )
    if wanted.since is not None:
        mask = pc.and_(mask, pc.greater_equal(times, wanted.since * 1000))
    if wanted.until is not None:
        mask = pc.and_(mask, pc.less(times, wanted.until * 1000))
    return mask


def _shaped(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    count = batch.num_rows
    columns = []
    for field in schema:
        if field.name == "topic":
            columns.append(pa.repeat(pa.scalar(topic, field.type), count))
        elif field.name == "partition":
            columns.append(pa.repeat(pa.scalar(partition, field.type), count))
        elif field.name in batch.schema.names:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
