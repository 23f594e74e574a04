"""The broker: the interface of every protocol to topics and their logs.

It knows no protocol. Every produce ends in `append`, every consume starts in `read`.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from posthouse.broker.access.control import AccessControl
from posthouse.broker.appending import Appended, Produced
from posthouse.broker.cluster_usage import NO_OTHERS, ClusterUsage
from posthouse.broker.coordination import Coordination
from posthouse.broker.definition_follower import DefinitionFollower
from posthouse.broker.delayed_records import DelayedRecords
from posthouse.broker.dynamic_settings import DynamicSettings, LimitConnections, no_listeners
from posthouse.broker.funnel.group_limiters import GroupLimiters
from posthouse.broker.group_scopes import GroupScopes
from posthouse.broker.groups.config import default_config
from posthouse.broker.groups.configs import GroupConfigs
from posthouse.broker.groups.groups import Groups
from posthouse.broker.groups.metadata import OPAQUE, MemberMetadata
from posthouse.broker.groups.offsets import offset_key
from posthouse.broker.half_messages.half_log import HalfLog
from posthouse.broker.half_messages.half_messages import HalfMessages
from posthouse.broker.held_scopes import OF_GROUPS, OF_NAMESPACES, OF_TRANSACTIONS, HeldScopes
from posthouse.broker.idempotency.allowance import KeyAllowance
from posthouse.broker.idempotency.idempotent_appends import IdempotentAppends
from posthouse.broker.idempotency.key_log import KeyLog
from posthouse.broker.key_index.files import IndexFiles, MemoryFiles
from posthouse.broker.key_index.key_index import KeyIndex
from posthouse.broker.key_index.key_search import KeySearch
from posthouse.broker.log_reader import LogReader
from posthouse.broker.log_scopes import LogScopes
from posthouse.broker.log_writer import Appending, LogWriter
from posthouse.broker.long_poll import LongPoll
from posthouse.broker.namespace_scopes import NamespaceScopes
from posthouse.broker.protocol_members import ProtocolMembers
from posthouse.broker.queues.attributes import ReadAttributes, no_attributes
from posthouse.broker.queues.imported_scopes import imported_scopes
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.oldest import OldestMessages
from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.queues.sources import Sources
from posthouse.broker.recent_deletions import RecentDeletions
from posthouse.broker.record_waves import RecordWaves, Written
from posthouse.broker.retention import Retention
from posthouse.broker.routing.definitions import ExchangeDefinition
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.schedule import Schedule
from posthouse.broker.schedule.schedules import Schedules
from posthouse.broker.subscriptions.dead_letters import DeadLetters
from posthouse.broker.subscriptions.rules import SubscriptionRules
from posthouse.broker.subscriptions.subscriptions import Subscriptions
from posthouse.broker.telemetry.clients import ClientMetrics
from posthouse.broker.telemetry.export import MetricsFile
from posthouse.broker.telemetry.subscriptions import MetricsSubscriptions
from posthouse.broker.topics import NewTopic, Topics
from posthouse.broker.traced_writer import TracedLogWriter
from posthouse.broker.tracing import Tracer
from posthouse.broker.traffic import Traffic
from posthouse.broker.transaction_scopes import TransactionScopes
from posthouse.broker.transactions.coordinator import Transactions
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.broker.transactions.transactional_ids import TransactionalIds
from posthouse.broker.webhooks.group_members import WebhookMembers
from posthouse.broker.webhooks.secret_keeper import SecretKeeper
from posthouse.broker.webhooks.webhooks import Webhooks
from posthouse.model.clock import Clock
from posthouse.model.errors import OffsetOutOfRange, PosthouseError
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.model.scopes import COORDINATOR, GROUPS, HOUSEKEEPING, NAMESPACES, TRANSACTIONS, Scope
from posthouse.model.topics import Topic
from posthouse.settings import Settings
from posthouse.storage.bounds import Bounds, TimestampedOffset
from posthouse.storage.condition import StorageCondition
from posthouse.storage.contract import Storage
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Put, Trim
from posthouse.storage.producers import Producer
from posthouse.storage.segment_objects import SegmentObjects
from posthouse.storage.spaces import Space


class SpreadScopes(Protocol):
    """Scopes of one kind, which are spread over the brokers of a cluster."""

    def holds(self, scope: Scope) -> bool: ...

    async def take(self, scope: Scope) -> None:
        """No-op if it is held. Raises Unavailable."""

    async def release(self, scope: Scope) -> None:
        """When it returns, nothing of the scope is used any more, and all of its commits are done. Raises
        Unavailable; then the scope is not served either."""


class Broker:
    """`start` is enough to serve logs, and to create and delete topics. To change settings of topics, users
    and permissions it has to `coordinate`, which one of several brokers on one storage does, until it is to
    `stop_coordinating`. In the others storage refuses their commits, and they refuse what they would do
    without a commit. Groups, transactional ids, namespaces with their queues and housekeeping of logs need
    their scope: a broker that is alone holds all, one of several holds those that it has taken.
    """

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        clock: Clock,
        member_metadata: MemberMetadata = OPAQUE,
        read_attributes: ReadAttributes = no_attributes,
        *,
        predeclared_exchanges: Sequence[ExchangeDefinition] = (),
        limit_connections: LimitConnections = no_listeners,
        cluster: ClusterUsage = NO_OTHERS,
        tracer: Tracer | None = None,
        index_files: IndexFiles | None = None,
    ) -> None:
        """`tracer` is None where tracing is off. The key index is in memory without `index_files`."""
        self.coordinates = False
        """Whether this broker coordinates. Always so where it is alone, once it has started."""
        self.tracer = tracer
        self._storage = storage
        self._clock = clock
        self.settings = settings
        self.access = AccessControl(storage, settings, clock, cluster=cluster)
        sources = Sources(storage, clock)
        self.topics = Topics(storage, settings.topic_defaults(), settings.default_partitions)
        self.traffic = Traffic()
        self.recent_deletions = RecentDeletions(clock)
        self.metrics_subscriptions = MetricsSubscriptions(storage)
        self._metrics_file = MetricsFile(settings.client_metrics_path)
        self.client_metrics = ClientMetrics(self.metrics_subscriptions, clock, self._metrics_file.write)
        self.group_configs = GroupConfigs(storage, default_config(settings))
        self.dynamic_settings = DynamicSettings(
            storage, settings, self.topics, self.group_configs, limit_connections
        )
        self._long_poll = LongPoll(storage, storage.subscribe)
        log_reader = LogReader(storage, self._long_poll)
        self.read = log_reader.read
        """Whole batches of a partition. Not a method: a fetch may call it for thousands of partitions."""
        self.wait_for_records = log_reader.wait
        self.key_index = KeyIndex(storage, index_files or MemoryFiles(), clock)
        self.key_search = KeySearch(self.key_index, self.read, self.bounds, clock)
        self._is_alone = storage.shared_state is None
        """It holds all scopes."""
        held_groups = HeldScopes(OF_GROUPS, has_all=self._is_alone)
        held_transactions = HeldScopes(OF_TRANSACTIONS, has_all=self._is_alone)
        self.protocol_members = ProtocolMembers()
        self.group_limiters = GroupLimiters(self.group_configs.delivery_limits, clock)
        self.group_configs.when_changed(self.group_limiters.changed)
        self.subscriptions = Subscriptions(
            storage,
            clock,
            self._subscription_rules,
            self.wait_for_records,
            self.traffic,
            held_groups,
            self.protocol_members,
            DeadLetters(storage, clock, self.topics, self.create_topics, self._add_record),
            self.group_limiters,
        )
        ids = TransactionalIds()
        self.groups = Groups(
            storage,
            self.topics,
            settings,
            clock,
            member_metadata,
            self.group_configs,
            held_groups,
            unstable=lambda group, partition: ids.has_pending_offset(offset_key(group, partition)),
            share_groups=self.subscriptions,
            protocol_members=self.protocol_members,
        )
        self.oldest_messages = OldestMessages(storage)
        self.transactions = Transactions(
            storage,
            clock,
            ids,
            held_transactions,
            max_timeout_ms=settings.transaction_max_timeout_ms,
            allow_two_phase=settings.transaction_two_phase_commit_enable,
            apply_offsets=self.groups.offsets.apply_transaction,
            refer=sources.refer_committed,
        )
        self._log_writer = (
            LogWriter(storage, clock, self.transactions, sources, self.traffic)
            if tracer is None
            else TracedLogWriter(storage, clock, self.transactions, sources, self.traffic, tracer)
        )
        self.idempotent_appends = IdempotentAppends(
            KeyLog(storage, settings.topic_defaults(), expiry_ms=settings.producer_expiry_ms),
            self._log_writer,
            clock,
            KeyAllowance(clock, most=settings.idempotency_keys_max, expiry_ms=settings.producer_expiry_ms),
        )
        self._schedules = Schedules(
            lambda scope: Schedule(
                storage, clock, self._fire, defaults=settings.topic_defaults(), scope=scope
            ),
            is_alone=self._is_alone,
        )
        held_namespaces = HeldScopes(OF_NAMESPACES, has_all=self._is_alone)
        self.publishing = Publishing(
            self.topics.by_name,
            clock,
            self._log_writer.append_routed,
            self.create_topics,
            self._schedules,
            self.is_behind,
        )
        self.record_waves = RecordWaves(self._log_writer.append)
        """For protocols whose clients send one record at a time."""
        self.delayed_records = DelayedRecords(self.publishing)
        self.namespaces = Namespaces(
            storage,
            self.topics,
            clock,
            settings.namespaces,
            self.publishing,
            sources,
            self.delete_topics,
            self._readers_of,
            self.traffic,
            held_namespaces,
            read_attributes,
            predeclared_exchanges,
            tracer=tracer,
        )
        self.half_messages = HalfMessages(
            storage,
            clock,
            HalfLog(storage, settings.topic_defaults()),
            self.namespaces,
            self.create_topics,
            is_alone=self._is_alone,
        )
        self.webhooks = Webhooks(
            storage,
            clock,
            SecretKeeper(settings, os.urandom),
            self.topics,
            self.namespaces,
            self.subscriptions,
            self.protocol_members,
            is_alone=self._is_alone,
        )
        self.protocol_members.add(WebhookMembers(self.webhooks))
        self._predeclared = predeclared_exchanges
        self.retention = Retention(storage, self.groups.offsets, self.namespaces.retention, sources)
        self._log_scopes = LogScopes(storage, self.retention, check_seconds=settings.retention_check_seconds)
        self._group_scopes = GroupScopes(
            storage,
            held_groups,
            self.groups,
            self.subscriptions,
            check_seconds=settings.retention_check_seconds,
        )
        self._transaction_scopes = TransactionScopes(
            storage, held_transactions, self.transactions, check_seconds=settings.retention_check_seconds
        )
        self.namespace_scopes = NamespaceScopes(
            storage, held_namespaces, self.namespaces, self.publishing, self._schedules
        )
        self._spread_scopes: Mapping[str, SpreadScopes] = {
            GROUPS[0].kind: self._group_scopes.handover,
            TRANSACTIONS[0].kind: self._transaction_scopes.handover,
            NAMESPACES[0].kind: self.namespace_scopes.handover,
            HOUSEKEEPING[0].kind: self._log_scopes,
        }
        self._coordination = Coordination(self._metrics_file)
        self._definitions = DefinitionFollower(
            self.topics,
            self._topics_followed,
            {
                Space.USERS: self.access.users.follow,
                Space.ACCESS_KEYS: self.access.access_keys.follow,
                Space.ACLS: self.access.acls.follow,
                Space.QUOTAS: self.access.quotas.follow,
                Space.SECRETS: self._follow_secret,
                Space.BROKER_CONFIGS: self.dynamic_settings.follow,
                Space.GROUP_CONFIGS: self.group_configs.follow,
                Space.CLIENT_METRICS: self.metrics_subscriptions.follow,
            },
        )

    async def start(self) -> None:
        """Open the storage, load topics, users and settings. Nothing is stored."""
        await self._storage.open()
        try:
            self._load()
            await self.key_index.load()
        except BaseException:
            await self._close()
            raise
        self.key_index.start()

    def _load(self) -> None:
        self.access.load()
        self._bind_producer_ids()
        self.topics.load()
        self.metrics_subscriptions.load()
        self.group_configs.load()
        self.dynamic_settings.load()
        # Nothing is awaited before this: a change cannot come between what was loaded and what follows.
        self._storage.subscribe_definitions(self._definitions.changed)
        if not self._is_alone:
            self._start_scopes()

    def _start_scopes(self) -> None:
        self._group_scopes.start()
        self._transaction_scopes.start()
        self.namespace_scopes.start()
        self._log_scopes.start()

    async def coordinate(self) -> None:
        """After `start`: take over what one broker does for all. If this fails, the broker is as it was
        before. Raises Unavailable; InvalidConfig if it lacks something."""
        try:
            await self._storage.coordinate()
            await self.access.coordinate()
            self._bind_producer_ids()
            if self._is_alone:
                self._group_scopes.load_all()
                await self._transaction_scopes.load_all()
                await self.namespace_scopes.load_all()
                await self.half_messages.load()
                self.webhooks.load()
            elif self._storage.awaits_scopes:
                await self._storage.assign_scopes(await self._imported_scopes())
            self._coordination.load()
            if self._storage.has_lost_commits:
                await self._storage.forget_lost_commits()
        except BaseException:
            await self._unload_coordination()
            raise
        self.coordinates = True
        if self._is_alone:
            self._start_scopes()
            self.half_messages.start()

    async def _imported_scopes(self) -> Mapping[str, Scope]:
        shared = self._storage.shared_state
        assert shared is not None
        return await imported_scopes(
            shared, self._storage.topics.values(), self._predeclared, self.namespaces.configured
        )

    def step_down(self) -> None:
        """From now on another broker coordinates: clients have to ask that one. `stop_coordinating` has to
        follow."""
        self.coordinates = False

    def uses_coordination(self, until: "asyncio.Future[Any]") -> None:
        """A request that only the coordinator answers takes until this future is done: before that, what it
        uses is not unloaded."""
        self._coordination.use(until)

    async def stop_coordinating(self) -> None:
        """When it returns, nothing that only the coordinator does is done here any more, and all of its
        commits have ended: another broker may take over. Raises Unavailable if one of them failed; the broker
        is not the coordinator then either."""
        self.step_down()
        await self._coordination.unused()
        await self._unload_coordination()

    async def _unload_coordination(self) -> None:
        if self._is_alone:
            await self.namespace_scopes.stop()
        self._coordination.unload()
        await self._storage.stop_coordinating()

    def holds(self, scope: Scope) -> bool:
        """Whether this broker serves what the scope is about."""
        if scope == COORDINATOR:
            return self.coordinates
        return self._spread_scopes[scope.kind].holds(scope)

    async def take_scope(self, scope: Scope) -> None:
        """The database has given a scope that is spread to this broker: load and serve it. Raises
        Unavailable."""
        await self._spread_scopes[scope.kind].take(scope)

    async def release_scope(self, scope: Scope) -> None:
        """Give it up: see `SpreadScopes`. Raises Unavailable."""
        await self._spread_scopes[scope.kind].release(scope)

    def _bind_producer_ids(self) -> None:
        self.transactions.producer_ids.must_bind = self.access.is_required
        if self.access.secret is not None:
            self.transactions.producer_ids.bind(self.access.secret)

    async def stop(self) -> None:
        self.wake_readers()
        try:
            await self.half_messages.stop()
            await self._log_scopes.stop()
            await self._group_scopes.stop()
            await self._transaction_scopes.stop()
            await self.namespace_scopes.stop()
        finally:
            await self._close()

    async def _close(self) -> None:
        self._metrics_file.close()
        self.access.close()
        self._log_writer.close()
        await self.key_index.stop()
        self.key_search.close()
        await self._storage.close()

    def is_behind(self) -> bool:
        """Back-pressure: whether so many bytes wait for storage that more would only add latency."""
        return self._storage.is_behind

    async def storage_condition(self) -> StorageCondition:
        return await self._storage.condition()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    @property
    def scheduled_messages(self) -> int:
        """How many messages are not due yet, or due and not published yet."""
        return self._schedules.waiting

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of batches that were committed and are not durable yet."""
        return self._storage.unwritten_bytes

    @property
    def storage_metrics(self) -> StorageMetrics:
        return self._storage.metrics

    @property
    def segment_objects(self) -> SegmentObjects | None:
        """For clients that read records from an object store by themselves; None if there is none."""
        return self._storage.segment_objects

    @property
    def cluster_id(self) -> str:
        return self._storage.cluster_id

    def append(self, batches: Sequence[Produced], writer: TransactionalWriter | None = None) -> Appending:
        """Append each batch to its partition. See `LogWriter.append`."""
        return self._log_writer.append(batches, writer)

    def _add_record(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        timestamp: int,
        written: Written,
    ) -> None:
        self.record_waves.add(topic, partition, key, value, headers, timestamp, written)

    def must_unpack(self, batches: Sequence[Produced]) -> bool:
        """Whether the batches must be given to `append_unpacked` instead of `append`."""
        return self._log_writer.must_unpack(batches)

    async def append_unpacked(
        self, batches: Sequence[Produced], writer: TransactionalWriter | None
    ) -> list[Appended | PosthouseError]:
        """As `append`, for batches that are slow to decode. The order of calls is kept, too."""
        return await self._log_writer.append_unpacked(batches, writer)

    def wake_readers(self) -> None:
        """Wake all fetches that wait for records, and all members that wait for their group."""
        self._long_poll.wake_all()
        self.groups.close()
        self.subscriptions.stop_leasing()
        self.group_limiters.close()

    def stored_topics(self) -> list[Topic]:
        """All that storage has, the broker's internal ones among them."""
        return list(self._storage.topics.values())

    def watch(self, partitions: Iterable[PartitionId]) -> None:
        """A reader that does not wait will read these partitions again: see `Storage.watch`."""
        self._storage.watch(partitions)

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        """Bring bounds up to date with what other brokers have written, and with `with_producers` the
        producers. Raises UnknownPartition and Unavailable."""
        await self._storage.refresh(partitions, with_producers=with_producers)

    async def refresh_definitions(self) -> None:
        """Bring topics, users and settings up to date with what other brokers have changed. Raises
        Unavailable."""
        await self._storage.refresh_definitions()

    def bounds(self, topic: Topic, partition: int) -> Bounds:
        return self._storage.bounds(self.partition(topic, partition))

    def size(self, topic: Topic, partition: int) -> int:
        return self._storage.size(self.partition(topic, partition))

    def extent(self, partition: PartitionId) -> tuple[int, Bounds]:
        """Size and bounds, for callers that look at all partitions. Raises UnknownPartition."""
        return self._storage.size(partition), self._storage.bounds(partition)

    async def find_timestamp(self, topic: Topic, partition: int, timestamp: int) -> TimestampedOffset | None:
        return await self._storage.find_timestamp(self.partition(topic, partition), timestamp)

    async def find_max_timestamp(self, topic: Topic, partition: int) -> TimestampedOffset | None:
        return await self._storage.find_max_timestamp(self.partition(topic, partition))

    def producers(self, topic: Topic, partition: int) -> dict[int, Producer]:
        """The producer state of the partition, by producer id."""
        return self._storage.producers(self.partition(topic, partition))

    async def delete_records(self, topic: Topic, partition: int, before: int | None) -> int:
        """Delete all records below `before` (None: all records); returns the new log start."""
        partition_id = self.partition(topic, partition)
        await self._storage.refresh([partition_id])
        bounds = self._storage.bounds(partition_id)
        offset = bounds.end if before is None else before
        if not 0 <= offset <= bounds.end:
            raise OffsetOutOfRange(f"offset {offset} is not between 0 and the end of the log at {bounds.end}")
        [outcome] = await self._storage.commit([Trim(partition_id, offset)])
        if outcome.refusal is not None:
            raise outcome.refusal
        return outcome.log_start

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | PosthouseError]:
        created = await self.topics.create(wanted, validate_only=validate_only)
        self.groups.topics_changed()
        return created

    async def delete_topics(self, topics: Sequence[Topic]) -> None:
        self.recent_deletions.add(topic.name for topic in topics)
        await self.topics.delete(topics)
        self.traffic.forget(topic.name for topic in topics)
        await self._group_scopes.forget_topics([topic.id for topic in topics])
        self._wake_readers_of(topics)

    def wake_readers_of(self, partition: PartitionId) -> None:
        """Those that wait for records there look again."""
        self._long_poll.wake(partition)

    def _wake_readers_of(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            for partition in topic.partition_ids():
                self._long_poll.wake(partition)

    async def create_partitions(self, name: str, partitions: int, *, validate_only: bool = False) -> Topic:
        topic = await self.topics.grow(name, partitions, validate_only=validate_only)
        self.groups.topics_changed()
        return topic

    async def configure_topic(
        self, name: str, change: Callable[[Topic], Mapping[str, str]], *, validate_only: bool = False
    ) -> Topic:
        """`change` gets the current topic and returns all of its new overrides."""
        return await self.topics.configure(name, change, validate_only=validate_only)

    def topic(self, name: str) -> Topic:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        return self.topics.get_by_id(topic_id)

    async def find_topic(self, name: str) -> Topic:
        """As `topic`. An unknown one may have been created by another broker: storage is asked first. Raises
        UnknownTopic, or Unavailable if storage cannot be asked."""
        topic = self.topics.find(name)
        if topic is None:
            await self._storage.refresh_definitions()
            topic = self.topics.get(name)
        return topic

    async def find_topic_by_id(self, topic_id: TopicId) -> Topic:
        """The same by id."""
        topic = self.topics.find_by_id(topic_id)
        if topic is None:
            await self._storage.refresh_definitions()
            topic = self.topics.get_by_id(topic_id)
        return topic

    def _topics_followed(self, deleted: Sequence[Topic]) -> None:
        """Topics have changed, and these were deleted: by another broker, or by this one when storage failed
        without an answer."""
        names = [topic.name for topic in deleted]
        self.recent_deletions.add(names)
        self.traffic.forget(names)
        self.groups.topics_changed()
        self._wake_readers_of(deleted)
        if deleted:
            self._group_scopes.forget_topics_soon([topic.id for topic in deleted])

    def _follow_secret(self, state: Mapping[bytes, bytes]) -> None:
        self.access.follow_secret(state)
        self._bind_producer_ids()

    async def _fire(self, entries: Sequence[Scheduled], puts: Sequence[Put]) -> None:
        """Delayed messages are due."""
        await self.namespaces.fire(entries, puts)

    async def _readers_of(self, topics: Sequence[Topic]) -> Callable[[PartitionId], bool]:
        """Whether groups read these topics."""
        return await self._group_scopes.readers_of(topics)

    def _subscription_rules(self, group: GroupId) -> SubscriptionRules:
        return self.webhooks.rules(group) or self.group_configs.subscription_rules(group)

    def partition(self, topic: Topic, partition: int) -> PartitionId:
        """Raises UnknownPartition if the topic has no partition with this number."""
        return topic.existing_partition(partition)
