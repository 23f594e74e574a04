"""One message of a queue, while somebody holds it."""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Protocol

from posthouse.model.ids import PartitionId

if TYPE_CHECKING:
    from posthouse.broker.queues.consumers import Consumer
    from posthouse.broker.queues.lane import Lane
    from posthouse.broker.queues.wave import Wave


class MessageSource(Protocol):
    """What hands messages out and has them settled: a queue, or one consumer's reading of a stream."""

    @property
    def name(self) -> str: ...

    def ack(self, messages: "Sequence[Message]", wave: "Wave | None" = None) -> None: ...

    def settled(self, messages: "Sequence[Message]") -> None: ...

    def release(self, messages: "Sequence[Message]", *, count: bool = True, delay_ms: int = 0) -> None: ...

    def reject(self, messages: "Sequence[Message]") -> None: ...

    def credit_raised(self) -> None: ...

    async def offer(self) -> None:
        """Return when what is ready was offered to the consumers, as far as they have credit."""

    def unsubscribe(self, consumer: "Consumer") -> None: ...

    def progressed(self, lane: "Lane") -> None: ...


class Message:
    """Not a dataclass: one is made for every message that a queue hands out."""

    __slots__ = (
        "deliveries",
        "expires_ms",
        "headers",
        "key",
        "lane",
        "offset",
        "position",
        "queue",
        "redelivered",
        "size",
        "source",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(
        self,
        queue: MessageSource,
        lane: "Lane",
        position: int,
        source: PartitionId,
        topic: str,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        expires_ms: int,
    ) -> None:
        self.queue = queue
        self.lane = lane
        self.position = position
        self.source = source
        """Where the record lies, `offset` the place in it."""
        self.topic = topic
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value: bytes | None = value
        """None while it is not in memory: what is handed out may be let go, and is read again when needed."""
        self.headers = headers
        self.expires_ms = expires_ms
        self.size = len(value)
        self.deliveries = 0
        """How often it was delivered before and came back."""
        self.redelivered = False

    def copy(self) -> "Message":
        """The same message for another holder."""
        return copy(self)

    def __lt__(self, other: "Message") -> bool:
        return self.position < other.position

    def __repr__(self) -> str:
        return f"<message {self.position} of {self.queue.name}>"
