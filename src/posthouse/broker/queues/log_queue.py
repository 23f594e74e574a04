"""What all kinds of queues have in common: a name, a log of references to messages, and lanes on it."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from posthouse.broker.progress.progress import Progress
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.consumer_info import ConsumerInfo
from posthouse.broker.queues.counters import QueueCounters
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.lane import Lane
from posthouse.broker.queues.message import Message, MessageLane
from posthouse.broker.queues.resources import QueueResources
from posthouse.model.topics import Topic
from posthouse.storage.operations import Run

_PEEKED_AT_ONCE = 64
_PEEKED_BYTES = 4 * 1024 * 1024

RETRY_SECONDS = 1.0
"""An operation that storage refused is tried again after this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue:
    """A queue as its namespace knows it, before it holds anything."""

    id: bytes
    namespace: str
    definition: QueueDefinition
    log: Topic
    """Its references, a partition for each lane, and the stash."""
    backing: BackingTopic
    """The topic for messages that the default exchange routes to this queue."""
    session: object | None = None
    """The owner of an exclusive queue."""


class LogQueue(ABC):
    """Owned by the event loop. As text, it names itself for the log."""

    def __init__(self, resources: QueueResources, declared: DeclaredQueue) -> None:
        self._storage = resources.storage
        self._clock = resources.clock
        self._progress_writer = resources.progress_writer
        self.definition = definition = declared.definition
        self.name = definition.name
        self.namespace = declared.namespace
        self.session = declared.session
        self.log = declared.log
        self.backing = declared.backing
        *lane_logs, self.stash = declared.log.partition_ids()
        bounds = resources.storage.bounds
        is_stored = not definition.is_transient
        self.lanes: Sequence[MessageLane] = [
            Lane(
                self,
                each,
                self.stash,
                Progress(declared.id, each.index, bounds(each).start, is_stored=is_stored),
                bounds(each).end,
                expires=not definition.is_stream,
            )
            for each in lane_logs
        ]
        self.counters = QueueCounters()
        self.used_at = self._clock.monotonic()
        self.is_stopped = False
        """It delivers no more: it is deleted, or this broker gives it up. Retention keeps its messages until
        it is closed."""
        self.is_closed = False
        """It is deleted, or this broker has given it up: nothing here may use its logs."""
        self.retry_seconds = RETRY_SECONDS

    def __str__(self) -> str:
        kind = "stream" if self.definition.is_stream else "queue"
        return f'{kind} "{self.name}" (vhost "{self.namespace}")'

    def loaded(self) -> None:
        """Progress was loaded from storage."""
        for lane in self.lanes:
            bounds = self._storage.bounds(lane.log)
            lane.progress.loaded(bounds.start, bounds.end)

    @abstractmethod
    async def recover(self) -> None:
        """Read from the references what is not stored as progress."""

    def touch(self) -> None:
        self.used_at = self._clock.monotonic()

    @property
    @abstractmethod
    def message_count(self) -> int:
        """The number of ready messages."""

    @property
    @abstractmethod
    def leased_count(self) -> int:
        """The number of messages that are delivered and not settled."""

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, int]:
        """`message_count` and `leased_count`, for callers that look at all queues."""

    @property
    @abstractmethod
    def consumer_count(self) -> int: ...

    @abstractmethod
    def described_consumers(self) -> list[ConsumerInfo]: ...

    # Browsing

    @abstractmethod
    def browse(self, at_once: int) -> AsyncGenerator[list[Message], None]:
        """All ready messages in pieces, for readers that do not lease them; see `browsing`."""

    async def peek(self, most: int, most_bytes: int = _PEEKED_BYTES) -> list[Message]:
        """The next `most` messages, or fewer where bodies are large. They stay ready, and undelivered."""
        found: list[Message] = []
        size = 0
        async with aclosing(self.browse(min(most, _PEEKED_AT_ONCE))) as pieces:
            async for messages in pieces:
                for message in messages:
                    size += message.size
                    if len(found) == most or (found and size > most_bytes):
                        return found
                    found.append(message)
                if len(found) == most:
                    return found
        return found

    # Publishing

    @abstractmethod
    def lane_for(self, priority: int) -> MessageLane: ...

    @abstractmethod
    def time_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """The time in the reference to a message that is published now."""

    @abstractmethod
    def arrived(self, lane: MessageLane, runs: Sequence[Run], count: int, size: int) -> None:
        """`count` more positions of a lane are durable, with `size` bytes of values: those of `runs`."""

    def progressed(self, lane: MessageLane) -> None:
        """Positions of the lane were settled: store that."""
        self._progress_writer.changed(lane)

    # The end

    def stop(self) -> None:
        """Deliver no more messages."""
        self.is_stopped = True

    def close(self) -> None:
        """The queue is deleted, or given up."""
        self.stop()
        self.is_closed = True
        for lane in self.lanes:
            self._progress_writer.forget(lane)
            lane.leases.holders.clear()
            lane.is_gone = True

    @abstractmethod
    def cancel_consumers(self) -> None: ...
