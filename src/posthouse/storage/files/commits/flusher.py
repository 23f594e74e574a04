"""Group commit: the one thread that writes commits to segments and journal, with one sync per group.

While one group is synced, the next one gathers. So the cost of a sync is shared by all commits that arrive
meanwhile. The order of writes within a group makes a crash harmless: first the segments (the bytes do not
count yet), then the journal frame (which makes them count), then the acknowledgement.

A large group writes its segments on a second thread while the journal is written and synced: copying into the
page cache costs as much as the sync. The journal has all of the bytes, so a crash between the two is harmless
as well. If the segments cannot be written, the frame is retracted before any acknowledgement.
"""

import asyncio
import logging
import queue
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TypeAlias

from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged, PosthouseError, StorageFenced, StorageFull, Unavailable
from posthouse.model.topic_config import Durability
from posthouse.storage.files.journal.journal import (
    APPEND,
    OPERATION,
    PUT,
    PUT_OPERATION,
    RANGE,
    REMOVED,
    TRIM,
    Journal,
)
from posthouse.storage.files.segments.header import identity_of
from posthouse.storage.files.segments.partition_log import PartitionLog, Placement, Repetition
from posthouse.storage.files.segments.segment import Segment
from posthouse.storage.files.system.disk import DISK_FULL, Buffer, Disk, SyncFailed
from posthouse.storage.files.system.open_files import OpenFile, OpenFiles
from posthouse.storage.files.system.workers import Server, Workers
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Put
from posthouse.storage.outcomes import Outcome

log = logging.getLogger(__name__)

GROUP_BYTES = 32 * 1024 * 1024
"""A group is closed at this size, to bound the latency of its acknowledgements."""
PARALLEL_BYTES = 256 * 1024
"""Below this, handing the segments to another thread costs more than writing them."""
CHECK_SECONDS = 0.25
"""How long a check of the data directory stays valid: commits are acknowledged only after a check this
recent."""


class Displaced(Exception):
    """The broker writes to files or directories that the next start would not find."""


@dataclass(slots=True)
class Trimming:
    log: PartitionLog
    offset: int


Step: TypeAlias = Placement | Repetition | Trimming | Put | Outcome
"""The remaining work of one operation. A refused operation has its outcome already and no work left."""


@dataclass(slots=True)
class Commit:
    steps: list[Step]
    size: int
    generation: int
    """The number of rollbacks when this commit was placed. A later rollback makes it void."""
    done: asyncio.Future[list[Outcome]]


@dataclass(slots=True)
class Written:
    """The result of one group, for the event loop."""

    commits: list[Commit]
    frame: int = 0
    journalled: int = 0
    error: PosthouseError | None = None


Job: TypeAlias = Callable[[], None]


