"""What all kinds of queues have in common: a name, a log of references to messages, and lanes on it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from posthouse.broker.progress.progress import Progress
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.lane import Lane
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.namespace import Namespace

RETRY_SECONDS = 1.0
"""What storage refused is tried again after so long."""


class LogQueue(ABC):
    """Owned by the event loop."""

    def __init__(
        self,
        host: "QueuesHost",
        namespace: "Namespace",
        queue_id: bytes,
        definition: QueueDefinition,
        log: Topic,
        backing: BackingTopic,
        session: object | None = None,
    ) -> None:
        self._host = host
        self.namespace = namespace
        self.id = queue_id
        self.definition = definition
        self.name = definition.name
        self.session = session
        """The only one that may use it, for an exclusive queue."""
        self.log = log
        self.backing = backing
        """Where the default exchange writes what is for this queue alone."""
        *lane_logs, self.stash = log.partition_ids()
        bounds = host.storage.bounds
        self.lanes: Sequence[Lane] = [
            Lane(
                self,
                each,
                self.stash,
                Progress(queue_id, each.index, bounds(each).start, is_stored=not definition.is_transient),
                bounds(each).end,
                expires=not definition.is_stream,
            )
            for each in lane_logs
        ]
        self.used_at = host.clock.monotonic()
        self.is_deleted = False
        self.retry_seconds = RETRY_SECONDS

    def loaded(self) -> None:
        """Progress was taken in from storage."""
        for lane in self.lanes:
            bounds = self._host.storage.bounds(lane.log)
            lane.progress.loaded(bounds.start, bounds.end)

    @abstractmethod
    async def recover(self) -> None:
        """Learn again what only the references tell."""

    def topic_name(self, topic: TopicId) -> str:
        return self._host.topic_name(topic)

    def touch(self) -> None:
        self.used_at = self._host.clock.monotonic()

    @property
    @abstractmethod
    def message_count(self) -> int:
        """How many messages a consumer could get now."""

    @property
    @abstractmethod
    def consumer_count(self) -> int: ...

    # Messages come in

    def lane_for(self, priority: int) -> Lane:
        lanes = self.lanes
        return lanes[0] if len(lanes) == 1 else lanes[min(priority, len(lanes) - 1)]

    @abstractmethod
    def time_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """The time that the reference to a message carries which is published now."""

    @abstractmethod
    def arrived(self, lane: Lane, count: int, size: int) -> None:
        """`count` more positions of a lane are durable."""

    def progressed(self, lane: Lane) -> None:
        """Some of its positions count as settled now."""
        self._host.settling.changed(lane)

    # The end

    @abstractmethod
    def stop(self) -> None:
        """Nothing more is handed out."""

    def close(self) -> None:
        """It is deleted."""
        self.stop()
        for lane in self.lanes:
            self._host.settling.forget(lane)
            lane.leased.clear()
            lane.is_gone = True

    @abstractmethod
    def cancel_consumers(self) -> None: ...
