"""The namespaces that this broker serves: loading, deletion of unused queues, delayed messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.progress.progress import ProgressWriter, lane_of
from posthouse.broker.queues.attributes import ReadAttributes, no_attributes
from posthouse.broker.queues.background import Background
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.definition import decode_definition
from posthouse.broker.queues.due_elsewhere import due_entry, due_put, namespace_due
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.internal_topics import queue_of
from posthouse.broker.queues.log_queue import RETRY_SECONDS, LogQueue
from posthouse.broker.queues.moving import Mover
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.pending_referrals import PendingReferrals
from posthouse.broker.queues.publishing import Publishing, Wave
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.retention import QueueRetention, ReadersOf
from posthouse.broker.queues.routed_records import RoutedRecords
from posthouse.broker.queues.sources import Sources
from posthouse.broker.queues.stored_namespaces import StoredNamespaces, scope_of_source, stored_namespaces
from posthouse.broker.queues.stream_window import StreamMemory
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.routing.definitions import ExchangeDefinition
from posthouse.broker.routing.encoding import decode_binding, decode_exchange, namespace_of
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.topics import Topics
from posthouse.broker.tracing import Tracer
from posthouse.broker.traffic import Traffic
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    BadRequest,
    CorruptBatch,
    NotFound,
    PosthouseError,
    Unavailable,
    UnknownNamespace,
)
from posthouse.model.ids import TopicId
from posthouse.model.scopes import DEFAULT_NAMESPACE, Scope, scope_of_namespace
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

_NAMED = 50


class Namespaces:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        topics: Topics,
        clock: Clock,
        names: Iterable[str],
        publishing: Publishing,
        sources: Sources,
        delete_topics: Callable[[Sequence[Topic]], Awaitable[None]],
        readers_of: ReadersOf,
        traffic: Traffic,
        held: HeldScopes,
        read_attributes: ReadAttributes = no_attributes,
        predeclared: Sequence[ExchangeDefinition] = (),
        *,
        tracer: Tracer | None = None,
    ) -> None:
        """Every namespace has the `predeclared` exchanges."""
        self.storage = storage
        self.clock = clock
        self.progress_writer = ProgressWriter(storage)
        self.background = Background()
        self.resources = QueueResources(
            storage=storage,
            clock=clock,
            progress_writer=self.progress_writer,
            background=self.background,
            stream_memory=StreamMemory(),
            traffic=traffic,
            transaction=partial(TransactionWave, publishing),
            tracer=tracer,
        )
        self.sources = sources
        self.held = held
        """Scopes that this broker serves: all of them, if it is alone."""
        self.read_attributes = read_attributes
        self._delete_topics = delete_topics
        self._publishing = publishing
        self._expiring: set[LogQueue] = set()
        self._doomed: dict[TopicId, Scope | None] = {}
        """Logs of deleted queues."""
        self._forsaken_sources: dict[str, Scope] = {}
        """Names of topics that feed nothing any more, and are still stored as sources."""
        self._removing: asyncio.Task[None] | None = None
        self._retry_seconds = RETRY_SECONDS
        self._is_closing = False
        self._topics = topics
        self._predeclared = predeclared
        self.configured = tuple(dict.fromkeys((DEFAULT_NAMESPACE, *names)))
        """The names in the settings, the same in all brokers of a cluster."""
        self._by_name: dict[str, Namespace] = {}
        self._loading: dict[str, Namespace] = {}
        self.referrals = PendingReferrals(storage, sources, self.background, clock.now_ms)
        self.retention = QueueRetention(
            storage,
            topics,
            clock,
            self.progress_writer,
            sources,
            self._queues,
            self._delete_forsaken,
            readers_of,
            self.referrals.refer,
        )

    def get(self, name: str) -> Namespace:
        """Raises UnknownNamespace, or NotCoordinator if another broker serves it."""
        namespace = self._by_name.get(name)
        if namespace is None:
            self.held.check(name)
            raise UnknownNamespace(f"there is no namespace {name!r}")
        return namespace

    def mover(self, namespace: Namespace) -> Mover:
        """Moves messages between queues of the namespace."""
        return Mover(namespace, self.clock, self.resources.transaction)

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._by_name.values())

    def of_scope(self, scope: Scope) -> list[Namespace]:
        return [each for each in (*self._by_name.values(), *self._loading.values()) if each.scope == scope]

    def _new(self, name: str) -> Namespace:
        namespace = Namespace(name, self)
        self._predeclare(namespace)
        return namespace

    def _predeclare(self, namespace: Namespace) -> None:
        """Before anything is loaded: a stored binding whose exchange is missing counts as a leftover."""
        there = {exchange.name for exchange in namespace.router.exchanges()}
        for definition in self._predeclared:
            if definition.name not in there:
                namespace.add_exchange(definition)

    # Loading

    async def load_all(self) -> None:
        """In a broker that is alone."""
        spaces = (
            Space.EXCHANGES,
            Space.BINDINGS,
            Space.QUEUES,
            Space.QUEUE_PROGRESS,
            Space.DELIVERY_LIMITS,
        )
        stored = StoredNamespaces({space: self.storage.take_state(space) for space in spaces})
        await self._load(stored, self.configured, self._queue_logs())
        self._serve(self._loading)
        await self.referrals.load()
        await self._fire_due(self.storage.take_state(Space.DUE))
        if self.storage.has_lost_commits:
            leasing = [queue for queue in self._queues() if not queue.definition.is_stream]
            _warn_of_lost_commits([queue for queue in leasing if queue.message_count])

    def _queue_logs(self) -> dict[bytes, Topic]:
        return {queue_id: each for each in self.storage.topics.values() if (queue_id := queue_of(each))}

    async def load(self, scope: Scope, shared: SharedState) -> None:
        """What the database has of one scope, which storage has taken: durable exchanges, queues, bindings.
        `serve` or `unload` has to follow. Raises Unavailable."""
        names = [name for name in self.configured if scope_of_namespace(name) == scope]
        logs = {id: log for id, log in self._queue_logs().items() if log.scope == scope}
        stored = await stored_namespaces(shared, scope)
        await self._load(stored, names, logs)
        await self._claim_sources(scope, shared)

    async def _load(self, stored: StoredNamespaces, names: Iterable[str], logs: dict[bytes, Topic]) -> None:
        for name in names:
            self._to_load(name)
        for key, value in stored[Space.EXCHANGES].items():
            self._of(key).add_exchange(decode_exchange(value))
        for key, value in stored[Space.DELIVERY_LIMITS].items():
            self._of(key).limits.load(key, value)
        queues: dict[bytes, LogQueue] = {}
        leftovers: list[Operation] = []
        for key, value in stored[Space.QUEUES].items():
            queue_id = value[:16]
            if queue_id in logs:
                log = logs.pop(queue_id)
                queues[queue_id] = self._of(key).add_queue(queue_id, decode_definition(value[16:]), log)
            else:  # the broker failed while it was declared
                leftovers.append(Put(Space.QUEUES, key, None))
        for key, value in stored[Space.QUEUE_PROGRESS].items():
            queue_id, lane = lane_of(key)
            queue = queues.get(queue_id)
            if queue is None or lane >= len(queue.lanes):
                leftovers.append(Put(Space.QUEUE_PROGRESS, key, None))
            else:
                queue.lanes[lane].progress.load(key, value)
        for queue in queues.values():
            queue.loaded()
        for key, value in stored[Space.BINDINGS].items():
            try:
                self._of(key).router.bind(decode_binding(value))
            except NotFound:  # one of its ends did not outlive the stop
                leftovers.append(Put(Space.BINDINGS, key, None))
        if leftovers:
            await self.storage.commit(leftovers)
        if logs:
            await self.storage.delete_topics([topic.id for topic in logs.values()])

    async def _claim_sources(self, scope: Scope, shared: SharedState) -> None:
        """Sources of transient exchanges and queues are gone."""
        stored = {
            key.decode()
            for key, value in (await shared.of_space(Space.SOURCES)).items()
            if scope_of_source(value) == scope
        }
        wanted = {topic for namespace in self.of_scope(scope) for topic in namespace.sources}
        if forsaken := stored - wanted:
            await self.storage.commit([_source_removal(name) for name in forsaken])
        if unknown := wanted - stored:
            await self._topics.claim(unknown, scope)

    def serve(self, scope: Scope) -> None:
        """After `load`, in the turn of the event loop in which storage serves the scope."""
        loaded = {each.name: each for each in self._loading.values() if each.scope == scope}
        self.sources.serve(scope)
        self._serve(loaded)
        self.retention.queues_changed()
        self.referrals.look_soon()

    def _serve(self, loaded: Mapping[str, Namespace]) -> None:
        self._by_name |= loaded
        for namespace in loaded.values():
            namespace.sources.serve()
            for queue in namespace.queues.values():
                namespace.background.start(queue.recover(), queue)
        self._loading = {name: each for name, each in self._loading.items() if name not in loaded}

    def _to_load(self, name: str) -> Namespace:
        if name not in self._loading:
            self._loading[name] = self._new(name)
        return self._loading[name]

    def _of(self, key: bytes) -> Namespace:
        """A namespace that is no longer configured keeps its definitions."""
        return self._to_load(namespace_of(key))

    # What queues ask for

    def find_topic(self, backing: BackingTopic) -> Topic | None:
        return self._publishing.topic(backing)

    async def claim(self, topic: str, scope: Scope) -> None:
        if self.storage.is_shared:
            self._forsaken_sources.pop(topic, None)
            await self._topics.claim([topic], scope)

    def source_removed(self, topic: str, scope: Scope) -> None:
        if self.storage.is_shared:
            self._forsaken_sources[topic] = scope
            self._plan_removal()

    def watch(self, queue: LogQueue) -> None:
        if queue.definition.expires_ms is not None:
            self._expiring.add(queue)

    def forget(self, queue: LogQueue) -> None:
        self._expiring.discard(queue)

    def remove_log(self, log: Topic) -> None:
        self._doomed[log.id] = log.scope
        self._plan_removal()

    def _plan_removal(self) -> None:
        has_leftovers = bool(self._doomed or self._forsaken_sources)
        if self._removing is None and has_leftovers and not self._is_closing:
            self._removing = self.background.start(self._remove_leftovers(), "logs of deleted queues")
            self._removing.add_done_callback(self._removed)

    async def _remove_leftovers(self) -> None:
        while self._forsaken_sources:
            # Nothing is awaited before the commit: a name that is declared again is stored after it.
            forsaken, self._forsaken_sources = self._forsaken_sources, {}
            names = [name for name in forsaken if not self.sources.has(name)]
            try:
                await self.storage.commit([_source_removal(name) for name in names])
            except BaseException:
                self._forsaken_sources = forsaken | self._forsaken_sources
                raise
        while self._doomed:
            doomed, self._doomed = self._doomed, {}
            try:
                await self.storage.delete_topics(list(doomed))
            except BaseException:
                self._doomed |= doomed  # some time later, or at the next start
                raise

    def _removed(self, task: asyncio.Task[None]) -> None:
        self._removing = None
        if task.cancelled() or task.exception() is not None:
            asyncio.get_running_loop().call_later(self._retry_seconds, self._plan_removal)
        else:
            self._plan_removal()  # another may have come when the task had just looked

    # Messages that the broker writes

    def routed_records(self) -> RoutedRecords:
        """For one wave."""
        return RoutedRecords(self._topics, self.sources)

    def publish_stored(
        self,
        stored: Scheduled,
        records: RoutedRecords,
        wave: Wave,
        *,
        delay_ms: int = 0,
        headers_when_due: bytes | None = None,
        partial: bool = True,
    ) -> bool:
        """Publish a message that was stored before, as if it came now. `records` are those of the wave. See
        `Namespace.publish`, and `RoutedRecords.add` for what is for a partition."""
        if stored.partition is not None:
            key = stored.key if stored.has_key else None
            records.add(stored.exchange, stored.partition, key, stored.value, stored.headers, wave)
            return True
        namespace = self.get(stored.namespace)
        envelope = Envelope(
            headers=stored.headers,
            attributes=stored.attributes,
            expires_in_ms=stored.expires_in_ms,
            priority=stored.priority,
            delay_ms=delay_ms,
            headers_when_due=headers_when_due,
            more_keys=stored.more_keys,
            persistent=stored.persistent,
        )
        exchange = namespace.router.exchange(stored.exchange)
        return namespace.publish(
            exchange, stored.key, stored.value, envelope, wave, waits=False, partial=partial
        )

    async def fire(self, entries: Sequence[Scheduled], puts: Sequence[Put]) -> None:
        """Publish delayed messages that are due."""
        wave = self.resources.transaction()
        records = self.routed_records()
        for entry in entries:
            try:
                if entry.namespace not in self._by_name and not self.held.serves(entry.namespace):
                    wave.put(due_put(entry))
                    continue
                self.publish_stored(entry, records, wave)
            except (NotFound, BadRequest, CorruptBatch) as error:
                # It would be refused each time, and everything behind it would wait.
                _warn_of_delayed(entry, error)
        for put in puts:
            wave.put(put)
        await wave.commit()

    async def fire_handed_over(self) -> None:
        """Publish what is due in the namespaces here, and was in the schedule of another broker."""
        shared = self.storage.shared_state
        if shared is not None and self._by_name:
            await self._fire_due(await shared.of_space(Space.DUE))

    async def _fire_due(self, due: Mapping[bytes, bytes]) -> None:
        for key, value in sorted(due.items()):
            if namespace_due(key) in self._by_name:
                await self.fire([due_entry(key, value)], [Put(Space.DUE, key, None)])

    # Looking after them

    def _queues(self) -> Iterator[LogQueue]:
        return (queue for namespace in self._by_name.values() for queue in namespace.queues.values())

    async def _delete_forsaken(self, topics: Sequence[Topic]) -> None:
        """Delete topics of deleted queues, unless a queue was declared again meanwhile."""
        async with AsyncExitStack() as locks:
            for namespace in list(self._by_name.values()):
                await locks.enter_async_context(namespace.undisturbed)
            forsaken = [topic for topic in topics if topic.name not in self.sources.by_topic]
            if forsaken:
                await self._delete_topics(forsaken)

    async def expire_unused(self) -> None:
        """Delete queues that were not used for their `x-expires`."""
        now = self.clock.monotonic()
        for queue in list(self._expiring):
            expires_ms = queue.definition.expires_ms
            if (
                expires_ms is not None
                and not queue.consumer_count
                and now - queue.used_at >= expires_ms / 1000
            ):
                self._by_name[queue.namespace].delete_unused(queue)

    async def undisturbed(self, scope: Scope) -> None:
        """Return when the declarations and deletions that are under way have ended."""
        for namespace in self.of_scope(scope):
            async with namespace.undisturbed:
                continue

    async def close_all(self) -> None:
        """Deliver no more messages, and store what was settled."""
        self._is_closing = True
        await self._close(list(self._by_name.values()))
        await self.background.drained()

    async def close(self, scope: Scope) -> None:
        """The same in one scope."""
        await self._close(self.of_scope(scope))
        if self._removing is not None:
            await asyncio.wait([self._removing])
        await self.retention.paused()

    async def _close(self, namespaces: Sequence[Namespace]) -> None:
        queues = [queue for namespace in namespaces for queue in namespace.queues.values()]
        for queue in queues:
            queue.stop()
        for namespace in namespaces:
            await namespace.background.drained()
        try:
            await self.progress_writer.leave([lane for queue in queues for lane in queue.lanes])
        except Unavailable as error:
            log.warning("queues: messages that were settled last may be redelivered: %s", error)

    def unload(self, scope: Scope) -> None:
        """After `close`, or a `load` that failed: forget everything. To what still uses one of the queues, it
        is deleted."""
        self.sources.leave(scope)
        self.retention.queues_changed()
        for namespace in self.of_scope(scope):
            for queue in namespace.queues.values():
                self._expiring.discard(queue)
                queue.close()
            namespace.sources.close()
            self._by_name.pop(namespace.name, None)
            self._loading.pop(namespace.name, None)
        self._doomed = {log: its for log, its in self._doomed.items() if its != scope}
        self._forsaken_sources = {name: its for name, its in self._forsaken_sources.items() if its != scope}


def _source_removal(topic: str) -> Put:
    return Put(Space.SOURCES, topic.encode(), None)


def _warn_of_delayed(entry: Scheduled, error: PosthouseError) -> None:
    if entry.partition is None:
        log.warning(
            'exchange "%s" (vhost "%s"): a delayed message is refused: %s',
            entry.exchange,
            entry.namespace,
            error,
        )
    else:
        log.warning(
            "topic %s, partition %d: a delayed record is refused: %s", entry.exchange, entry.partition, error
        )


def _warn_of_lost_commits(queues: Sequence[LogQueue]) -> None:
    if queues:
        named = [f"{queue}, references in {queue.log.name}" for queue in queues[:_NAMED]]
        more = f" and {len(queues) - _NAMED} others" if len(queues) > _NAMED else ""
        log.warning(
            "acknowledgements may be lost with frames of the journal: messages may come again in %s%s",
            ", ".join(named),
            more,
        )
