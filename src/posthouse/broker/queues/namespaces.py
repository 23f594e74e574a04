"""All namespaces: loading, deletion of unused queues, delayed messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial

from posthouse.broker.progress.progress import ProgressWriter, lane_of
from posthouse.broker.queues.attributes import ReadAttributes, no_attributes
from posthouse.broker.queues.background import Background
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.definition import decode_definition
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.internal_topics import queue_of
from posthouse.broker.queues.log_queue import RETRY_SECONDS, LogQueue
from posthouse.broker.queues.moving import Mover
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.pending_referrals import PendingReferrals
from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.retention import QueueRetention, ReadersOf
from posthouse.broker.queues.sources import Sources
from posthouse.broker.queues.stream_window import StreamMemory
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.routing.definitions import ExchangeDefinition
from posthouse.broker.routing.encoding import decode_binding, decode_exchange, namespace_of
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.topics import Topics
from posthouse.broker.tracing import Tracer
from posthouse.broker.traffic import Traffic
from posthouse.model.clock import Clock
from posthouse.model.errors import BadRequest, NotFound, PosthouseError, Unavailable, UnknownNamespace
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

DEFAULT_NAMESPACE = "/"
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
        self.read_attributes = read_attributes
        self._delete_topics = delete_topics
        self._publishing = publishing
        self._expiring: set[LogQueue] = set()
        self._doomed: list[TopicId] = []
        """Logs of deleted queues."""
        self._forsaken_sources: set[str] = set()
        """Names of topics that feed nothing any more, and are still stored as sources."""
        self._removing: asyncio.Task[None] | None = None
        self._retry_seconds = RETRY_SECONDS
        self._is_closing = False
        self._topics = topics
        self._predeclared = predeclared
        self._names = list(dict.fromkeys((DEFAULT_NAMESPACE, *names)))
        self._by_name: dict[str, Namespace] = {}
        self._add_namespaces(self._names)
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
        namespace = self._by_name.get(name)
        if namespace is None:
            raise UnknownNamespace(f"there is no namespace {name!r}")
        return namespace

    def mover(self, namespace: Namespace) -> Mover:
        """Moves messages between queues of the namespace."""
        return Mover(namespace, self.clock, self.resources.transaction)

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._by_name.values())

    def _add_namespaces(self, names: Iterable[str]) -> None:
        for name in names:
            self._by_name[name] = namespace = Namespace(name, self)
            self._predeclare(namespace)

    def _predeclare(self, namespace: Namespace) -> None:
        """Before anything is loaded: a stored binding whose exchange is missing counts as a leftover."""
        there = {exchange.name for exchange in namespace.router.exchanges()}
        for definition in self._predeclared:
            if definition.name not in there:
                namespace.add_exchange(definition)

    # Loading

    async def load(self) -> None:
        """Load the durable exchanges, queues and bindings."""
        for key, value in self.storage.take_state(Space.EXCHANGES).items():
            self._of(key).add_exchange(decode_exchange(value))
        logs = {queue_id: topic for topic in self.storage.topics.values() if (queue_id := queue_of(topic))}
        queues: dict[bytes, LogQueue] = {}
        leftovers: list[Operation] = []
        for key, value in self.storage.take_state(Space.QUEUES).items():
            queue_id = value[:16]
            if queue_id in logs:
                queues[queue_id] = self._restored(self._of(key), queue_id, value[16:], logs.pop(queue_id))
            else:  # the broker failed while it was declared
                leftovers.append(Put(Space.QUEUES, key, None))
        for key, value in self.storage.take_state(Space.QUEUE_PROGRESS).items():
            queue_id, lane = lane_of(key)
            queue = queues.get(queue_id)
            if queue is None or lane >= len(queue.lanes):
                leftovers.append(Put(Space.QUEUE_PROGRESS, key, None))
            else:
                queue.lanes[lane].progress.load(key, value)
        for queue in queues.values():
            queue.loaded()
            self.background.start(queue.recover(), queue)
        for key, value in self.storage.take_state(Space.BINDINGS).items():
            try:
                self._of(key).router.bind(decode_binding(value))
            except NotFound:  # one of its ends did not outlive the stop
                leftovers.append(Put(Space.BINDINGS, key, None))
        if leftovers:
            await self.storage.commit(leftovers)
        if logs:
            await self.storage.delete_topics([topic.id for topic in logs.values()])
        await self._announce_all_sources()
        self.sources.is_loaded = True
        await self.referrals.load()
        if self.storage.has_lost_commits:
            leasing = [queue for queue in queues.values() if not queue.definition.is_stream]
            _warn_of_lost_commits([queue for queue in leasing if queue.message_count])

    async def _announce_all_sources(self) -> None:
        """Sources of transient exchanges and queues are gone, and an imported storage has none stored."""
        stored = {key.decode() for key in self.storage.take_state(Space.SOURCES)}
        wanted = set(self.sources.by_topic) if self.storage.is_shared else set()
        if forsaken := stored - wanted:
            await self.storage.commit([_source_removal(name) for name in forsaken])
        if unknown := wanted - stored:
            await self._topics.coordinate(await self.storage.announce_sources(unknown))

    def _of(self, key: bytes) -> Namespace:
        """A namespace that is no longer configured keeps its definitions."""
        name = namespace_of(key)
        if name not in self._by_name:
            self._add_namespaces([name])
        return self._by_name[name]

    def _restored(self, namespace: Namespace, queue_id: bytes, value: bytes, log: Topic) -> LogQueue:
        return namespace.add_queue(queue_id, decode_definition(value), log)

    # What queues ask for

    def find_topic(self, backing: BackingTopic) -> Topic | None:
        return self._publishing.topic(backing)

    async def coordinate(self, topic: str) -> None:
        if not self.storage.is_shared:
            return
        self._forsaken_sources.discard(topic)
        if uncoordinated := await self.storage.announce_sources([topic]):
            await self._topics.coordinate(uncoordinated)

    def source_removed(self, topic: str) -> None:
        if self.storage.is_shared:
            self._forsaken_sources.add(topic)
            self._plan_removal()

    def watch(self, queue: LogQueue) -> None:
        if queue.definition.expires_ms is not None:
            self._expiring.add(queue)

    def forget(self, queue: LogQueue) -> None:
        self._expiring.discard(queue)

    def remove_log(self, log: Topic) -> None:
        self._doomed.append(log.id)
        self._plan_removal()

    def _plan_removal(self) -> None:
        has_leftovers = bool(self._doomed or self._forsaken_sources)
        if self._removing is None and has_leftovers and not self._is_closing:
            self._removing = self.background.start(self._remove_leftovers(), "logs of deleted queues")
            self._removing.add_done_callback(self._removed)

    async def _remove_leftovers(self) -> None:
        while self._forsaken_sources:
            # Nothing is awaited before the commit: a name that is declared again is stored after it.
            names = [name for name in self._forsaken_sources if not self.sources.has(name)]
            self._forsaken_sources.clear()
            try:
                await self.storage.commit([_source_removal(name) for name in names])
            except BaseException:
                self._forsaken_sources.update(names)
                raise
        while self._doomed:
            doomed, self._doomed = self._doomed, []
            try:
                await self.storage.delete_topics(doomed)
            except BaseException:
                self._doomed += doomed  # some time later, or at the next start
                raise

    def _removed(self, task: asyncio.Task[None]) -> None:
        self._removing = None
        if task.cancelled() or task.exception() is not None:
            asyncio.get_running_loop().call_later(self._retry_seconds, self._plan_removal)
        else:
            self._plan_removal()  # another may have come when the task had just looked

    # Delayed messages

    async def fire(self, entries: Sequence[Scheduled], puts: Sequence[Put]) -> None:
        """Publish delayed messages that are due."""
        wave = self.resources.transaction()
        for entry in entries:
            envelope = Envelope(
                headers=entry.headers,
                attributes=entry.attributes,
                expires_in_ms=entry.expires_in_ms,
                priority=entry.priority,
                more_keys=entry.more_keys,
                persistent=entry.persistent,
            )
            try:
                namespace = self.get(entry.namespace)
                namespace.publish(
                    namespace.router.exchange(entry.exchange),
                    entry.key,
                    entry.value,
                    envelope,
                    wave,
                    waits=False,
                )
            except (NotFound, BadRequest) as error:
                # It would be refused each time, and everything behind it would wait.
                _warn_of_delayed(entry, error)
        for put in puts:
            wave.put(put)
        await wave.commit()

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

    async def close(self) -> None:
        """Deliver no more messages, and store what was settled."""
        self._is_closing = True
        for namespace in self._by_name.values():
            for queue in namespace.queues.values():
                queue.stop()
        await self.background.drained()
        try:
            await self.progress_writer.leave([lane for queue in self._queues() for lane in queue.lanes])
        except Unavailable as error:
            log.warning("queues: messages that were settled last may be redelivered: %s", error)

    async def undisturbed(self) -> None:
        """Return when the declarations and deletions that are under way have ended."""
        for namespace in list(self._by_name.values()):
            async with namespace.undisturbed:
                continue

    def unload(self) -> None:
        """After `close`: forget everything. To what still uses one of the queues, it is deleted."""
        for queue in self._queues():
            queue.close()
        self.sources.unload()
        self.retention.unload()
        self._expiring.clear()
        self._doomed.clear()
        self._forsaken_sources.clear()
        self._by_name.clear()
        self._add_namespaces(self._names)
        self._is_closing = False


def _source_removal(topic: str) -> Put:
    return Put(Space.SOURCES, topic.encode(), None)


def _warn_of_delayed(entry: Scheduled, error: PosthouseError) -> None:
    log.warning(
        'exchange "%s" (vhost "%s"): a delayed message is refused: %s', entry.exchange, entry.namespace, error
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
