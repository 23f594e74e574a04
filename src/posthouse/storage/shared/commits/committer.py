"""Commits to the database and back: what waits becomes a group, one call at a time.

There are two paths. The inline path stores batches in the database. The object path uploads them to the
object store first; topics with `latency=object` take it. What is too large for the database, or more than it
keeps up with, is uploaded on the inline path, too, but goes into the database if the object store does not
answer.

Calls of a path are made one after the other. Uploads of later groups go on meanwhile: a few groups may be in
flight, and they are called in their order. If one of them fails, those behind it fail, too.

Commits take effect in the order of the calls wherever that can be noticed: a commit that touches a partition
or a key of a commit on the object path follows it there, and the object path waits for earlier inline
commits.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError, StorageClosed, StorageFenced, Unavailable
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import COORDINATOR, Scope
from posthouse.storage.arrivals import Arrived
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Append, Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.shared.commits.awaited_batches import AwaitedBatches
from posthouse.storage.shared.commits.commit_call import CommitCall
from posthouse.storage.shared.commits.commit_group import CommitGroup, PendingCommit
from posthouse.storage.shared.commits.commit_path import CommitPath, GroupInFlight
from posthouse.storage.shared.commits.commit_scopes import check_scopes, scopes_of
from posthouse.storage.shared.commits.payloads import CommitPayload, Uploads, inline_payload
from posthouse.storage.shared.database import ScopeNeeded
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.logs.shared_log import SharedLog, Tails

log = logging.getLogger(__name__)

INLINE_PATH = 0
OBJECT_PATH = 1
PRODUCER_ID_PATH = 2
"""Not of the committer: reservations of producer ids count as commits, so that a database that has lost one
is recognised."""
_CUT_SECONDS = 0.1
"""A call whose connection was cut has noticed it."""
_MOST_IN_FLIGHT = 3
_AHEAD_BYTES = 4 * 1024 * 1024
"""A group is uploaded behind others from this size on; less waits and becomes a larger object. Every request
costs an object store as much as some megabytes."""
_BACKLOG_GROUPS = 4
"""The inline path uploads when more than that many inline groups wait: then the database does not keep up. An
upload takes longer than an inline group, and what came meanwhile is more than one: if that were uploaded,
too, the path would never become inline again."""
_MUCH_UNWRITTEN = (_MOST_IN_FLIGHT + 1) * _AHEAD_BYTES
"""Enough for all uploads that may be in flight, and for the group that waits."""


class Committer:
    """Owned by the event loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        lease: HeldLease,
        logs: Mapping[PartitionId, SharedLog],
        tails: Tails,
        inline: CommitCall,
        objects: CommitCall,
        uploads: Uploads,
        metrics: StorageMetrics,
        is_object_topic: Callable[[PartitionId], bool],
        inline_bytes: int,
        on_fenced: Callable[[StorageFenced], None],
    ) -> None:
        self._clock = clock
        self._lease = lease
        self.coordinates = False
        """Whether this broker is the coordinator, or about to be: others commit nothing that needs its scope,
        and keep no producers."""
        self._namespaces: frozenset[Scope] = frozenset()
        """Scopes of namespaces that this broker serves. Every commit names all of them, so that it may append
        to their logs: what such records lead to is known."""
        self._taken: set[Scope] = set()
        """Those, and scopes that it loads."""
        self._logs = logs
        self._tails = tails
        self._inline = CommitPath(inline)
        self._object = CommitPath(objects)
        self._uploads = uploads
        self._metrics = metrics
        self._is_object_topic = is_object_topic
        self._inline_bytes = inline_bytes
        self._on_fenced = on_fenced
        self._on_object_path: Counter[Hashable] = Counter()
        """Partitions and keys that commits on the object path touch."""
        self._awaited = AwaitedBatches(logs, clock)
        self._subscribers: list[Arrived] = []
        self._change_subscribers: list[Arrived] = []
        self._fenced: StorageFenced | None = None
        self.unwritten_bytes = 0

    def subscribe(self, arrived: Arrived) -> None:
        self._subscribers.append(arrived)

    def subscribe_to_changes(self, changed: Arrived) -> None:
        """As `subscribe`, and for trims, too: they have the size 0."""
        self._change_subscribers.append(changed)

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._inline.call.open()
            await self._object.call.open()
        except BaseException:
            await self._inline.call.close()
            raise

    def take_namespaces(self, scope: Scope) -> None:
        """From now on definitions in the scope may be changed."""
        self._taken.add(scope)

    def serve_namespaces(self, *scopes: Scope) -> None:
        """From now on commits may append to its logs, too."""
        self._taken.update(scopes)
        self._namespaces |= frozenset(scopes)

    def has_taken(self, scope: Scope) -> bool:
        return scope in self._taken

    def leave_namespaces(self, scope: Scope) -> None:
        self._taken.discard(scope)
        self._namespaces -= {scope}

    def add(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        """Raises UnknownPartition; ScopeNeeded for what only the holder of a scope may commit."""
        scopes = scopes_of(operations)
        namespaces = self._namespaces
        if scopes:
            check_scopes(self._lease, scopes)
            self._check_served(scopes)
            # A scope that is still loaded is named for its own state: not in calls with commits that do not
            # know its queues.
            namespaces |= {scope for scope in scopes if scope.namespace_shard is not None}
        done: asyncio.Future[list[Outcome]] = self._loop.create_future()
        size = 0
        by_object = False
        logs: dict[PartitionId, SharedLog] = {}
        for each in operations:
            if isinstance(each, Put):
                continue
            logs[each.partition] = self._logs[each.partition]  # raises UnknownPartition
            if isinstance(each, Append):
                size += each.header.length
                by_object = by_object or self._is_object_topic(each.partition)
        commit = PendingCommit(operations, size, done, logs, scopes, namespaces)
        follows = by_object or (self._on_object_path and self._follows_object_path(operations))
        path = self._object if follows else self._inline
        if path.call.is_away and path.worker is not None:
            self._awaited.failed(operations)
            commit.fail(Unavailable("PostgreSQL does not answer; the broker tries to reach it again"))
            return done
        if follows:
            self._on_object_path.update(_touched(operations))
        self.unwritten_bytes += size
        path.add(commit)
        if path.worker is None:
            path.worker = self._loop.create_task(self._work(path), name="posthouse commits")
        elif path.waiting_bytes >= _AHEAD_BYTES:
            self._launch_ahead(path)
        return done

    def _check_served(self, scopes: Iterable[Scope]) -> None:
        for scope in scopes:
            if scope == COORDINATOR and not self.coordinates:
                raise ScopeNeeded("this broker is not the coordinator")
            if scope.namespace_shard is not None and scope not in self._taken:
                raise ScopeNeeded(f"this broker does not serve the scope {scope}")

    @property
    def acknowledged(self) -> int:
        """The sum of the numbers of the last acknowledged commits: what the database must have."""
        return self._inline.call.acknowledged + self._object.call.acknowledged

    @property
    def is_behind(self) -> bool:
        return self.unwritten_bytes > _MUCH_UNWRITTEN

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
        await asyncio.gather(self._inline.barrier(), self._object.barrier())

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
            self._fail_all(path, error)
            await path.call.close()

    async def _work(self, path: CommitPath) -> None:
        """While there are commits. It begins after this iteration of the event loop, so that its commits
        become one group."""
        try:
            await asyncio.sleep(0)
            while path.waiting or path.in_flight:
                try:
                    if not path.in_flight:
                        if path is self._object:
                            await path.gather()
                        self._launch(path)
                    await self._write(path, path.in_flight[0])
                except asyncio.CancelledError:
                    self._fail_all(path, StorageClosed("the storage is closed"))
                    raise
                except StorageFenced as error:
                    self._fence(error)
                    self._fail_all(path, error)
                except Unavailable as error:
                    # Later batches of the same producers must not take effect without the failed ones.
                    self._fail_all(path, error)
                except Exception as error:
                    log.exception("commits: an error of the broker itself; it stops writing")
                    failure = StorageFenced(f"the committer failed: {error!r}")
                    self._fence(failure)
                    self._fail_all(path, failure)
        finally:
            path.worker = None

    def _fence(self, error: StorageFenced) -> None:
        self._fenced = error
        self._on_fenced(error)

    def _launch(self, path: CommitPath) -> None:
        """Begin with a group of the commits that wait; its call comes after those in flight."""
        must_upload = path is self._object
        may_upload = must_upload or (self._is_much(path) and self._uploads.is_well)
        group = CommitGroup(path.take(self._uploads.group_bytes if may_upload else self._inline_bytes))
        after = self._inline.submitted if must_upload else 0
        try:
            upload = self._begin_upload(group, must_upload=must_upload, may_upload=may_upload)
        except BaseException as error:
            self._fail(path, group, StorageFenced(f"the committer failed: {error!r}"))
            raise
        path.in_flight.append(GroupInFlight(group, self._clock.monotonic(), upload, after))

    def _is_much(self, path: CommitPath) -> bool:
        """Whether what waits on the inline path is too much for the database."""
        inline_bytes = self._inline_bytes
        return path.waiting[0].size > inline_bytes or path.waiting_bytes > _BACKLOG_GROUPS * inline_bytes

    def _begin_upload(
        self, group: CommitGroup, *, must_upload: bool, may_upload: bool
    ) -> asyncio.Future[CommitPayload]:
        batches = group.payload_order()
        if must_upload:
            return self._loop.create_task(self._uploads.upload(batches))
        if may_upload and group.size > self._inline_bytes:
            return self._loop.create_task(self._upload_or_inline(batches, group.size))
        inline: asyncio.Future[CommitPayload] = self._loop.create_future()
        inline.set_result(inline_payload(batches))
        return inline

    def _launch_ahead(self, path: CommitPath) -> None:
        if 0 < len(path.in_flight) < _MOST_IN_FLIGHT and (path is self._object or self._uploads.is_well):
            self._launch(path)

    async def _upload_or_inline(self, batches: Sequence[Append], size: int) -> CommitPayload:
        try:
            return await self._uploads.try_upload(batches)
        except Unavailable as error:
            log.warning("%s; a group of %d bytes goes into the database instead", error, size)
            return inline_payload(batches)

    async def _write(self, path: CommitPath, flight: GroupInFlight) -> None:
        group = flight.group
        payload = await flight.upload
        await self._inline.passed(flight.after)
        if self._fenced is not None:
            raise self._fenced
        now = self._clock.now_ms()
        arrived: list[tuple[PartitionId, int]] = []
        if group.has_operations:
            scopes = [scope.name for scope in group.scopes]
            arguments = [
                scopes,
                payload.inline,
                payload.keys,
                payload.sizes,
                *group.arguments(payload.places, self._awaited.before(group.operations())),
            ]
            answer = await path.call.commit(
                now, arguments, on_away=lambda error: self._fail_behind(path, error)
            )
            self._awaited.failed(group.of_other_brokers(answer))
            arrived = group.apply(answer, self._tails, now, keeps_producers=self.coordinates)
        else:
            group.done()
        path.in_flight.popleft()
        self._uploads.settled(payload)
        self._settle(path, group)
        if path.waiting_bytes >= _AHEAD_BYTES:
            self._launch_ahead(path)
        self._metrics.sync_seconds.observe(self._clock.monotonic() - flight.started)
        self._metrics.commits_per_sync.observe(len(group.commits))
        self._metrics.journal_bytes += group.size
        self._awaited.answered(group.operations())
        if arrived:
            # Behind the callbacks of the futures: acknowledgements go out first.
            self._loop.call_soon(self._tell, arrived)

    def _tell(self, arrived: Sequence[tuple[PartitionId, int]]) -> None:
        for each in self._subscribers:
            for partition, size in arrived:
                if size:
                    each(partition, size)
        for each in self._change_subscribers:
            for partition, size in arrived:
                each(partition, size)

    def _settle(self, path: CommitPath, group: CommitGroup, failure: PosthouseError | None = None) -> None:
        path.settled(group, failure)
        self.unwritten_bytes -= group.size
        if path is self._object:
            for commit in group.commits:
                self._on_object_path.subtract(_touched(commit.operations))
            self._on_object_path = +self._on_object_path

    def _fail(self, path: CommitPath, group: CommitGroup, error: PosthouseError) -> None:
        self._settle(path, group, error)
        for commit in group.commits:
            self._awaited.failed(commit.operations)
            commit.fail(error)

    def _fail_all(self, path: CommitPath, error: PosthouseError) -> None:
        self._fail_from(path, 0, error)

    def _fail_behind(self, path: CommitPath, error: PosthouseError) -> None:
        """What comes after the group that is called, and may still count."""
        self._fail_from(path, 1, error)

    def _fail_from(self, path: CommitPath, kept: int, error: PosthouseError) -> None:
        failed: list[CommitGroup] = []
        while len(path.in_flight) > kept:
            flight = path.in_flight.pop()
            self._uploads.abandoned(flight.upload)
            failed.insert(0, flight.group)
        while path.waiting:
            failed.append(CommitGroup(path.take(2**62)))
        for group in failed:
            self._fail(path, group, error)


def _touched(operations: Sequence[Operation]) -> list[Hashable]:
    return [(each.space, each.key) if isinstance(each, Put) else each.partition for each in operations]
