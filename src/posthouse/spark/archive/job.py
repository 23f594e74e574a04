"""The archive job: writes committed records to Parquet with Spark, and adds them to the manifest.

A run has steps. Tasks write their files durably. The driver checks that it sees them and commits one version
of the manifest. Only then the group `posthouse.archive` commits the archived offsets, which allows the broker
to delete these records. After a crash the next run continues from the manifest: files of the crashed step are
leftovers, and a missing offset commit is repeated.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from posthouse.client import Client
from posthouse.client.cluster import TopicInfo
from posthouse.client.topic_partitions import TopicPartition
from posthouse.model.ids import ARCHIVE_GROUP
from posthouse.spark.access import access_of
from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.files import SCHEMA, TARGET_BYTES, DayFiles
from posthouse.spark.archive.leftovers import Grace, sweep
from posthouse.spark.archive.manifest import ArchivedFile, Change, Log, Manifest
from posthouse.spark.archive.merging import Merge, merge, merges
from posthouse.spark.archive.planning import (
    ArchiveBacklog,
    ArchiveTask,
    LogBounds,
    LostOffsets,
    backlog,
    covered_by,
    steps,
)
from posthouse.spark.archive.root import Root
from posthouse.spark.archive.spreading import parallelism, spread
from posthouse.spark.live import LivePiece, read_live
from posthouse.spark.options import EARLIEST, LATEST, SourceOptions, parse_source
from posthouse.spark.planning import OffsetRange
from posthouse.spark.segments.holds import release
from posthouse.spark.segments.manifests import TopicRange, find_segments

_LARGEST_PIECE = 2_000_000
_SWEEP_SECONDS = 3600.0
_MERGE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes of files and tasks."""

    target_bytes: int = TARGET_BYTES
    """Target size of files: new ones are closed there, small ones are merged up to it."""
    largest_piece: int = _LARGEST_PIECE
    """Maximum number of offsets per task."""
    grace: Grace = field(default_factory=Grace)


@dataclass(slots=True, kw_only=True)
class Report:
    """The progress of a run."""

    waiting: int = 0
    """Total number of offsets to archive."""
    offsets: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    merged: int = 0
    losses: list[LostOffsets] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Task:
    """What an executor reads and archives, in the order of partition and offset."""

    topic: TopicInfo
    slices: tuple[LivePiece, ...]


def _never() -> bool:
    return False


def _ignored(report: Report) -> None:
    pass


