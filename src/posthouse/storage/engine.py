"""Storage on local files: catalog, journal and segments behind the storage interface.

The event loop owns what is known (topics, logs, offsets); the flusher thread owns the journal; the clerk
thread does what may take long (catalog, checkpoints, removing files). They meet in messages only.
"""

import asyncio
import base64
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar

from posthouse.model.clock import Clock
from posthouse.model.errors import (
    PosthouseError,
    StorageClosed,
    StorageFenced,
    Unavailable,
    UnknownPartition,
)
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.batch import stamp
from posthouse.storage.catalog import Catalog
from posthouse.storage.catalog_rows import SegmentRow, TopicRow
from posthouse.storage.checkpoint import Checkpoint
from posthouse.storage.checkpoints import Checkpoints
from posthouse.storage.compactor import MAP_BYTES, Compactor, Host
from posthouse.storage.disk import Disk, OsDisk, SyncFailed
from posthouse.storage.flusher import Commit, Flusher, Step, Trimming, Written
from posthouse.storage.home import Home, OsHome
from posthouse.storage.interface import (
    PUT_DONE,
    Append,
    Bounds,
    KeptElsewhere,
    Needed,
    Operation,
    OperationRefused,
    Outcome,
    Put,
    Refer,
    Slice,
    Space,
    TimestampedOffset,
    Trim,
    nothing_elsewhere,
    nothing_needed,
)
from posthouse.storage.journal import Journal
from posthouse.storage.open_files import OpenFiles
from posthouse.storage.partition_log import PartitionLog, Placement, Repetition
from posthouse.storage.producers import AbortedTransaction, Producer, partition_key
from posthouse.storage.reads import Reads
from posthouse.storage.recovery import Recovered, Recovery, topic_directory
from posthouse.storage.segment import Segment
from posthouse.storage.workers import Threads, Workers

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LEADER_EPOCH = 0
_LOGS_PER_TURN = 500
"""So many partitions are looked at by retention before others get the event loop."""


