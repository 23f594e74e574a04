"""Definitions of exchanges and bindings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ExchangeKind(StrEnum):
    """How an exchange matches a message with its bindings."""

    DIRECT = "direct"
    """Matches bindings whose key equals the routing key."""
    FANOUT = "fanout"
    """Matches every binding."""
    TOPIC = "topic"
    """The binding's key is a pattern over the words of the routing key."""
    HEADERS = "headers"
    """The binding's arguments are conditions on the message's headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDefinition:
    name: str
    kind: ExchangeKind
    durable: bool = True
    """Whether it survives a restart."""
    auto_delete: bool = False
    """Deleted with the last binding from it."""
    internal: bool = False
    """Only other exchanges publish to it."""
    alternate: str | None = None
    """The exchange for messages that match no binding. It need not exist."""
    delayed: bool = False
    """Messages may carry a delay."""
    arguments: Mapping[str, object] = field(default_factory=dict, hash=False)
    """As declared: for comparison and display."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """From an exchange to a queue, or with `to_exchange` to another exchange."""

    source: str
    destination: str
    to_exchange: bool = False
    key: bytes = b""
    arguments: Mapping[str, object] = field(default_factory=dict, hash=False)