class Archiver:
    """Writes to one archive. Only one archiver should run at a time; a second one fails without harm."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        url: str,
        *,
        limits: Limits | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`options` of the source are readObjects and objectStore."""
        self._spark = spark
        self._limits = limits or Limits()
        # Other options are defaults of the source; "assign" is set only because one is required.
        self._options = parse_source(
            {"kafka.bootstrap.servers": bootstrap, "assign": '{"-": [0]}', **(options or {})}, streaming=False
        )
        self._access = access_of(self._options)
        self.manifest = Manifest(Root(url))
        self._swept = self._merged = float("-inf")

    def run(
        self,
        topics: Sequence[str],
        *,
        progress: Callable[[Report], None] = _ignored,
        stop: Callable[[], bool] = _never,
        compact: bool = True,
    ) -> Report:
        """Archive what is committed in the topics by now. It asks `stop` before each step whether to end.

        With `compact`, small files are merged from time to time.
        """
        if time.monotonic() - self._swept >= _SWEEP_SECONDS:
            sweep(self.manifest, self._limits.grace)
            self._swept = time.monotonic()
        self.manifest.refresh()
        backlogs = [self._backlog(info) for info in self._topics(topics)]
        report = Report(
            waiting=sum(each.size for each in backlogs),
            losses=[loss for each in backlogs for loss in each.losses],
        )
        progress(report)
        run = _new_run()
        # After a crash between manifest and offset commit, the commit is repeated here.
        self._tell_broker(each.topic for each in backlogs)
        tasks = 2 * parallelism(self._spark)
        for pieces in steps(backlogs, tasks=tasks, largest=self._limits.largest_piece):
            if stop():
                return report
            files = self._archive(pieces, run)
            report.offsets += sum(piece.size for piece in pieces)
            report.records += sum(file.rows for file in files)
            report.files += len(files)
            report.bytes += sum(file.bytes for file in files)
            progress(report)
        if compact and report.records and time.monotonic() - self._merged >= _MERGE_SECONDS:
            report.merged = self.compact(topics, stop=stop)
            self._merged = time.monotonic()
        return report

    def compact(
        self,
        topics: Sequence[str] | None = None,
        *,
        now_ms: int | None = None,
        stop: Callable[[], bool] = _never,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Merge small files of each day into larger ones; returns the number of merged files."""
        self.manifest.refresh()
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        found = merges(self.manifest.state, topics, target_bytes=self._limits.target_bytes, now_ms=now)
        total = sum(len(each.files) for each in found)
        done = 0
        run = _new_run()
        at_once = 2 * parallelism(self._spark)
        for begin in range(0, len(found), at_once):
            if stop():
                break
            some = found[begin : begin + at_once]
            files = spread(self._spark, some, partial(_merge, root=self.manifest.root, run=run))
            self._check_seen(files)
            retired = [file.path for each in some for file in each.files]
            self.manifest.commit(Change(add=files, retire=retired), run=run)
            done += len(retired)
            progress(done, total)
        return done

    def _topics(self, names: Iterable[str]) -> list[TopicInfo]:
        def find(client: Client) -> list[TopicInfo]:
            return [client.topic(name) for name in dict.fromkeys(names)]

        return self._access.call(find)

    def _backlog(self, info: TopicInfo) -> ArchiveBacklog:
        wanted = [(info, range(info.partitions))]
        starts = self._access.call(lambda client: client.find_offsets(wanted, EARLIEST))
        ends = self._access.call(lambda client: client.find_offsets(wanted, LATEST, committed=True))
        bounds = {
            index: LogBounds(starts[info.name, index], ends[info.name, index])
            for index in range(info.partitions)
        }
        return backlog(self.manifest.state, info, bounds)

    def _archive(self, pieces: list[ArchiveTask], run: str) -> list[ArchivedFile]:
        work = partial(
            _archive_piece,
            root=self.manifest.root,
            run=run,
            options=self._options,
            target_bytes=self._limits.target_bytes,
        )
        tasks = self._with_objects(pieces)
        try:
            files = spread(self._spark, tasks, work)
        finally:
            for hold in {each.objects.hold for task in tasks for each in task.slices if each.objects}:
                if hold is not None:
                    release(self._options, hold)
        self._check_seen(files)
        topics = {piece.topic.id.hex(): piece.topic for piece in pieces}
        change = Change(
            topics={id: info.name for id, info in topics.items()}, cover=covered_by(pieces), add=files
        )
        self.manifest.commit(change, run=run)
        self._tell_broker(topics.values())
        return files

    def _with_objects(self, pieces: list[ArchiveTask]) -> list[_Task]:
        """Executors read from objects what the object store of a cluster has."""
        ranges = [
            [
                TopicRange(
                    OffsetRange(TopicPartition(piece.topic.name, partition), start, end), piece.topic.id
                )
                for partition, (start, end) in piece.slices
            ]
            for piece in pieces
        ]
        found = iter(find_segments(self._options, [each for some in ranges for each in some]))
        return [
            _Task(piece.topic, tuple(LivePiece(*each, next(found)) for each in some))
            for piece, some in zip(pieces, ranges, strict=True)
        ]

    def _check_seen(self, files: Sequence[ArchivedFile]) -> None:
        """Check that the driver sees the files of the executors: all readers must see the same storage."""
        root = self.manifest.root
        for file, size in zip(files, root.sizes([file.path for file in files]), strict=True):
            if size != file.bytes:
                raise ArchiveError(
                    f"the executors wrote {file.path} but it is not to be seen in {root}; "
                    "choose a place that all machines share"
                )

    def _tell_broker(self, topics: Iterable[TopicInfo]) -> None:
        ends = [(info, offsets) for info in topics if (offsets := self._ends(info))]

        def commit(client: Client) -> None:
            for info, offsets in ends:
                client.commit_topic(ARCHIVE_GROUP, info, offsets)

        self._access.call(commit)

    def _ends(self, info: TopicInfo) -> dict[int, int]:
        found = {
            index: self.manifest.state.end(Log(info.id.hex(), index)) for index in range(info.partitions)
        }
        return {index: end for index, end in found.items() if end is not None}


def _new_run() -> str:
    """Names sort by time, for people who look at the files."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"


def _archive_piece(
    task: _Task, *, root: Root, run: str, options: SourceOptions, target_bytes: int
) -> list[ArchivedFile]:
    files = DayFiles(root, task.topic.name, task.topic.id.hex(), run, target_bytes=target_bytes)
    try:
        for live in task.slices:
            for batch in read_live(options, SCHEMA, live):
                files.write(live.range.place.partition, batch)
        return files.close()
    except BaseException:
        files.abandon()
        raise


def _merge(each: Merge, *, root: Root, run: str) -> list[ArchivedFile]:
    return merge(root, each, run)
