"""The schedule of checkpoints, and the changes that the next one has to cover. See `checkpoint`."""

import asyncio
import logging
from typing import Protocol

from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError
from posthouse.storage.files.catalog.producer_rows import rows
from posthouse.storage.files.commits import checkpoint
from posthouse.storage.files.commits.flusher import Flusher
from posthouse.storage.files.journal.journal import Journal
from posthouse.storage.files.segments.index import SparseIndex
from posthouse.storage.files.segments.logs import Logs
from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.system.disk import SyncFailed
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

DATA_PER_JOURNAL = 4
"""A checkpoint is due when the journal is full, or when segments got this many times its size without it."""


class CheckpointHost(Protocol):
    """Operations of the storage that checkpoints need."""

    @property
    def is_writable(self) -> bool: ...

    def fence(self, reason: str) -> None: ...

    async def write_checkpoint(self, taken: checkpoint.Checkpoint) -> None: ...


class Checkpoints:
    """Owned by the event loop."""

    def __init__(
        self,
        host: CheckpointHost,
        logs: Logs,
        flusher: Flusher,
        journal: Journal,
        clock: Clock,
        metrics: StorageMetrics,
        *,
        journal_bytes: int,
        seconds: float,
    ) -> None:
        self._host = host
        self._logs = logs
        self._flusher = flusher
        self._journal = journal
        self._clock = clock
        self._metrics = metrics
        self._journal_bytes = journal_bytes
        self._seconds = seconds
        self.changed: dict[PartitionLog, None] = {}
        """Changed logs in the order of their first change: a set's order would differ from run to run."""
        self.state: dict[tuple[int, bytes], bytes | None] = {}
        self.frame = 0
        """The last frame whose effects are included in the state of the event loop."""
        self.one_at_a_time = asyncio.Lock()
        self._journalled = 0
        self._data_written = 0
        self._task: asyncio.Task[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_work(self) -> bool:
        return bool(self.changed or self.state)

    def touch(self, owner: PartitionLog) -> None:
        """Include the log in the next checkpoint."""
        self.changed[owner] = None

    def forget(self, owner: PartitionLog) -> None:
        """The log was deleted: the next checkpoint removes its producer state."""
        self.changed.pop(owner, None)
        for key in rows(owner.id, owner.producers.removal()):
            self.state[int(Space.PRODUCERS), key] = None

    def written(self, frame: int, journalled: int, data: int) -> None:
        """A commit group is durable; start a checkpoint if one is due."""
        self.frame = max(self.frame, frame)
        self._journalled += journalled
        self._data_written += data
        if (
            self._journalled >= self._journal_bytes
            or self._data_written >= DATA_PER_JOURNAL * self._journal_bytes
        ):
            self._begin()

    def schedule(self) -> None:
        """Checkpoint periodically, even if few commits arrive."""
        if self.has_work:
            self._begin()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.schedule)

    async def stop(self) -> None:
        """Stop scheduling checkpoints and wait for the running one."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _begin(self) -> None:
        if self._task is None and self._host.is_writable:
            self._task = asyncio.create_task(self.make(), name="checkpoint")
            self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[bool]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("checkpoint failed", exc_info=task.exception())

    async def make(self) -> bool:
        """Write a checkpoint of everything committed so far; returns whether it succeeded."""
        # A failed checkpoint must put its changes back before the next one begins.
        async with self.one_at_a_time:
            changed, self.changed = self.changed, {}
            state, self.state = self.state, {}
            taken = checkpoint.take(self.frame, changed, state)
            self._journalled = self._data_written = 0
            begun = self._clock.monotonic()
            try:
                await self._flusher.perform(self._flusher.sync_fresh_directories)
                await self._host.write_checkpoint(taken)
                await self._flusher.perform(lambda: self._journal.release(taken.snapshot.frame))
            except (SyncFailed, OSError, PosthouseError) as error:
                self._give_up(taken, changed, state, error)
                self._metrics.checkpoint_failures += 1
                return False
            self._metrics.checkpoint_seconds.observe(self._clock.monotonic() - begun)
            for owner in changed:
                _unload_indexes(owner)
            return True

    def _give_up(
        self,
        taken: checkpoint.Checkpoint,
        changed: dict[PartitionLog, None],
        state: dict[tuple[int, bytes], bytes | None],
        error: Exception,
    ) -> None:
        taken.undo()
        self.changed |= {owner: None for owner in changed if self._logs.has(owner)}
        self.state = state | self.state
        if isinstance(error, SyncFailed):
            self._host.fence(str(error))
        else:
            log.warning("checkpoint up to frame %d failed, retrying: %s", taken.snapshot.frame, error)


def _unload_indexes(owner: PartitionLog) -> None:
    """Unload indexes of closed segments that had no reads since the last checkpoint."""
    for segment in owner.segments[:-1]:
        if not segment.was_read and not segment.is_changed and segment.indexed_to == segment.size:
            interval = owner.config.index_interval_bytes
            segment.index = SparseIndex(interval, segment.size, segment.max_timestamp)
        segment.was_read = False
