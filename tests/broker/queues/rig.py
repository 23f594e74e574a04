"""A broker without listeners, and a consumer that remembers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.queues import backing_topics, internal_topics
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.model.clock import Clock, SystemClock
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import NAMESPACES
from posthouse.model.topic_config import TopicConfig
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.memory.engine import MemoryStorage
from tests.broker.members import CoordinatorStorage

PLAIN = Envelope(headers=b"\x00")
SESSION = object()


class Rig:
    """One broker; queues and exchanges of its default namespace by name."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.storage = broker._storage
        self.retention = broker.namespaces.retention
        self.namespace: Namespace = broker.namespaces.get("/")

    def partition(self, topic: str) -> PartitionId:
        """The only one of a topic."""
        [partition] = self.broker.topic(topic).partition_ids()
        return partition

    async def queue(self, name: str = "q", **options: Any) -> Queue:
        queue = await self.namespace.declare_queue(QueueDefinition(name=name, **options), SESSION)
        assert isinstance(queue, Queue)
        return queue

    async def stream(self, name: str = "s", **options: Any) -> StreamQueue:
        definition = QueueDefinition(name=name, is_stream=True, **options)
        stream = await self.namespace.declare_queue(definition, SESSION)
        assert isinstance(stream, StreamQueue)
        return stream

    def found(self, name: str) -> Queue:
        """One that is there already."""
        queue = self.namespace.queue(name, SESSION)
        assert isinstance(queue, Queue)
        return queue

    async def exchange(self, name: str, kind: ExchangeKind = ExchangeKind.FANOUT, **options: Any) -> None:
        await self.namespace.declare_exchange(ExchangeDefinition(name=name, kind=kind, **options))

    async def bind(self, source: str, queue: str, key: bytes = b"") -> None:
        await self.namespace.bind(Binding(source=source, destination=queue, key=key))

    async def publish(
        self,
        *values: bytes,
        key: bytes = b"q",
        exchange: str = "",
        envelope: Envelope = PLAIN,
        **changes: Any,
    ) -> list[bool]:
        """Wait until they are durable; whether each was routed."""
        if changes:
            envelope = replace(envelope, **changes)
        to = self.namespace.router.exchange(exchange)
        wave = self.broker.publishing.wave
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(error: Exception | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        publishing = self.broker.publishing
        routed = [self.namespace.publish(to, key, value, envelope, publishing.wave) for value in values]
        wave.on_end(ended)
        await done
        return routed


class Taker:
    """Takes what it is given, up to its credit."""

    limiter = None
    is_counted = True

    def __init__(self, credit: int = 1_000_000) -> None:
        self._credit = credit
        self.taken: list[Message] = []
        self.values: list[bytes] = []
        self.gone = False
        self._more = asyncio.Event()

    @property
    def credit(self) -> int:
        return self._credit

    def deliver(self, messages: Sequence[Message]) -> None:
        self._credit -= len(messages)
        assert self._credit >= 0, "more was handed out than there was credit for"
        self.taken += messages
        self.values += [message.value or b"" for message in messages]
        self._more.set()

    def cancelled(self) -> None:
        self.gone = True

    def raise_credit(self, queue: Queue, by: int) -> None:
        self._credit += by
        queue.credit_raised()

    async def has(self, count: int) -> None:
        """Wait until it was given so many in all."""
        async with asyncio.timeout(10):
            while len(self.taken) < count:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def running(
    data: Path | None = None, clock: Clock | None = None, storage: Storage | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    clock = clock or SystemClock()
    if storage is None:
        storage = MemoryStorage(clock) if data is None else FileStorage(data, clock=clock)
    broker = Broker(storage, Settings(memory=True, **settings), clock)
    await broker.start()
    await broker.coordinate()
    if isinstance(storage, CoordinatorStorage):
        await storage.scopes.take(broker, *NAMESPACES)
    try:
        yield Rig(broker)
    finally:
        await broker.stop()
        if isinstance(storage, CoordinatorStorage):
            storage.scopes.holders.clear()


async def settle_turns(turns: int = 20) -> None:
    """Let everything that is ready on the event loop happen."""
    for _ in range(turns):
        await asyncio.sleep(0)


def tiny_segments(patch: pytest.MonkeyPatch, size: int = 300) -> None:
    """Give every topic that queues make segments of a few messages."""
    for overrides in (backing_topics.EXCHANGE_TOPIC, backing_topics.QUEUE_TOPIC, internal_topics._OVERRIDES):
        patch.setitem(overrides, "segment.bytes", str(size))
    config = TopicConfig().with_overrides(internal_topics._OVERRIDES)
    patch.setattr(internal_topics, "_CONFIG", config)


async def values_of(queue: Queue) -> list[bytes]:
    """Everything that is ready, which is leased from now on."""
    found = []
    while (message := await queue.get()) is not None:
        found.append(message.value or b"")
    return found
