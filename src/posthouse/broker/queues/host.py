"""What namespaces and their queues ask of the broker."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from posthouse.broker.queues.attributes import ReadAttributes
from posthouse.broker.queues.streams import Stream
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.clock import Clock
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.interface import Operation, Outcome, Storage

if TYPE_CHECKING:
    from posthouse.broker.queues.namespace import Namespace
    from posthouse.broker.queues.queue import Queue
    from posthouse.broker.queues.settling import Settling
    from posthouse.broker.queues.wave import Wave

Source = "tuple[Namespace, Exchange | Queue]"


class QueuesHost(Protocol):
    @property
    def storage(self) -> Storage: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settling(self) -> "Settling": ...

    @property
    def wave(self) -> "Wave":
        """The one that is joined now."""

    def transaction(self) -> "Wave": ...

    @property
    def sources(self) -> "dict[str, tuple[Namespace, Exchange | Queue]]":
        """What the records of a topic are for, by its name."""

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]: ...

    @property
    def read_attributes(self) -> ReadAttributes: ...

    def topic_name(self, topic: TopicId) -> str: ...

    def find_topic(self, stream: Stream) -> Topic | None:
        """The topic that a stream is written to, if there is one."""

    def watch(self, queue: "Queue") -> None: ...

    def forget(self, queue: "Queue") -> None: ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it in the background; what goes wrong is logged."""
