"""Descriptions of consumers for operators, whatever the protocol."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    tag: str
    """Name of the consumer; unique on its channel."""
    peer: str
    """Address and port of the client."""
    channel: int
    user: str
    needs_ack: bool
    """Whether messages stay unacknowledged until the consumer settles them."""
    prefetch: int
    """Unacknowledged messages that the consumer may hold; 0 for no limit of its own."""
    unacked: int
    priority: int = 0
    is_exclusive: bool = False
    is_active: bool = True
    """False for one that waits for its turn in a queue with a single active consumer."""


@runtime_checkable
class Described(Protocol):
    """A consumer that can be shown."""

    @property
    def info(self) -> ConsumerInfo: ...
