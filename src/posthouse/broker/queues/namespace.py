"""One namespace, a virtual host in AMQP: exchanges, bindings, queues, and publishing to them."""

import asyncio
import os
from dataclasses import replace
from typing import Protocol

from posthouse.broker.queues.admission import Admission
from posthouse.broker.queues.attributes import Attributes, ReadAttributes, plain_attributes
from posthouse.broker.queues.background import Background
from posthouse.broker.queues.backing_topics import EXCHANGE_TOPIC, BackingTopic, queue_topic_config
from posthouse.broker.queues.definition import OverflowPolicy, QueueDefinition
from posthouse.broker.queues.effects import Effects
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.equivalence import check_same_exchange, check_same_queue
from posthouse.broker.queues.internal_topics import queue_topic
from posthouse.broker.queues.log_queue import DeclaredQueue, LogQueue
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.names import topic_name
from posthouse.broker.queues.publishing import Wave
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.record_headers import exchange_in
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.sources import Source, Sources
from posthouse.broker.queues.stored_definitions import StoredDefinitions
from posthouse.broker.queues.stored_limits import StoredLimits
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Router
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.errors import (
    InUse,
    NotEmpty,
    QueueFull,
    QueueLocked,
    RecordTooLarge,
    UnknownQueue,
)
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.model.topics import Topic

_RECORD_OVERHEAD = 128
"""More than a batch of one record takes besides key, value and headers."""


class NamespaceHost(Protocol):
    """What a namespace asks of the object that holds all namespaces."""

    @property
    def resources(self) -> QueueResources: ...

    @property
    def read_attributes(self) -> ReadAttributes: ...

    @property
    def sources(self) -> Sources: ...

    def find_topic(self, backing: BackingTopic) -> Topic | None:
        """The topic, if it exists."""

    async def claim(self, topic: str, scope: Scope) -> None:
        """Before the topic feeds an exchange or queue: other brokers must not write to it any more, nor to
        one of this name that is created later. Durable on return."""

    def source_removed(self, topic: str, scope: Scope) -> None:
        """The topic feeds nothing any more."""

    def watch(self, queue: LogQueue) -> None:
        """Delete the queue when it was not used for its `x-expires`."""

    def forget(self, queue: LogQueue) -> None: ...

    def remove_log(self, log: Topic) -> None:
        """Delete the log of a deleted queue, in the background."""


