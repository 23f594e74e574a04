"""What namespaces and their queues ask of the broker."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from posthouse.broker.queues.attributes import ReadAttributes
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.stream_window import StreamMemory
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.clock import Clock
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome

if TYPE_CHECKING:
    from posthouse.broker.progress.settling import Settling
    from posthouse.broker.queues.log_queue import LogQueue
    from posthouse.broker.queues.namespace import Namespace
    from posthouse.broker.queues.wave import Wave

Source = "tuple[Namespace, Exchange | LogQueue]"


class QueuesHost(Protocol):
    @property
    def storage(self) -> Storage: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settling(self) -> "Settling": ...

    @property
    def stream_memory(self) -> StreamMemory: ...

    @property
    def wave(self) -> "Wave":
        """The one that is joined now."""

    def transaction(self) -> "Wave": ...

    @property
    def sources(self) -> "dict[str, tuple[Namespace, Exchange | LogQueue]]":
        """What the records of a topic are for, by its name."""

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]: ...

    @property
    def read_attributes(self) -> ReadAttributes: ...

    def topic_name(self, topic: TopicId) -> str: ...

    def find_topic(self, backing: BackingTopic) -> Topic | None:
        """It, if there is one."""

    def watch(self, queue: "LogQueue") -> None: ...

    def forget(self, queue: "LogQueue") -> None: ...

    def remove_log(self, log: Topic) -> None:
        """Of a queue that is gone. In the background, with others."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it in the background; what goes wrong is logged."""
