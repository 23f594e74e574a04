"""Commits to the database and back: what waits becomes a group, one call at a time.

There are two paths. The inline path stores batches in the database. The object path uploads them to the
object store first; topics with `latency=object` take it. A group of the inline path that is too large for the
database is uploaded, too, but goes into the database if the object store does not answer.

Commits take effect in the order of the calls wherever that can be noticed: a commit that touches a partition
or a key of a commit on the object path follows it there, and the object path waits for earlier inline
commits.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence

from posthouse.model.clock import Clock
from posthouse.model.errors import (
    OutOfOrderSequence,
    PosthouseError,
    StorageClosed,
    StorageFenced,
    Unavailable,
)
from posthouse.model.ids import PartitionId
from posthouse.storage.arrivals import Arrived
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Append, Operation, Put
from posthouse.storage.outcomes import OperationRefused, Outcome
from posthouse.storage.shared.commit_call import CommitCall
from posthouse.storage.shared.commit_group import CommitGroup, PendingCommit
from posthouse.storage.shared.payloads import Payload, Uploads, inline_payload
from posthouse.storage.shared.shared_log import SharedLog, Tails

log = logging.getLogger(__name__)

INLINE_PATH = 0
OBJECT_PATH = 1
_MOST_AWAITED = 100_000
_CUT_SECONDS = 0.1
"""A call whose connection was cut has noticed it."""
OPERATIONS_PER_CALL = 500
"""A call takes longer than in proportion beyond that; a single commit may be larger."""


class CommitPath:
    """The commits that wait for one kind of calls."""

    def __init__(self, call: CommitCall) -> None:
        self.call = call
        self.waiting: deque[PendingCommit] = deque()
        self.waiting_bytes = 0
        self.worker: asyncio.Task[None] | None = None

    def add(self, commit: PendingCommit) -> None:
        self.waiting.append(commit)
        self.waiting_bytes += commit.size

    def take(self, max_bytes: int) -> list[PendingCommit]:
        taken: list[PendingCommit] = []
        size = operations = 0
        while self.waiting:
            commit = self.waiting[0]
            size += commit.size
            operations += len(commit.operations)
            if taken and (size > max_bytes or operations > OPERATIONS_PER_CALL):
                break
            taken.append(self.waiting.popleft())
            self.waiting_bytes -= commit.size
        return taken


class Committer:
    """Owned by the event loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        logs: Mapping[PartitionId, SharedLog],
        tails: Tails,
        inline: CommitCall,
        objects: CommitCall,
        uploads: Uploads,
        metrics: StorageMetrics,
        is_object_topic: Callable[[PartitionId], bool],
        slot: Callable[[], int],
        inline_bytes: int,
        on_fenced: Callable[[StorageFenced], None],
    ) -> None:
        self._clock = clock
        self._logs = logs
        self._tails = tails
        self._inline = CommitPath(inline)
        self._object = CommitPath(objects)
        self._uploads = uploads
        self._metrics = metrics
        self._is_object_topic = is_object_topic
        self._slot = slot
        self._inline_bytes = inline_bytes
        self._on_fenced = on_fenced
        self._on_object_path: Counter[Hashable] = Counter()
        """Partitions and keys that commits on the object path touch."""
        self._awaited: dict[tuple[PartitionId, int], tuple[int, int]] = {}
        """Epoch and sequence of the first batch of producers whose first batch failed: they repeat it, and
        until then their later batches are refused."""
        self._subscribers: list[Arrived] = []
        self.unwritten_bytes = 0

    def subscribe(self, arrived: Arrived) -> None:
        self._subscribers.append(arrived)

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._inline.call.open()
        await self._object.call.open()

    def add(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        done: asyncio.Future[list[Outcome]] = self._loop.create_future()
        size = 0
        by_object = False
        for each in operations:
            if isinstance(each, Append):
                self._logs[each.partition]  # raises UnknownPartition
                size += each.header.length
                by_object = by_object or self._is_object_topic(each.partition)
            elif not isinstance(each, Put):
                self._logs[each.partition]
        refusals: Mapping[int, PosthouseError] = {}
        if self._awaited:
            refusals = self._refused_after_failure(operations)
            for each in operations:
                if isinstance(each, Append) and each.required and id(each) in refusals:
                    done.set_exception(OperationRefused(each, refusals[id(each)]))
                    return done
        commit = PendingCommit(operations, size, done, refusals)
        follows = by_object or (self._on_object_path and self._follows_object_path(operations))
        path = self._object if follows else self._inline
        if path.call.is_away and path.worker is not None:
            self._remember_failed(operations)
            commit.fail(Unavailable("PostgreSQL does not answer; the broker tries to reach it again"))
            return done
        if follows:
            self._on_object_path.update(_touched(operations))
        self.unwritten_bytes += size
        path.add(commit)
        if path.worker is None:
            path.worker = self._loop.create_task(self._work(path), name="posthouse commits")
        return done

    def _follows_object_path(self, operations: Sequence[Operation]) -> bool:
        return any(key in self._on_object_path for key in _touched(operations))

    @property
    def away_seconds(self) -> float | None:
        """How long the database has not answered; None while it does."""
        since = [path.call.away_since for path in (self._inline, self._object)]
        known = [each for each in since if each is not None]
        return self._clock.monotonic() - min(known) if known else None

    @property
    def away(self) -> str | None:
        """Why commits fail at the moment."""
        seconds = self.away_seconds
        return None if seconds is None else f"PostgreSQL has not answered for {seconds:.0f} s"

    async def barrier(self) -> None:
        """Return when everything that was committed before is readable. Raises Unavailable."""
        await asyncio.gather(self._passed(self._inline), self._passed(self._object))

    async def _passed(self, path: CommitPath) -> None:
        """Return when the path has written what it has now."""
        if path.worker is not None:
            passed = PendingCommit((), 0, self._loop.create_future(), {})
            path.add(passed)
            await passed.done

    async def close(self, error: PosthouseError, *, seconds: float) -> None:
        """Finish the commits that wait; those that take longer than `seconds` fail with `error`."""
        workers = [path.worker for path in (self._inline, self._object) if path.worker is not None]
        if workers:
            _, late = await asyncio.wait(workers, timeout=seconds)
            if late:
                # Cancelled calls would wait for a server that does not answer; broken ones do not.
                self._inline.call.cut()
                self._object.call.cut()
                _, late = await asyncio.wait(late, timeout=_CUT_SECONDS)
            for each in late:
                each.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for path in (self._inline, self._object):
            self._fail_waiting(path, error)
            await path.call.close()

    async def _work(self, path: CommitPath) -> None:
        """While there are commits. It begins after this iteration of the event loop, so that its commits
        become one group."""
        try:
            await asyncio.sleep(0)
            while path.waiting:
                group = await self._next_group(path)
                try:
                    await self._write(path, group)
                except asyncio.CancelledError:
                    self._fail(path, group, StorageClosed("the storage is closed"))
                    raise
                except StorageFenced as error:
                    self._on_fenced(error)
                    self._fail(path, group, error)
                    self._fail_waiting(path, error)
                except Unavailable as error:
                    self._fail(path, group, error)
                    # Later batches of the same producers must not take effect without the failed ones.
                    self._fail_waiting(path, error)
                except Exception as error:
                    failure = StorageFenced(f"the committer failed: {error!r}")
                    log.exception("commits: an error of the broker itself; it stops writing")
                    self._on_fenced(failure)
                    self._fail(path, group, failure)
                    self._fail_waiting(path, failure)
        finally:
            path.worker = None

    async def _next_group(self, path: CommitPath) -> CommitGroup:
        if path is self._object:
            await self._uploads.gather(lambda: path.waiting_bytes)
            with contextlib.suppress(Unavailable):  # what has failed need not be waited for
                await self._passed(self._inline)
            return CommitGroup(path.take(self._uploads.group_bytes), self._logs)
        is_large = path.waiting_bytes > self._inline_bytes and self._uploads.is_well
        return CommitGroup(
            path.take(self._uploads.group_bytes if is_large else self._inline_bytes), self._logs
        )

    async def _write(self, path: CommitPath, group: CommitGroup) -> None:
        if not group.has_operations:
            group.done()
            return
        started = self._clock.monotonic()
        payload = await self._payload(path, group)
        now = self._clock.now_ms()
        arguments = [payload.inline, payload.keys, payload.sizes, *group.arguments(payload.places)]
        try:
            answer = await path.call.commit(
                now, self._slot(), arguments, on_away=lambda error: self._fail_waiting(path, error)
            )
        finally:
            self._uploads.settled(payload)
        self._settle(path, group)
        arrived = group.apply(answer, self._tails, now)
        self._metrics.sync_seconds.observe(self._clock.monotonic() - started)
        self._metrics.commits_per_sync.observe(len(group.commits))
        self._metrics.journal_bytes += group.size
        self._forget_awaited(group)
        if arrived:
            # Behind the callbacks of the futures: acknowledgements go out first.
            self._loop.call_soon(self._tell, arrived)

    async def _payload(self, path: CommitPath, group: CommitGroup) -> Payload:
        batches = group.payload_order()
        if path is self._object:
            return await self._uploads.upload(batches)
        if group.size > self._inline_bytes and self._uploads.is_well:
            try:
                return await self._uploads.upload(batches)
            except Unavailable as error:
                log.warning("%s; a group of %d bytes goes into the database instead", error, group.size)
        return inline_payload(batches)

    def _tell(self, arrived: Sequence[tuple[PartitionId, int]]) -> None:
        for each in self._subscribers:
            for partition, size in arrived:
                each(partition, size)

    def _settle(self, path: CommitPath, group: CommitGroup) -> None:
        self.unwritten_bytes -= group.size
        if path is self._object:
            for commit in group.commits:
                self._on_object_path.subtract(_touched(commit.operations))
            self._on_object_path = +self._on_object_path

    def _fail(self, path: CommitPath, group: CommitGroup, error: PosthouseError) -> None:
        self._settle(path, group)
        for commit in group.commits:
            self._remember_failed(commit.operations)
            commit.fail(error)

    def _fail_waiting(self, path: CommitPath, error: PosthouseError) -> None:
        while path.waiting:
            self._fail(path, CommitGroup(path.take(2**62), self._logs), error)

    def _remember_failed(self, operations: Sequence[Operation]) -> None:
        for each in operations:
            if isinstance(each, Append) and each.header.producer_id >= 0:
                owner = self._logs.get(each.partition)
                if owner is not None and owner.producers.get(each.header.producer_id) is None:
                    header = each.header
                    key = (each.partition, header.producer_id)
                    self._awaited.setdefault(key, (header.producer_epoch, header.base_sequence))
        while len(self._awaited) > _MOST_AWAITED:
            del self._awaited[next(iter(self._awaited))]

    def _forget_awaited(self, group: CommitGroup) -> None:
        if self._awaited:
            for commit in group.commits:
                for each in commit.operations:
                    if isinstance(each, Append) and each.base_offset >= 0:
                        self._awaited.pop((each.partition, each.header.producer_id), None)

    def _refused_after_failure(self, operations: Sequence[Operation]) -> dict[int, PosthouseError]:
        """Why batches are refused, by `id`."""
        refused: dict[int, PosthouseError] = {}
        for each in operations:
            if not isinstance(each, Append) or each.header.is_control:
                continue
            header = each.header
            epoch, sequence = self._awaited.get((each.partition, header.producer_id), (-1, -1))
            if header.producer_epoch == epoch and header.base_sequence != sequence:
                refused[id(each)] = OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {header.base_sequence}; {sequence} failed"
                )
        return refused


def _touched(operations: Sequence[Operation]) -> list[Hashable]:
    return [(each.space, each.key) if isinstance(each, Put) else each.partition for each in operations]