class Namespace:
    """Owned by the event loop. Definitions change one at a time, and are durable before they take effect."""

    def __init__(self, name: str, host: NamespaceHost) -> None:
        self.name = name
        self.scope = scope_of_namespace(name)
        self._host = host
        self._resources = replace(host.resources, background=Background())
        """Its own background: it ends when the namespace moves to another broker."""
        self._stored = StoredDefinitions(name, host.resources.storage, host.remove_log)
        self._clock = host.resources.clock
        self.sources = host.sources.of_namespace()
        self.router: Router[LogQueue] = Router()
        self.queues: dict[str, LogQueue] = {}
        self._admission = Admission()
        self._changing = asyncio.Lock()
        self.limits = StoredLimits(name, host.resources.storage, self.queues, self._changing)
        self.effects = Effects(self.background, self.router.leading_to)

    @property
    def background(self) -> Background:
        return self._resources.background

    @property
    def undisturbed(self) -> asyncio.Lock:
        """While this is held, nothing is declared or deleted."""
        return self._changing

    # Exchanges

    async def declare_exchange(self, definition: ExchangeDefinition) -> Exchange:
        """Raises DefinitionMismatch where there is a different one of this name."""
        async with self._changing:
            known = self.router.by_name.get(definition.name)
            if known is not None:
                check_same_exchange(known.definition, definition)
                return known
            with self._host.sources.declaring(topic := self.topic_of(definition.name)):
                await self._host.claim(topic, self.scope)
                if definition.durable:
                    await self._stored.add_exchange(definition)
                return self.add_exchange(definition)

    def add_exchange(self, definition: ExchangeDefinition) -> Exchange:
        """The definition is durable, or need not be."""
        exchange = self.router.declare(definition)
        backing = BackingTopic(topic_name(self.name, definition.name), EXCHANGE_TOPIC)
        exchange.data = backing
        self.sources.set(backing.name, self._source(exchange))
        return exchange

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """A no-op if the exchange does not exist. Raises InUse."""
        async with self._changing:
            exchange = self.router.by_name.get(name)
            if exchange is None:
                return
            if if_unused and exchange.is_used:
                raise InUse(f"exchange {name!r} has bindings")
            await self._delete_exchange(exchange)

    async def _delete_exchange(self, exchange: Exchange) -> None:
        bindings = [
            *self.router.bindings(source=exchange.name),
            *self.router.bindings(destination=exchange.name, to_exchange=True),
        ]
        await self._stored.remove_exchange(exchange.name, bindings)
        self.router.delete(exchange.name)
        assert isinstance(exchange.data, BackingTopic)
        self.sources.remove(exchange.data.name)
        self._restore_source(exchange.name, exchange.data.name)
        await self._delete_unbound({binding.source for binding in bindings} - {exchange.name})

    async def _delete_unbound(self, names: set[str]) -> None:
        """Delete those of the exchanges that are auto-delete and have no bindings left."""
        for name in names:
            exchange = self.router.by_name.get(name)
            if exchange is not None and exchange.definition.auto_delete and not exchange.is_used:
                await self._delete_exchange(exchange)

    # Bindings

    async def bind(self, binding: Binding) -> None:
        """Raises UnknownExchange or UnknownQueue."""
        async with self._changing:
            if not self.router.bind(binding) or not self._is_durable(binding):
                return
            try:
                await self._stored.add_binding(binding)
            except BaseException:
                self.router.unbind(binding)
                raise

    async def unbind(self, binding: Binding) -> None:
        """A no-op if the binding does not exist."""
        async with self._changing:
            if binding not in self.router.bindings(source=binding.source):
                return
            await self._stored.remove_binding(binding)
            self.router.unbind(binding)
            await self._delete_unbound({binding.source})

    def _is_durable(self, binding: Binding) -> bool:
        if not self.router.exchange(binding.source).definition.durable:
            return False
        if binding.to_exchange:
            return self.router.exchange(binding.destination).definition.durable
        return not self.queues[binding.destination].definition.is_transient

    # Queues

    def queue(self, name: str, session: object) -> LogQueue:
        """Raises UnknownQueue, and QueueLocked where it belongs to another session."""
        queue = self.queue_of_any_session(name)
        if queue.definition.exclusive and queue.session is not session:
            raise QueueLocked(f"queue {name!r} is exclusive to another connection")
        queue.touch()
        return queue

    def queue_of_any_session(self, name: str) -> LogQueue:
        """For operators: does not count as use of the queue. Raises UnknownQueue."""
        queue = self.queues.get(name)
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}")
        return queue

    def topic_of(self, name: str) -> str:
        """The topic of the exchange or queue of this name. Permissions are permissions on it."""
        return topic_name(self.name, name)

    async def declare_queue(self, definition: QueueDefinition, session: object) -> LogQueue:
        """Raises DefinitionMismatch where there is a different one of this name, or QueueLocked."""
        async with self._changing:
            if definition.name in self.queues:
                known = self.queue(definition.name, session)
                check_same_queue(known.definition, definition)
                return known
            queue_id = os.urandom(16)
            owner = self.scope if self._resources.storage.is_shared else None
            log = queue_topic(queue_id, definition.max_priority + 1, owner)
            with self._host.sources.declaring(topic := self.topic_of(definition.name)):
                await self._host.claim(topic, self.scope)
                await self._stored.add_queue(queue_id, definition, log)
                return self.add_queue(queue_id, definition, log, session)

    def add_queue(
        self, queue_id: bytes, definition: QueueDefinition, log: Topic, session: object | None = None
    ) -> LogQueue:
        """The definition is durable, or need not be."""
        backing = BackingTopic(
            topic_name(self.name, definition.name), queue_topic_config(definition.segment_bytes)
        )
        declared = DeclaredQueue(
            id=queue_id, namespace=self.name, definition=definition, log=log, backing=backing, session=session
        )
        resources = self._resources
        queue: LogQueue
        if definition.is_stream:
            queue = StreamQueue(resources, declared)
        else:
            queue = Queue(resources, declared, self.effects, self, self.delete_unused)
        self.limits.apply(queue)
        self._admission.add(queue)
        self.queues[queue.name] = queue
        self.router.add_queue(queue.name, queue)
        if self.sources.get(queue.backing.name) is None:
            self.sources.set(queue.backing.name, self._source(queue))
        self._host.watch(queue)
        return queue

    async def delete_queue(
        self, name: str, session: object, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Returns how many messages were ready; 0 if the queue does not exist. Raises InUse, NotEmpty."""
        async with self._changing:
            if name not in self.queues:
                return 0
            queue = self.queue(name, session)
            if if_unused and queue.consumer_count:
                raise InUse(f"queue {name!r} has consumers")
            if if_empty and queue.message_count:
                raise NotEmpty(f"queue {name!r} has messages")
            return await self._delete_queue(queue)

    async def _delete_queue(self, queue: LogQueue) -> int:
        count = queue.message_count
        bindings = self.router.bindings(destination=queue.name)
        if not queue.definition.is_transient:  # else there is nothing of it that a start would find
            lanes = [lane.progress for lane in queue.lanes]
            await self._stored.remove_queue(queue.name, lanes, bindings)
        self.router.remove_queue(queue.name)
        del self.queues[queue.name]
        self._admission.remove(queue)
        queue.close()
        queue.cancel_consumers()
        self._host.forget(queue)
        source = self.sources.get(queue.backing.name)
        if source is not None and source.target is queue:
            self.sources.remove(queue.backing.name)
            self._host.source_removed(queue.backing.name, self.scope)
        self._host.remove_log(queue.log)
        await self._delete_unbound({binding.source for binding in bindings})
        return count

    def delete_unused(self, queue: LogQueue) -> None:
        """Delete a queue whose last consumer left, or that was not used for its `x-expires`."""
        self.effects.start(self._delete_if_unused(queue), queue)

    async def _delete_if_unused(self, queue: LogQueue) -> None:
        async with self._changing:
            if self.queues.get(queue.name) is queue and not queue.consumer_count:
                await self._delete_queue(queue)

    async def session_ended(self, session: object) -> None:
        """Delete the exclusive queues of the session."""
        async with self._changing:
            for queue in [each for each in self.queues.values() if each.session is session]:
                if queue.definition.exclusive:
                    await self._delete_queue(queue)

    def _source(self, target: Exchange | LogQueue) -> Source:
        return Source(namespace=self.name, router=self.router, target=target)

    def _restore_source(self, name: str, topic: str) -> None:
        """An exchange was deleted: records of its topic are now for the queue of the same name."""
        queue = self.queues.get(name)
        if queue is not None:
            self.sources.set(topic, self._source(queue))
        else:
            self._host.source_removed(topic, self.scope)

    # Messages

    def publish(
        self,
        exchange: Exchange,
        key: bytes,
        value: bytes,
        envelope: Envelope,
        wave: Wave,
        *,
        barred: frozenset[str] = frozenset(),
        waits: bool = True,
        partial: bool = True,
    ) -> bool:
        """Whether any queue gets the message. It is durable when `wave` has ended.

        Raises QueueFull where a full queue rejects publishes; the other queues get the message all the same,
        unless `partial` is false: then nothing has happened.
        Raises QueueBlocked, before anything has happened, where a full queue blocks publishers. With
        `waits=False`, for messages that are in the broker already, blocking queues take the message.
        """
        queues = exchange.routes.get(key)
        if queues is None:
            queues = self.router.route(exchange, key, lambda: envelope.attributes)
        if envelope.more_keys:
            keys = (key, *envelope.more_keys)
            queues = self.router.route_all(exchange, keys, lambda: envelope.attributes)
        if barred:
            queues = tuple(queue for queue in queues if queue.name not in barred)
        if exchange is self.router.default:
            if not queues:
                return False  # there is no topic to write it to either
            backing = queues[0].backing
        else:
            backing = exchange.data
        self._check_size(backing, key, value, envelope)
        if envelope.delay_ms > 0 and exchange.definition.delayed:
            wave.schedule(self._scheduled(exchange, key, value, envelope))
            return True
        refusing: list[Queue] = []
        if self._admission.limited:
            refusing = self._admission.refusing(queues, len(value), wave, waits=waits)
            if refusing:
                if not partial:
                    raise QueueFull(f"queue {refusing[0].name!r} is full")
                queues = tuple(queue for queue in queues if queue not in refusing)
        if queues or not refusing or exchange is not self.router.default:
            wave.add(backing, queues, key, value, envelope)
        if refusing:
            for queue in refusing:
                if queue.definition.overflow is OverflowPolicy.REJECT_PUBLISH_DEAD_LETTER:
                    queue.refuse(key, value, envelope, self._clock.now_ms(), wave)
            raise QueueFull(f"queue {refusing[0].name!r} is full")
        return bool(queues)

    def publish_to(self, queue: LogQueue, key: bytes, value: bytes, envelope: Envelope, wave: Wave) -> None:
        """Publish to one queue whatever its bindings. A queue that would block publishers takes the message.

        Raises QueueFull and RecordTooLarge.
        """
        self._check_size(queue.backing, key, value, envelope)
        if self._admission.limited and self._admission.refusing((queue,), len(value), wave, waits=False):
            raise QueueFull(f"queue {queue.name!r} is full")
        wave.add(queue.backing, (queue,), key, value, envelope)

    def _check_size(self, backing: object, key: bytes, value: bytes, envelope: Envelope) -> None:
        assert isinstance(backing, BackingTopic)
        topic = backing.topic or self._host.find_topic(backing)
        if topic is not None:
            size = len(key) + len(value) + len(envelope.headers) + _RECORD_OVERHEAD
            if size > topic.config.max_message_bytes:
                raise RecordTooLarge(
                    f"a message of {size} bytes exceeds the limit of {topic.config.max_message_bytes} of "
                    f"topic {topic.name!r}"
                )

    def _scheduled(self, exchange: Exchange, key: bytes, value: bytes, envelope: Envelope) -> Scheduled:
        if envelope.headers_when_due is not None:
            envelope = replace(envelope, headers=envelope.headers_when_due)
        due_ms = self._clock.now_ms() + envelope.delay_ms
        return self.stored_publish(exchange.name, key, value, envelope, due_ms)

    def stored_publish(
        self, exchange: str, key: bytes, value: bytes, envelope: Envelope, due_ms: int
    ) -> Scheduled:
        """A message that is published later: see `Namespaces.publish_stored`. Raises InvalidTimestamp and
        InvalidRecord."""
        return Scheduled(
            due_ms=due_ms,
            namespace=self.name,
            exchange=exchange,
            key=key,
            value=bytes(value),
            headers=envelope.headers,
            attributes=envelope.attributes,
            expires_in_ms=envelope.expires_in_ms,
            priority=envelope.priority,
            more_keys=envelope.more_keys,
            persistent=envelope.persistent,
        )

    def check_size(self, exchange: Exchange, key: bytes, value: bytes, envelope: Envelope) -> None:
        """Whether the exchange takes a message of this size. Raises RecordTooLarge."""
        backing = exchange.data
        if exchange is self.router.default:
            queue = self.queues.get(key.decode(errors="replace"))
            if queue is None:
                return
            backing = queue.backing
        self._check_size(backing, key, value, envelope)

    def exchange(self, name: str) -> Exchange:
        """Raises UnknownExchange."""
        return self.router.exchange(name)

    def attributes_of(self, headers: bytes) -> Attributes:
        """The attributes that routing matches, of a message that is in the log already."""
        found = self._host.read_attributes(headers)
        return plain_attributes(headers) if found is None else found

    def exchange_of(self, message: Message) -> str:
        """The exchange that the message was published to; empty where the record does not tell."""
        named = exchange_in(message.headers)
        if named is not None:
            return named
        source = self.sources.get(message.topic)
        return source.target.name if source is not None and isinstance(source.target, Exchange) else ""
