"""A message in memory, and its two ends: the source that leases it, and the consumer."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from posthouse.broker.queues.lane import Lane
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId


class Limiter(Protocol):
    """A limit on the messages that several consumers hold together: the prefetch of a channel."""

    @property
    def credit(self) -> int:
        """Messages that all of them together may get now."""


class Consumer(Protocol):
    """Made by a protocol."""

    @property
    def credit(self) -> int:
        """Messages that the consumer may get now."""

    @property
    def limiter(self) -> Limiter | None:
        """The limit that the consumer shares with others, if there is one."""

    @property
    def is_counted(self) -> bool:
        """Whether a delivery takes credit of the limiter. Consumers that are not counted wait for it, too."""

    def deliver(self, messages: "Sequence[Message]") -> None:
        """Synchronous. The consumer lowers its own credit."""

    def cancelled(self) -> None:
        """The queue was deleted."""


class SettlingCommit(Protocol):
    """A commit that settlements can join: a wave."""

    def settle(self, messages: "Sequence[Message]") -> None: ...

    def on_end(self, callback: Callable[[PosthouseError | None], None]) -> None:
        """`callback` is called with the error of the commit, or None once it is durable."""


class MessageSource(Protocol):
    """What hands messages out and has them settled: a queue, or one consumer's reading of a stream.

    As text, it names itself for the log: `queue "mails" (vhost "/")`.
    """

    @property
    def name(self) -> str: ...

    def ack(self, messages: "Sequence[Message]", wave: SettlingCommit | None = None) -> None: ...

    def settled(self, messages: "Sequence[Message]") -> None: ...

    def release(self, messages: "Sequence[Message]", *, count: bool = True, delay_ms: int = 0) -> None: ...

    def reject(self, messages: "Sequence[Message]") -> None: ...

    def credit_raised(self) -> None: ...

    async def offer(self) -> None:
        """Return when what is ready was offered to the consumers, as far as they have credit."""

    def unsubscribe(self, consumer: Consumer) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class Message:
    """Positional, not keyword-only: one is made for every message that a queue delivers."""

    queue: MessageSource
    lane: "Lane[Message]"
    position: int
    source: PartitionId
    """The partition of the record; `offset` is its offset there."""
    topic: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    """None while it is not in memory: bodies of leased messages may be dropped, and are read again when
    needed."""
    size: int
    """Bytes of the value."""
    headers: bytes
    expires_ms: int
    deliveries: int = 0
    """Earlier deliveries after which the message was requeued."""
    redelivered: bool = False

    @property
    def place(self) -> tuple[PartitionId, int]:
        """Partition and offset of the record now: in the log, or in the stash."""
        stashed = self.lane.progress.stash.get(self.position)
        return (self.source, self.offset) if stashed is None else (self.lane.stash_log, stashed.offset)

    @property
    def is_leased(self) -> bool:
        """Whether this copy of the message holds the lease of its position."""
        return self.lane.leases.holders.get(self.position) is self

    def copy(self) -> "Message":
        """The same message for another holder."""
        return copy(self)

    def __lt__(self, other: "Message") -> bool:
        return self.position < other.position

    def __repr__(self) -> str:
        return f"<message {self.position} of {self.queue.name}>"


MessageLane: TypeAlias = Lane[Message]