class Flusher:
    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        journal: Journal,
        workers: Workers,
        clock: Clock,
        metrics: StorageMetrics,
        *,
        lost: Callable[[], str | None],
    ) -> None:
        """`lost` returns which part of the data directory was moved or removed, or None."""
        self._disk = disk
        self._files = files
        self._journal = journal
        self._clock = clock
        self._metrics = metrics
        self._lost = lost
        self._checked_at = clock.monotonic()
        self._queue: queue.SimpleQueue[list[Commit] | Job] = queue.SimpleQueue()
        self._void_generation = -1
        self._void_reason: PosthouseError = Unavailable("nothing has failed")
        self._fenced: StorageFenced | None = None
        self._stopping = False
        self._frame = 0
        self._workers = workers
        self._server: Server | None = None
        self._helper = workers.pool("posthouse-segments", 1)
        self._fresh_directories: dict[str, None] = {}

    def start(self, on_written: Callable[[Written], None]) -> None:
        """Start the thread. It calls `on_written` after every group."""
        self._on_written = on_written
        self._server = self._workers.serve("posthouse-flusher", self._turn, self._queue.empty)

    def submit(self, commits: list[Commit]) -> None:
        self._put(commits)

    def run(self, job: Job) -> None:
        """Run `job` on this thread, after everything that was submitted before it."""
        self._put(job)

    def _put(self, item: list[Commit] | Job) -> None:
        self._queue.put(item)
        if self._server is not None:
            self._server.wake()

    async def perform(self, job: Job) -> None:
        """`run` the job and wait for it; raises the job's exception."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def report(error: BaseException | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def work() -> None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - reported to the caller
                loop.call_soon_threadsafe(report, error)
            else:
                loop.call_soon_threadsafe(report, None)

        self.run(work)
        await done

    def stop(self) -> None:
        """Write what was submitted, then stop the thread. Blocks until it has stopped."""
        if self._server is not None:
            self._queue.put(self._stop)
            self._server.join()
            self._server = None
        self._helper.shutdown()

    def _stop(self) -> None:
        self._stopping = True

    def _turn(self) -> bool:
        group, job = self._gather()
        if group:
            self._write(group)
        if job is not None:
            job()
        return not self._stopping

    def _gather(self) -> tuple[list[Commit], Job | None]:
        """Wait for work; return all pending commits, up to a full group or the next job."""
        item = self._queue.get()
        group: list[Commit] = []
        size = 0
        while isinstance(item, list):
            group += item
            size += sum(commit.size for commit in item)
            if size >= GROUP_BYTES or self._queue.empty():
                return group, None
            item = self._queue.get()
        return group, item

    def _write(self, group: list[Commit]) -> None:
        void = [commit for commit in group if commit.generation <= self._void_generation]
        if void:
            self._on_written(Written(void, error=self._void_reason))
            group = group[len(void) :]
        if group:
            self._on_written(self._attempt(group))

    def _attempt(self, group: list[Commit]) -> Written:
        if self._fenced is not None:
            return Written(group, error=self._fenced)
        try:
            written = self._write_group(group)
            if self._clock.monotonic() - self._checked_at >= CHECK_SECONDS:
                self.check_places()
            return written
        except Displaced as error:
            return Written(group, error=self.fence_displaced(error))
        except DataDamaged as error:
            return Written(group, error=self.fence_displaced(Displaced(str(error))))
        except SyncFailed as error:
            return Written(group, error=self.fence(str(error)))
        except OSError as error:
            self._void_generation = group[-1].generation
            self._cut(group)
            if error.errno in DISK_FULL:
                self._void_reason = StorageFull(f"no space left: {error}")
            else:
                log.exception("a group of %d commits could not be written", len(group))
                self._void_reason = Unavailable(f"the log could not be written: {error}")
            return Written(group, error=self._void_reason)
        except Exception as error:
            # A bug: fail the group, because without this thread no client would get an answer again.
            log.exception("a group of %d commits could not be written", len(group))
            return Written(group, error=self.fence(repr(error)))

    def fence(self, reason: str) -> StorageFenced:
        """Refuse all further commits: after a failed sync the content of the disk is unknown."""
        return self._fence(f"the disk failed ({reason})", "Check the disk, then restart the broker.")

    def fence_displaced(self, error: Displaced) -> StorageFenced:
        """Refuse all further commits: the next start would not find them."""
        advice = "Bring the data directory back to its place, or restore it, then restart the broker."
        return self._fence(f"the data directory was changed under the running broker: {error}", advice)

    def _fence(self, reason: str, advice: str) -> StorageFenced:
        if self._fenced is None:
            self._fenced = StorageFenced(f"{reason}; nothing is accepted until a restart")
            log.critical("%s. %s", self._fenced, advice)
        return self._fenced

    def check_places(self) -> None:
        """Raises Displaced if a restart would not find the files that are written now. On this thread
        only."""
        try:
            lost = self._lost() or self._journal.lost()
        except OSError as error:
            raise Displaced(str(error)) from error
        if lost is not None:
            raise Displaced(lost)
        self._checked_at = self._clock.monotonic()

    def _cut(self, group: list[Commit]) -> None:
        """Truncate segments to remove the bytes of a failed group, so that their space is free again."""
        for commit in group:
            for step in commit.steps:
                if isinstance(step, Placement):
                    try:
                        self._cut_segment(step.segment.path, step.position)
                    except (OSError, DataDamaged):
                        log.exception(
                            "%s: not truncated to %d bytes after a failed write",
                            step.segment.path,
                            step.position,
                        )

    def _cut_segment(self, path: str, size: int) -> None:
        if self._disk.size(path) > size:
            file = self._files.acquire(path)
            try:
                self._disk.truncate(file.handle, size)
            finally:
                self._files.release(file)

    def _write_group(self, group: list[Commit]) -> Written:
        runs: dict[Segment, list[Placement]] = {}
        operations: list[Buffer] = []
        trims: list[Buffer] = []
        for commit in group:
            for step in commit.steps:
                if isinstance(step, Placement):
                    runs.setdefault(step.segment, []).append(step)
                elif isinstance(step, Trimming):
                    trims.append(_trim_operation(step))
                elif isinstance(step, Put):
                    operations.append(_put_operation(step))
        sync = bool(operations or trims)
        has_ranges = False
        for run in runs.values():
            if run[0].log.config.durability is Durability.FSYNC:
                sync = True
                for placement in run:
                    operations.append(_operation(APPEND, placement, placement, placement.header.length))
                    operations.append(placement.batch)
            else:
                has_ranges = True
                operations.append(_operation(RANGE, run[0], run[-1], _size(run)))
        if not operations and not trims:  # only repeated batches, which are in an earlier frame
            return Written(group, frame=self._frame)
        operations += trims  # last, because trims may name offsets of this group
        size = sum(map(len, operations))
        begun = self._clock.monotonic()
        if size < PARALLEL_BYTES or has_ranges:  # a range refers to bytes that must be in the segment already
            self._write_segments(runs)
            self._frame = self._journal.write(operations, size, sync=sync)
        else:
            self._frame = self._write_in_parallel(runs, operations, size)
        metrics = self._metrics
        if sync:
            metrics.sync_seconds.observe(self._clock.monotonic() - begun)
        metrics.commits_per_sync.observe(len(group))
        metrics.journal_bytes += size
        self._journal.acknowledge()
        return Written(group, frame=self._frame, journalled=size)

    def _write_in_parallel(
        self, runs: dict[Segment, list[Placement]], operations: list[Buffer], size: int
    ) -> int:
        segments = self._helper.submit(self._write_segments, runs)
        try:
            frame = self._journal.write(operations, size, sync=True)
        finally:
            wait([segments])
        error = segments.exception()
        if error is not None:
            self._journal.retract()
            raise error
        return frame

    def _write_segments(self, runs: dict[Segment, list[Placement]]) -> None:
        for segment, run in runs.items():
            first = run[0]
            batches: list[Buffer] = [placement.batch for placement in run]
            position = first.position
            if position > segment.first_position:
                file = self._open(segment)
            else:
                file = self._create(segment, first.log)
                if segment.has_header:
                    batches.insert(0, identity_of(segment.path).header())
                position = 0
            try:
                self._disk.write(file.handle, batches, position)
            finally:
                self._files.release(file)

    def _open(self, segment: Segment) -> OpenFile:
        """Open or create the segment's file. If the file was removed, a new one has a hole: reads report the
        damage, and writes continue."""
        return self._files.acquire(segment.path, create=True)

    def _create(self, segment: Segment, owner: PartitionLog) -> OpenFile:
        if self._disk.size(owner.directory) < 0:
            self.check_places()  # otherwise a removed directory would be created again
        for directory in (*self._disk.make_directory(owner.directory), owner.directory):
            self._fresh_directories[directory] = None
        self._cut_segment(segment.path, 0)  # a crash may have left a file that was never part of the log
        return self._files.acquire(segment.path, create=True)

    def sync_fresh_directories(self) -> None:
        """Make the names of new files durable. On this thread only."""
        while self._fresh_directories:
            directory, _ = self._fresh_directories.popitem()
            try:
                self._disk.sync_directory(directory)
            except FileNotFoundError:
                continue  # its topic was deleted
            except OSError as error:
                raise SyncFailed(str(error)) from error


def _size(run: list[Placement]) -> int:
    return sum(placement.header.length for placement in run)


def _operation(kind: int, first: Placement, last: Placement, size: int) -> bytes:
    partition = first.log.id
    return OPERATION.pack(
        kind,
        partition.topic,
        partition.index,
        first.segment.base_offset,
        first.position,
        first.base_offset,
        last.base_offset + last.header.last_offset_delta + 1,
        size,
    )


def _trim_operation(trimming: Trimming) -> bytes:
    partition = trimming.log.id
    return OPERATION.pack(TRIM, partition.topic, partition.index, 0, 0, trimming.offset, trimming.offset, 0)


def _put_operation(put: Put) -> bytes:
    length = REMOVED if put.value is None else len(put.value)
    return PUT_OPERATION.pack(PUT, put.space, len(put.key), length) + put.key + (put.value or b"")
