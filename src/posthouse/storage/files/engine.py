"""Storage on local files: catalog, journal and segments behind the storage interface.

The event loop owns the state in memory (topics, logs, offsets). The flusher thread owns the journal. The
background thread does slow work (catalog, checkpoints, deleting files). They communicate by messages only.

This module builds, opens and closes the parts, and checks that the storage is open and not fenced.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError, StorageClosed, StorageFenced
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import Scope
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.arrivals import Arrived, Awaited, nothing_awaited
from posthouse.storage.bounds import Bounds, Slice, TimestampedOffset
from posthouse.storage.condition import StorageCondition
from posthouse.storage.definition_changes import DefinitionsChanged
from posthouse.storage.files.catalog.catalog import RESERVE_BYTES, Catalog
from posthouse.storage.files.catalog.rows import SegmentRow
from posthouse.storage.files.commits.background_worker import BackgroundWorker
from posthouse.storage.files.commits.checkpoint import Checkpoint
from posthouse.storage.files.commits.checkpoints import Checkpoints
from posthouse.storage.files.commits.commits import Commits
from posthouse.storage.files.commits.flusher import Displaced, Flusher
from posthouse.storage.files.compaction.compactor import MAP_BYTES, CompactionHost, Compactor
from posthouse.storage.files.definitions import Definitions
from posthouse.storage.files.journal.journal import Journal
from posthouse.storage.files.reads import Reads
from posthouse.storage.files.retention import Retention
from posthouse.storage.files.segments.header import check_identity
from posthouse.storage.files.segments.logs import Logs
from posthouse.storage.files.startup import Startup
from posthouse.storage.files.system.data_directory import DataDirectory, OsDataDirectory
from posthouse.storage.files.system.disk import Disk, OsDisk
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.files.system.usage import UsageProbe
from posthouse.storage.files.system.workers import Threads, Workers
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.producers import AbortedTransaction, Producer
from posthouse.storage.retention import KeptElsewhere, Needed, nothing_elsewhere, nothing_needed
from posthouse.storage.spaces import Space
from posthouse.storage.stored_state import StoredState

WATCH_SECONDS = 1.0
"""How often the data directory is checked while there are no writes."""


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
        data_directory: DataDirectory | None = None,
        workers: Workers | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._directory = str(directory)
        self._usage = UsageProbe(directory)
        self._clock = clock
        self._disk = disk or OsDisk()
        data_directory = data_directory or OsDataDirectory(directory)
        workers = workers or Threads()
        self.metrics = StorageMetrics()
        self._files = OpenFiles(self._disk, open_files, partial(check_identity, self._disk))
        self._journal = Journal(self._disk, f"{self._directory}/journal", journal_bytes, random_bytes)
        self._flusher = Flusher(
            self._disk,
            self._files,
            self._journal,
            workers,
            clock,
            self.metrics,
            lost=data_directory.lost,
        )
        self._background = BackgroundWorker(self._disk, self._files, workers)
        self._catalog = Catalog(data_directory)
        self._logs = Logs(self._directory)
        self._checkpoints = Checkpoints(
            self,
            self._logs,
            self._flusher,
            self._journal,
            clock,
            self.metrics,
            journal_bytes=journal_bytes,
            seconds=checkpoint_seconds,
        )
        self._reads = Reads(self._disk, self._files, self._checkpoints.touch, workers)
        self._commits = Commits(
            clock, self._logs, self._flusher, self._checkpoints, self._background, on_fenced=self._on_fenced
        )
        self._retention = Retention(
            clock, self._logs, self.commit, self.metrics, producer_expiry_ms=producer_expiry_ms
        )
        self._compactor = Compactor(
            self._disk,
            self._files,
            clock,
            self._compaction_host(),
            workers,
            self.metrics,
            map_bytes=compaction_map_bytes,
        )
        self._definitions = Definitions(
            self._directory,
            self._disk,
            self._files,
            self._catalog,
            self._background,
            self._logs,
            self._checkpoints,
            leave=self._leave,
        )
        self._startup = Startup(
            self._directory,
            self._disk,
            data_directory,
            self._files,
            self._catalog,
            self._journal,
            self._definitions,
            clock,
            defaults or TopicConfig(),
            random_bytes,
        )
        self._stored_state = StoredState()
        self._state: PosthouseError | None = StorageClosed("the storage is not open")
        self._cluster_id = ""
        self._watching: asyncio.TimerHandle | None = None
        self._has_lost_commits = False

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def has_lost_commits(self) -> bool:
        return self._has_lost_commits

    async def forget_lost_commits(self) -> None:
        self._check_open()
        await self._background.do(self._catalog.set_lost_commits, False)

    async def coordinate(self) -> None:
        """No-op: there are no other brokers."""

    @property
    def awaits_scopes(self) -> bool:
        return False

    async def assign_scopes(self, scopes: Mapping[str, Scope]) -> None:
        """No-op: there are no other brokers."""

    async def take_namespaces(self, scope: Scope) -> None:
        """No-op: there are no other brokers."""

    def serve_namespaces(self, scope: Scope) -> None:
        """No-op: there are no other brokers."""

    def leave_namespaces(self, scope: Scope) -> None:
        """No-op: there are no other brokers."""

    async def stop_coordinating(self) -> None:
        """No-op: there are no other brokers."""

    @property
    def topics(self) -> Mapping[TopicId, Topic]:
        return self._definitions.topics

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cluster_id, recovered = await self._background.do(self._startup.open)
        self._logs.update(recovered.logs)
        self._stored_state = StoredState(recovered.state)
        self._has_lost_commits = recovered.has_lost_commits
        self._checkpoints.changed = recovered.changed
        self._checkpoints.state = recovered.state_changes
        self._checkpoints.frame = recovered.next_frame - 1
        self._commits.start()
        self._state = None
        if self._checkpoints.has_work or self._journal.has_old_files or recovered.has_gap:
            await self.checkpoint()
        self._checkpoints.schedule()
        self._watch()

    def _watch(self) -> None:
        """Check the data directory also while there are no writes, so that the operator gets an alarm
        early."""
        if self._state is None:
            self._flusher.run(self._look)
            self._watching = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._watch)

    def _look(self) -> None:
        """Check the data directory. On the flusher's thread."""
        try:
            self._flusher.check_places()
        except Displaced as error:
            fenced = self._flusher.fence_displaced(error)
            self._loop.call_soon_threadsafe(self._on_fenced, fenced)

    async def _check_places(self) -> None:
        """Raises if the next start would not find the data directory: then catalog changes must not be
        acknowledged."""
        try:
            await self._flusher.perform(self._flusher.check_places)
        except Displaced as error:
            fenced = self._flusher.fence_displaced(error)
            self._on_fenced(fenced)
            raise fenced from error

    async def close(self) -> None:
        if isinstance(self._state, StorageClosed):
            return
        fenced = self._state is not None
        self._state = StorageClosed("the storage is closed")
        if self._watching is not None:
            self._watching.cancel()
        await self._compactor.close()
        await self._commits.drain()
        await self._checkpoints.stop()
        if not fenced:  # after a failed sync, a second sync would report success for lost data
            await self.checkpoint()
        await self._background.do(self._reads.close)  # before the files that reads use
        await self._background.do(self._close, not fenced and not self._checkpoints.has_work)
        self._background.close()

    def _close(self, clean: bool) -> None:
        self._flusher.stop()
        self._startup.close(clean=clean)

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        self._check_writable()
        await self._definitions.put(topics, state)
        await self._check_places()

    def adopt_topics(self, topics: Sequence[Topic]) -> None:
        self._definitions.adopt(topics)

    async def update_topic(self, topic: Topic) -> None:
        self._check_writable()
        await self._definitions.put([topic])
        await self._check_places()

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        self._check_open()
        await self._definitions.delete(topics)

    async def _leave(self, topics: Sequence[TopicId]) -> None:
        """Return when no commit and no compaction works on these topics."""
        await self._compactor.leave(topics)
        await self._commits.drain()

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        if self._state is not None:  # inlined: this runs for every produce request
            raise self._state
        return self._commits.add(operations)

    def subscribe(self, arrived: Arrived, awaited: Awaited = nothing_awaited) -> None:
        self._commits.subscribe(arrived)

    def subscribe_to_others(self, arrived: Arrived) -> None:
        """No-op: no other broker writes here."""

    def watch(self, partitions: Iterable[PartitionId]) -> None:
        """No-op: no other broker writes here."""

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        """No-op: no other broker writes here."""

    def subscribe_definitions(self, changed: DefinitionsChanged) -> None:
        """No-op: no other broker writes here."""

    async def refresh_definitions(self) -> None:
        """No-op: no other broker writes here."""

    async def settle_definitions(self) -> None:
        """No-op: a change fails with an answer."""

    async def announce_sources(self, names: Collection[str], scope: Scope) -> list[str]:
        """No other broker creates topics."""
        return []

    async def give_topics(self, topics: Sequence[Topic], scope: Scope) -> None:
        """No-op: there are no other brokers."""

    async def barrier(self) -> None:
        await self.commit([])  # an empty commit needs no frame; it completes after all earlier commits

    @property
    def shared_state(self) -> None:
        """No other broker changes it."""

    @property
    def log_scopes(self) -> None:
        """One broker keeps house for all logs."""

    @property
    def segment_objects(self) -> None:
        """There is no object store."""

    def take_state(self, space: Space, owner: bytes | None = None) -> dict[bytes, bytes]:
        return self._stored_state.take(space, owner)

    def bounds(self, partition: PartitionId) -> Bounds:
        return self._logs[partition].bounds

    async def condition(self) -> StorageCondition:
        usage = await self._usage.look()
        free = usage.free_bytes
        return StorageCondition(
            refusal=usage.failure if self._state is None else str(self._state),
            free_bytes=free,
            total_bytes=usage.total_bytes,
            journal_bytes=usage.journal_bytes,
            has_reserve=free is None or free > RESERVE_BYTES,
        )

    @property
    def unwritten_bytes(self) -> int:
        return self._commits.unwritten_bytes

    @property
    def is_behind(self) -> bool:
        return self._commits.is_behind

    def size(self, partition: PartitionId) -> int:
        return self._logs[partition].size

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
        owner = self._logs[partition]
        found = await self._reads.read(owner, offset, max_bytes, at_least_one, stable_only)
        if stable_only:
            found.aborted = owner.producers.aborted_between(offset, found.bounds.stable)
        return found

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        return self._logs[partition].producers.aborted_between(start, end)

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        return self._logs[partition].producers.active()

    async def find_timestamp(self, partition: PartitionId, timestamp: int) -> TimestampedOffset | None:
        self._check_open()
        return await self._reads.find_timestamp(self._logs[partition], timestamp)

    async def find_max_timestamp(self, partition: PartitionId) -> TimestampedOffset | None:
        self._check_open()
        return await self._reads.find_max_timestamp(self._logs[partition])

    async def enforce_retention(
        self, archived: KeptElsewhere = nothing_elsewhere, needed: Needed = nothing_needed
    ) -> dict[PartitionId, int]:
        self._check_writable()
        return await self._retention.enforce(archived, needed)

    async def compact(self, needed: Needed = nothing_needed) -> None:
        self._check_writable()
        await self._compactor.run(self._logs.values(), needed)

    def _compaction_host(self) -> CompactionHost:
        async def replace_rows(partition: PartitionId, bases: list[int], row: SegmentRow) -> None:
            await self._background.do(self._catalog.replace_segments, partition, bases, row)

        return CompactionHost(
            checkpoint=self._checkpoints.make,
            one_checkpoint=self._checkpoints.one_at_a_time,
            replace_rows=replace_rows,
            has=self._logs.has,
            changed=self._checkpoints.touch,
            remove=self._background.remove,
            fence=self.fence,
        )

    async def checkpoint(self) -> None:
        """Write a checkpoint of everything committed so far."""
        await self._checkpoints.make()

    async def write_checkpoint(self, taken: Checkpoint) -> None:
        await self._background.do(taken.write, self._disk, self._files, self._catalog, self._directory)

    @property
    def is_writable(self) -> bool:
        return self._state is None

    def fence(self, reason: str) -> None:
        self._on_fenced(self._flusher.fence(reason))

    def _on_fenced(self, error: StorageFenced) -> None:
        if not isinstance(self._state, StorageClosed):
            self._state = error

    def _check_open(self) -> None:
        if isinstance(self._state, StorageClosed):
            raise self._state

    def _check_writable(self) -> None:
        if self._state is not None:
            raise self._state