class FileStorage:
    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        defaults: TopicConfig | None = None,
        journal_bytes: int = 64 * 1024 * 1024,
        open_files: int = 512,
        checkpoint_seconds: float = 60.0,
        producer_expiry_ms: int = 24 * 3600 * 1000,
        compaction_map_bytes: int = MAP_BYTES,
        disk: Disk | None = None,
        home: Home | None = None,
        workers: Workers | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._defaults = defaults or TopicConfig()
        self._producer_expiry_ms = producer_expiry_ms
        self._random_bytes = random_bytes
        self._disk = disk or OsDisk()
        self._home = home or OsHome(directory)
        workers = workers or Threads()
        self._files = OpenFiles(self._disk, open_files)
        self._journal = Journal(self._disk, f"{directory}/journal", journal_bytes, random_bytes)
        self._flusher = Flusher(self._disk, self._files, self._journal, self._on_written, workers)
        self._reads = Reads(self._disk, self._files, lambda owner: self._checkpoints.touch(owner), workers)
        self._clerk = workers.pool("posthouse-clerk", 1)
        self._catalog = Catalog(self._home)
        self._topics: dict[TopicId, Topic] = {}
        self._logs: dict[PartitionId, PartitionLog] = {}
        self._recovered_state: dict[int, dict[bytes, bytes]] = {}
        self._gathered: list[Commit] = []
        self._unwritten_bytes = 0
        self._generation = 0
        self._checkpoints = Checkpoints(
            self, self._flusher, self._journal, journal_bytes=journal_bytes, seconds=checkpoint_seconds
        )
        self._compactor = Compactor(
            self._disk,
            self._files,
            clock,
            self._compaction_host(),
            workers,
            map_bytes=compaction_map_bytes,
        )
        self._state: PosthouseError | None = StorageClosed("the storage is not open")
        self._cluster_id = ""

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def topics(self) -> Mapping[TopicId, Topic]:
        return self._topics

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        recovered = await self._in_clerk(self._recover)
        self._logs = recovered.logs
        self._recovered_state = recovered.state
        self._checkpoints.changed = recovered.changed
        self._checkpoints.state = recovered.state_changes
        self._checkpoints.frame = recovered.next_frame - 1
        self._flusher.start()
        self._state = None
        if self._checkpoints.has_work or self._journal.has_old_files:
            await self.checkpoint()
        self._checkpoints.schedule()

    def _recover(self) -> Recovered:
        self._home.acquire()
        try:
            for name in ("journal", "topics"):
                self._disk.make_directory(str(self._directory / name))
            # Also where nothing is new: a process that was killed may have made what is in them.
            for path in (self._directory, self._directory / "topics"):
                self._disk.sync_directory(str(path))
            contents = self._catalog.open(self._new_cluster_id)
            self._cluster_id = contents.cluster_id
            self._finish_deleting([row.id for row in contents.topics if row.deleted])
            rows = [row for row in contents.topics if not row.deleted]
            self._topics = {row.id: row.topic(self._defaults) for row in rows}
            recovery = Recovery(
                self._disk, self._files, str(self._directory), self._topics, self._clock.now_ms()
            )
            recovered = recovery.run(contents)
            self._journal.start(recovered.next_frame)
            self._catalog.set_clean(False)
        except BaseException as error:
            self._catalog.close()
            self._home.release()
            if isinstance(error, OSError | SyncFailed):
                raise Unavailable(f"{self._directory} cannot be opened: {error}") from error
            raise
        return recovered

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._random_bytes(16)).decode().rstrip("=")

    async def close(self) -> None:
        if isinstance(self._state, StorageClosed):
            return
        fenced = self._state is not None
        self._state = StorageClosed("the storage is closed")
        await self._compactor.close()
        self._submit()
        await self._flusher.perform(lambda: None)
        await self._checkpoints.stop()
        if not fenced:  # a sync that is asked for again after it failed would lie
            await self.checkpoint()
        await self._in_clerk(self._reads.close)  # before the files that they read from
        await self._in_clerk(self._close, not fenced and not self._checkpoints.has_work)
        self._clerk.shutdown()

    def _close(self, clean: bool) -> None:
        self._flusher.stop()
        try:
            if clean:
                self._catalog.set_clean(True)
            self._journal.close(everything_checkpointed=clean)
        except (OSError, PosthouseError) as error:
            log.warning("the next start has to look at the journal: %s", error)
        finally:
            self._catalog.close()
            self._files.close()
            self._home.release()

    async def create_topics(self, topics: Sequence[Topic]) -> None:
        self._check_writable()
        await _to_its_end(self._define(topics))

    async def update_topic(self, topic: Topic) -> None:
        self._check_writable()
        await _to_its_end(self._define([topic]))

    async def _define(self, topics: Sequence[Topic]) -> None:
        await self._in_clerk(self._catalog.put_topics, [TopicRow.of(topic) for topic in topics])
        for topic in topics:
            self._learn(topic)

    def _learn(self, topic: Topic) -> None:
        self._topics[topic.id] = topic
        for id in topic.partition_ids():
            owner = self._logs.get(id)
            if owner is None:
                directory = topic_directory(str(self._directory), id.topic)
                self._logs[id] = PartitionLog(id, directory, topic.config)
            else:
                owner.config = topic.config

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        self._check_open()
        await _to_its_end(self._delete(topics))

    async def _delete(self, topics: Sequence[TopicId]) -> None:
        doomed = [self._topics[id] for id in topics if id in self._topics]
        logs = {id: self._logs[id] for topic in doomed for id in topic.partition_ids()}
        for topic in doomed:
            del self._topics[topic.id]
        for id in logs:
            del self._logs[id]
        await self._compactor.leave([topic.id for topic in doomed])
        self._submit()
        await self._flusher.perform(lambda: None)
        try:
            await self._in_clerk(
                self._catalog.put_topics, [TopicRow.of(topic, deleted=True) for topic in doomed]
            )
        except PosthouseError:
            self._topics |= {topic.id: topic for topic in doomed}
            self._logs |= logs
            for owner in logs.values():
                owner.roll_back()  # it was not there when others were
            raise
        for owner in logs.values():
            self._checkpoints.changed.pop(owner, None)
        self._checkpoints.state |= {(int(Space.PRODUCERS), partition_key(id)): None for id in logs}
        for owner in logs.values():
            owner.segments.clear()  # whoever still reads finds nothing, rather than files that are missing
        await self._in_clerk(self._finish_deleting, [topic.id for topic in doomed])

    def _finish_deleting(self, topics: Sequence[TopicId]) -> None:
        for topic in topics:
            directory = topic_directory(str(self._directory), topic)
            for name in self._disk.names(directory):
                self._files.drop(f"{directory}/{name}")
                self._disk.remove(f"{directory}/{name}")
            self._disk.remove_directory(directory)
        if topics:
            self._catalog.forget_topics(topics)

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        self._check_writable()
        for operation in operations:
            self._check_operation(operation)
        now = self._clock.now_ms()
        steps: list[Step] = []
        size = 0
        for operation in operations:
            if isinstance(operation, Append):
                placed = self._place(operation, now)
                if isinstance(placed, Placement):
                    size += operation.header.length
                steps.append(placed)
            elif isinstance(operation, Refer):
                append = operation.as_append()
                if append is None:
                    owner = self._log(operation.partition)
                    steps.append(Repetition(owner, owner.next_offset))
                else:
                    steps.append(self._place(append, now))
                    size += append.header.length
            elif isinstance(operation, Trim):
                owner = self._log(operation.partition)
                # Bounded now, not when it is written: replay must come to the same result.
                steps.append(Trimming(owner, min(operation.offset, owner.next_offset)))
            else:
                steps.append(operation)
        done: asyncio.Future[list[Outcome]] = self._loop.create_future()
        if not self._gathered:
            self._loop.call_soon(self._submit)
        self._gathered.append(Commit(steps, size, self._generation, done))
        self._unwritten_bytes += size
        return done

    def _place(self, append: Append, now_ms: int) -> Placement | Repetition:
        placed = self._log(append.partition).place(append.batch, append.header, now_ms)
        if isinstance(placed, Placement):
            stamp(append.batch, placed.base_offset, LEADER_EPOCH)
            append.base_offset = placed.base_offset
        return placed

    def _check_operation(self, operation: Operation) -> None:
        """Everything that could refuse it, before anything of the commit has had an effect."""
        if isinstance(operation, Put):
            return
        owner = self._log(operation.partition)
        if isinstance(operation, Append) and operation.header.producer_id >= 0:
            try:
                owner.producers.repeated(operation.header)
            except PosthouseError as error:
                raise OperationRefused(operation, error) from None

    def _submit(self) -> None:
        """Hand over what this turn of the event loop committed, as one."""
        if self._gathered:
            self._flusher.submit(self._gathered)
            self._gathered = []

    def _on_written(self, written: Written) -> None:
        self._loop.call_soon_threadsafe(self._written, written)

    def _written(self, written: Written) -> None:
        if written.error is not None:
            self._roll_back(written, written.error)
            return
        size = 0
        for commit in written.commits:
            outcomes = [self._completed(step) for step in commit.steps]
            size += commit.size
            if not commit.done.done():
                commit.done.set_result(outcomes)
        self._unwritten_bytes -= size
        self._checkpoints.written(written.frame, written.journalled, size)

    def _completed(self, step: Step) -> Outcome:
        if isinstance(step, Put):
            self._checkpoints.state[int(step.space), step.key] = step.value
            return PUT_DONE
        owner = step.log
        if isinstance(step, Repetition):
            return Outcome(step.base_offset, owner.start)
        self._checkpoints.changed[owner] = None
        if isinstance(step, Placement):
            step.durable()
            return Outcome(step.base_offset, owner.start)
        self._let_go(owner.trim(step.offset))
        return Outcome(owner.start, owner.start)

    def _roll_back(self, written: Written, error: PosthouseError) -> None:
        """Everything that was placed and not written is void: later places counted on earlier ones."""
        if isinstance(error, StorageFenced):
            self._state = error
        if written.commits[-1].generation == self._generation:
            self._generation += 1
            for owner in self._logs.values():
                owner.roll_back()
            void, self._gathered = self._gathered, []
        else:
            void = []
        for commit in [*written.commits, *void]:
            self._unwritten_bytes -= commit.size
            if not commit.done.done():
                commit.done.set_exception(error)

    def _let_go(self, segments: list[Segment]) -> None:
        if segments:
            self._clerk.submit(self._remove_segments, segments).add_done_callback(_log_failure)

    def _remove_segments(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._disk.remove(segment.path)
            self._files.drop(segment.path)  # after it, or a reader could open the file once more in between
            self._disk.remove(segment.index_path)

    def take_state(self, space: Space) -> dict[bytes, bytes]:
        return self._recovered_state.pop(space, {})

    def bounds(self, partition: PartitionId) -> Bounds:
        return self._log(partition).bounds

    @property
    def unwritten_bytes(self) -> int:
        return self._unwritten_bytes

    def size(self, partition: PartitionId) -> int:
        return self._log(partition).size

    async def read(
        self,
        partition: PartitionId,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        stable_only: bool = False,
    ) -> Slice:
        self._check_open()
        return await self._reads.read(self._log(partition), offset, max_bytes, at_least_one, stable_only)

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        return self._log(partition).producers.aborted_between(start, end)

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        return self._log(partition).producers.active()

    async def find_timestamp(self, partition: PartitionId, timestamp: int) -> TimestampedOffset | None:
        self._check_open()
        return await self._reads.find_timestamp(self._log(partition), timestamp)

    async def find_max_timestamp(self, partition: PartitionId) -> TimestampedOffset | None:
        self._check_open()
        return await self._reads.find_max_timestamp(self._log(partition))

    async def enforce_retention(
        self, archived: KeptElsewhere = nothing_elsewhere, needed: Needed = nothing_needed
    ) -> dict[PartitionId, int]:
        self._check_writable()
        now = self._clock.now_ms()
        held_back: dict[PartitionId, int] = {}
        logs = list(self._logs.values())
        for first in range(0, len(logs), _LOGS_PER_TURN):
            trims: list[Operation] = []
            for owner in filter(self.has, logs[first : first + _LOGS_PER_TURN]):
                owner.producers.expire(now - self._producer_expiry_ms)
                start = wanted = owner.expired_before(now, archived(owner.id))
                if wanted > owner.start and (lowest := needed(owner.id)) is not None:
                    start = min(wanted, owner.whole_segments_before(lowest))
                if start < wanted:
                    held_back[owner.id] = wanted
                if start > owner.start:
                    trims.append(Trim(owner.id, start))
            if trims:  # in the turn in which it was decided: later a queue might need them
                await self.commit(trims)
            else:
                await asyncio.sleep(0)
        return held_back

    async def compact(self, needed: Needed = nothing_needed) -> None:
        self._check_writable()
        await self._compactor.run(self._logs.values(), needed)

    def _compaction_host(self) -> Host:
        async def replace_rows(partition: PartitionId, bases: list[int], row: SegmentRow) -> None:
            await self._in_clerk(self._catalog.replace_segments, partition, bases, row)

        return Host(
            checkpoint=self._checkpoints.make,
            one_checkpoint=self._checkpoints.one_at_a_time,
            replace_rows=replace_rows,
            has=self.has,
            changed=lambda owner: self._checkpoints.touch(owner),
            let_go=self._let_go,
            fence=self.fence,
        )

    async def checkpoint(self) -> None:
        """Make everything that is committed independent of the journal."""
        await self._checkpoints.make()

    async def write_checkpoint(self, taken: Checkpoint) -> None:
        await self._in_clerk(taken.write, self._disk, self._files, self._catalog, str(self._directory))

    @property
    def is_writable(self) -> bool:
        return self._state is None

    def has(self, owner: PartitionLog) -> bool:
        return self._logs.get(owner.id) is owner

    def fence(self, reason: str) -> None:
        self._state = self._flusher.fence(reason)

    def _log(self, partition: PartitionId) -> PartitionLog:
        owner = self._logs.get(partition)
        if owner is None:
            raise UnknownPartition(f"there is no partition {partition}")
        return owner

    def _check_open(self) -> None:
        if isinstance(self._state, StorageClosed):
            raise self._state

    def _check_writable(self) -> None:
        if self._state is not None:
            raise self._state

    async def _in_clerk(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._loop.run_in_executor(self._clerk, lambda: work(*args, **kwargs))


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Topics change in the catalog and in memory, or in neither, even if the caller goes away meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _log_failure(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        log.error("files could not be removed", exc_info=error)
