"""The log on PostgreSQL and an object store, behind the storage interface.

Any broker appends to logs and reads them, creates and deletes topics, and follows topics and cluster-wide
state. It writes the state of the groups, transactional ids and namespaces whose scopes it holds, alone writes
to the topics of these namespaces, and keeps house for the logs of its scopes. The coordinator also changes
settings of topics and cluster-wide state. A member becomes the coordinator (`coordinate`) and a member again
(`stop_coordinating`) while it serves; it takes and leaves namespaces (`take_namespaces`, `leave_namespaces`)
in the same way. The database decides on offsets, producers and order; this broker's memory follows the
outcomes, and what other brokers write. This module builds, opens and closes the parts, and checks that the
storage is open and not fenced.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from posthouse.model.clock import Clock
from posthouse.model.errors import NotLeader, PosthouseError, StorageClosed, StorageFenced, Unavailable
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import COORDINATOR, NAMESPACES, SCOPES, Scope
from posthouse.model.topic_config import Latency, TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.arrivals import Arrived, Awaited, nothing_awaited
from posthouse.storage.bounds import Bounds, Slice, TimestampedOffset
from posthouse.storage.condition import StorageCondition
from posthouse.storage.definition_changes import DefinitionsChanged
from posthouse.storage.log_news import Grown, LogNews
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.producers import AbortedTransaction, Producer
from posthouse.storage.remote_metrics import CacheMetrics, CallMetrics, RemoteMetrics
from posthouse.storage.retention import KeptElsewhere, Needed, nothing_elsewhere, nothing_needed
from posthouse.storage.shared.commits.commit_call import CommitCall
from posthouse.storage.shared.commits.committer import (
    INLINE_PATH,
    OBJECT_PATH,
    PRODUCER_ID_PATH,
    Committer,
)
from posthouse.storage.shared.commits.last_commits import LastCommits
from posthouse.storage.shared.commits.payloads import Uploads
from posthouse.storage.shared.database import Database, LeaseLost
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.log_upkeep import LogUpkeep
from posthouse.storage.shared.housekeeping.upkeep import Upkeep, UpkeepSettings
from posthouse.storage.shared.logs.compaction_mirror import CompactionMirror
from posthouse.storage.shared.logs.definition_follower import DefinitionFollower
from posthouse.storage.shared.logs.definitions import Definitions
from posthouse.storage.shared.logs.follower import Follower
from posthouse.storage.shared.logs.growth import Growth
from posthouse.storage.shared.logs.loading import AWAITS_SCOPES, load, load_coordinated
from posthouse.storage.shared.logs.shared_log import Tails
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.manifests.manifests import SegmentManifests
from posthouse.storage.shared.objects.names import ObjectNames
from posthouse.storage.shared.objects.store import ObjectStore
from posthouse.storage.shared.observed_stores import ObservedStores
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.reads.piece_reader import PieceReader, ReadBlocks
from posthouse.storage.shared.reads.reads import Reads
from posthouse.storage.shared.reads.segment_indexes import SegmentIndexes
from posthouse.storage.shared.state_reader import StateReader
from posthouse.storage.shared.time_limit import cut_if_cancelled
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space
from posthouse.storage.stored_state import StoredState

log = logging.getLogger(__name__)

INLINE_BYTES = 512 * 1024
TAIL_BYTES = 256 * 1024 * 1024
CACHE_BYTES = 128 * 1024 * 1024
_ANSWER_SECONDS = 6.0
"""A little longer than the timeout of statements, which the database itself keeps while it runs."""
_CLOSE_SECONDS = 10.0
_FOLLOWING_CONNECTIONS = 3
"""Two that look all the time, for records and definitions; one for readers that want to know now."""


class SharedStorage:
    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        blocks: ReadBlocks,
        lease: HeldLease,
        *,
        clock: Clock,
        defaults: TopicConfig | None = None,
        inline_bytes: int = INLINE_BYTES,
        tail_bytes: int = TAIL_BYTES,
        cache_bytes: int = CACHE_BYTES,
        upkeep: UpkeepSettings | None = None,
        observed: ObservedStores | None = None,
        last_commits: LastCommits | None = None,
    ) -> None:
        """`observed` is of `objects` and `blocks`, `last_commits` of all storages of the process."""
        self._database = database
        self._lease = lease
        self._clock = clock
        self._defaults = defaults or TopicConfig()
        self._observed = observed
        self._last_commits = last_commits or LastCommits()
        self.metrics = StorageMetrics(self._remote_metrics)
        self._commit_metrics = CallMetrics()
        self._logs = SharedLogs()
        self._topics: dict[TopicId, Topic] = {}
        self._coordinates = False
        self._tails = Tails(tail_bytes)
        names = ObjectNames(lease.incarnation)
        self._uploads = Uploads(objects, names.new, clock)
        self._committer = Committer(
            clock=clock,
            lease=lease,
            logs=self._logs,
            tails=self._tails,
            inline=self._call(INLINE_PATH),
            objects=self._call(OBJECT_PATH),
            uploads=self._uploads,
            metrics=self.metrics,
            is_object_topic=self._is_object_topic,
            inline_bytes=inline_bytes,
            on_fenced=self._on_fenced,
        )
        self._producer_ids = self._call(PRODUCER_ID_PATH)
        following = self._following = Readers(database, _FOLLOWING_CONNECTIONS, "following")
        self._follower = Follower(following, self._logs, self._on_fenced)
        readers = Readers(database)
        self._read_metrics = readers.metrics
        indexes = SegmentIndexes(readers)
        self._manifests = SegmentManifests(readers, self._logs, indexes, objects.sign)
        pieces = PieceReader(readers, indexes, blocks, cache_bytes=cache_bytes)
        self._reads = Reads(readers, pieces, self._follower)
        followed = DefinitionFollower(following, self._logs, self._topics, self._defaults)
        self._definitions = Definitions(
            database,
            lease.incarnation,
            lease.epoch,
            self._topics,
            self._logs,
            self._defaults,
            followed.tell,
            followed.changed_here,
        )
        followed.is_changing = self._definitions.is_changing
        self._definition_follower = followed
        self._upkeep_metrics = HousekeepingMetrics()
        self.log_scopes = LogUpkeep(
            database,
            objects,
            names,
            lease,
            self,
            commit=self.commit,
            barrier=self.barrier,
            effects=CompactionMirror(self._logs, self._tails, self._reads.moved),
            on_lease_lost=self._on_fenced,
            clock=clock,
            metrics=self._upkeep_metrics,
            storage_metrics=self.metrics,
            settings=upkeep,
        )
        self._upkeep = Upkeep(
            database,
            objects,
            lease,
            on_lease_lost=self._on_fenced,
            clock=clock,
            metrics=self._upkeep_metrics,
            settings=upkeep,
        )
        self._producer_expiry_ms = (upkeep or UpkeepSettings()).producer_expiry_ms
        self._stored_state = StoredState()
        self._shared_state = StateReader(readers, self._reserve_producer_ids)
        self._state: PosthouseError | None = StorageClosed("the storage is not open")
        self._cluster_id = ""
        self._awaits_scopes = False

    def _call(self, path: int) -> CommitCall:
        return CommitCall(
            self._database,
            self._lease,
            path=path,
            seconds=_ANSWER_SECONDS,
            clock=self._clock,
            metrics=self._commit_metrics,
            last=self._last_commits.of(self._lease.incarnation, path),
        )

    def _is_object_topic(self, partition: PartitionId) -> bool:
        topic = self._topics.get(partition.topic)
        return topic is not None and topic.config.latency is Latency.OBJECT

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def has_lost_commits(self) -> bool:
        """False: a database that lost commits is not served from."""
        return False

    async def forget_lost_commits(self) -> None:
        """No-op: see `has_lost_commits`."""

    @property
    def awaits_scopes(self) -> bool:
        return self._awaits_scopes

    async def assign_scopes(self, scopes: Mapping[str, Scope]) -> None:
        self._check_coordinator()
        await self._definitions.assign(scopes)
        self._awaits_scopes = False

    @property
    def topics(self) -> Mapping[TopicId, Topic]:
        return self._topics

    async def open(self) -> None:
        """As the coordinator, if this broker holds that scope."""
        coordinates = self._lease.holds(COORDINATOR)
        has_all = all(map(self._lease.holds, SCOPES))
        connection = await self._database.connect("loading")
        try:
            loaded = await cut_if_cancelled(
                connection, load(connection, self._defaults, coordinates=coordinates, has_all=has_all)
            )
        finally:
            await connection.close()
        self._cluster_id = loaded.cluster_id
        self._awaits_scopes = loaded.awaits_coordinator
        self._topics.update(loaded.topics)
        for each in loaded.logs:
            self._logs.add(each)
        self._stored_state = loaded.state
        try:
            await self._committer.open()
            await self._producer_ids.open()
            await self._producer_ids.close()  # it connects again when ids are reserved
        except LeaseLost as error:
            self._lease.fenced(str(error))
            raise
        self._lease.count_commits(lambda: self._committer.acknowledged + self._producer_ids.acknowledged)
        self._state = None
        self._follower.start(loaded.confirmed_losses)
        self.log_scopes.start()
        self._definition_follower.seen = loaded.changes
        self._definition_follower.start()
        if coordinates:
            self._start_coordinating()
        if has_all:  # there are no other brokers
            self._committer.serve_namespaces(*NAMESPACES)

    async def coordinate(self) -> None:
        if self._coordinates:
            return
        self._check_writable()
        try:
            # The coordinator before has released the scope, or is fenced: it changes nothing any more.
            await self._definition_follower.refresh()
            connection = await self._database.connect("loading")
            try:
                self._stored_state = await cut_if_cancelled(
                    connection, load_coordinated(connection, self._logs.numbered)
                )
            finally:
                await connection.close()
        except BaseException:
            self._logs.forget_producers()
            raise
        self._start_coordinating()

    def _start_coordinating(self) -> None:
        self._coordinates = True
        self._committer.coordinates = True
        self._definition_follower.coordinate()
        self._upkeep.start()

    async def stop_coordinating(self) -> None:
        if not self._coordinates:
            return
        self._coordinates = False
        # Nothing is awaited before this: what the caller has unloaded is not needed by a later commit.
        self._committer.coordinates = False
        self._stored_state = StoredState()
        self._logs.forget_producers()
        await self._upkeep.stop()
        self._definition_follower.stop_coordinating()
        self._check_writable()
        await self._committer.barrier()

    async def take_namespaces(self, scope: Scope) -> None:
        self._check_writable()
        await self._have_scopes()
        # The broker before has released the scope, or is fenced: it changes nothing in it any more.
        await self._definition_follower.refresh()
        topics = [topic for topic in self._topics.values() if topic.scope == scope]
        await self._follower.refresh(
            [self._logs[partition] for topic in topics for partition in topic.partition_ids()]
        )
        self._committer.take_namespaces(scope)

    def serve_namespaces(self, scope: Scope) -> None:
        self._committer.serve_namespaces(scope)

    async def _have_scopes(self) -> None:
        """Raises Unavailable while it is not known which topics feed queues: these may need their records."""
        if not self._awaits_scopes:
            return
        async with self._following.connection("asking for the coordinator") as connection:
            [(waits,)] = await (await connection.execute(AWAITS_SCOPES)).fetchall()
        if waits:
            raise Unavailable("no coordinator has looked through what was imported; try again in a moment")
        self._awaits_scopes = False

    def leave_namespaces(self, scope: Scope) -> None:
        self._committer.leave_namespaces(scope)

    async def close(self) -> None:
        if isinstance(self._state, StorageClosed):
            return
        self._state = StorageClosed("the storage is closed")
        await self.log_scopes.stop()
        await self._upkeep.stop()
        await self._definitions.close()
        await self._definition_follower.stop()
        await self._follower.stop()
        await self._following.close()
        await self._committer.close(self._state, seconds=_CLOSE_SECONDS)
        await self._reads.close()

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        self._check_writable()
        await self._definitions.create(topics, state)

    def adopt_topics(self, topics: Sequence[Topic]) -> None:
        self._topics |= {topic.id: topic for topic in topics}

    async def update_topic(self, topic: Topic) -> None:
        if topic.scope is None or not topic.is_internal:
            self._check_coordinator()
        else:
            self._check_holder(topic.scope)
        await self._definitions.change(topic)

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        self._check_writable()
        await self._committer.barrier()
        await self._definitions.delete(topics)

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        if self._state is not None:
            raise self._state
        return self._committer.add(operations)

    def subscribe(self, arrived: Arrived, awaited: Awaited = nothing_awaited) -> None:
        self._committer.subscribe(arrived)
        self._follower.subscribe(arrived, awaited)

    def subscribe_to_others(self, arrived: Arrived) -> None:
        self._follower.subscribe(arrived, nothing_awaited)

    def watch(self, partitions: Iterable[PartitionId]) -> None:
        for partition in partitions:
            found = self._logs.get(partition)
            if found is not None:  # else deleted meanwhile
                self._follower.watch(found)

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        self._check_open()
        logs = [self._logs[partition] for partition in partitions]
        await self._follower.refresh(logs)
        if with_producers:
            await self._follower.refresh_producers(logs)

    def subscribe_definitions(self, changed: DefinitionsChanged) -> None:
        self._definition_follower.subscribe(changed)

    async def refresh_definitions(self) -> None:
        self._check_open()
        await self._definitions.settle()
        await self._definition_follower.refresh()

    async def settle_definitions(self) -> None:
        self._check_open()
        await self._definitions.settle()

    async def announce_sources(self, names: Collection[str], scope: Scope) -> list[str]:
        self._check_holder(scope)
        shard = scope.namespace_shard
        assert shard is not None
        await self.commit([Put(Space.SOURCES, name.encode(), bytes([shard])) for name in names])
        return await self._definitions.scopeless(list(names))

    async def give_topics(self, topics: Sequence[Topic], scope: Scope) -> None:
        self._check_holder(scope)
        await self._definitions.give(topics, scope)

    def grown(self, told: Grown) -> None:
        """Tell what commits of this broker change, once in a turn of the event loop."""
        self._committer.subscribe_to_changes(Growth(self._logs, told).arrived)

    def hinted(self, news: Sequence[LogNews]) -> None:
        """What another broker tells of its commits."""
        self._follower.hinted(news)

    async def barrier(self) -> None:
        self._check_writable()
        await self._committer.barrier()

    @property
    def shared_state(self) -> SharedState:
        return self._shared_state

    async def _reserve_producer_ids(self, count: int, end: int) -> int | None:
        self._check_writable()
        try:
            return await self._producer_ids.reserve_producer_ids(count, end)
        except StorageFenced as error:
            self._on_fenced(error)
            raise

    @property
    def segment_objects(self) -> SegmentManifests:
        return self._manifests

    def take_state(self, space: Space, owner: bytes | None = None) -> dict[bytes, bytes]:
        return self._stored_state.take(space, owner)

    def bounds(self, partition: PartitionId) -> Bounds:
        return self._logs[partition].bounds

    async def condition(self) -> StorageCondition:
        refusal = self._state or self._committer.away
        failure = None if self._observed is None else self._observed.objects_failure()
        return StorageCondition(
            refusal=None if refusal is None else str(refusal),
            impairments=() if failure is None else (failure,),
        )

    def _remote_metrics(self) -> RemoteMetrics:
        observed = self._observed
        return RemoteMetrics(
            database={
                "commit": self._commit_metrics,
                "read": self._read_metrics,
                "follow": self._following.metrics,
            },
            database_away_seconds=self._committer.away_seconds,
            objects={} if observed is None else observed.metrics.by_operation,
            objects_away_seconds=None if observed is None else observed.away_seconds,
            tail_bytes=self._tails.bytes,
            cache=CacheMetrics() if observed is None else observed.cache,
            upkeep=self._upkeep_metrics.now(),
        )

    @property
    def unwritten_bytes(self) -> int:
        return self._committer.unwritten_bytes

    @property
    def is_behind(self) -> bool:
        return self._committer.is_behind

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
        return await self._reads.read(self._logs[partition], offset, max_bytes, at_least_one, stable_only)

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        if not self._coordinates:
            raise NotLeader("only the coordinator has loaded aborted transactions; a slice has its own")
        return list(self._logs[partition].aborted_between(start, end))

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        return self._logs[partition].known_producers()

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
        await self._have_scopes()
        held_back = await self.log_scopes.enforce_retention(archived, needed)
        self._logs.expire_producers(self._clock.now_ms() - self._producer_expiry_ms)
        return held_back

    async def compact(self, needed: Needed = nothing_needed) -> None:
        self._check_writable()
        await self._have_scopes()
        await self.log_scopes.compact(needed)

    def _on_fenced(self, error: StorageFenced) -> None:
        if self._state is None:
            self._state = error
            self._lease.fenced(str(error))
            log.error("the shared storage writes no more: %s", error)

    def _check_open(self) -> None:
        if isinstance(self._state, StorageClosed):
            raise self._state

    def _check_writable(self) -> None:
        if self._state is not None:
            raise self._state

    def _check_holder(self, scope: Scope) -> None:
        """Raises NotLeader unless this broker has taken the scope of namespaces."""
        self._check_writable()
        if not self._committer.has_taken(scope):
            raise NotLeader(f"the broker that holds {scope} does that")

    def _check_coordinator(self) -> None:
        """Raises NotLeader in a member."""
        self._check_writable()
        if not self._coordinates:
            raise NotLeader("only the coordinator of the cluster does that")
