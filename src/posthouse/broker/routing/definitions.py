"""What exchanges and bindings are declared to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ExchangeKind(StrEnum):
    """How an exchange compares a message with its bindings."""

    DIRECT = "direct"
    """The routing key is the binding's key."""
    FANOUT = "fanout"
    """Every binding."""
    TOPIC = "topic"
    """The binding's key is a pattern over the words of the routing key."""
    HEADERS = "headers"
    """The binding's arguments are conditions on the message's headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDefinition:
    name: str
    kind: ExchangeKind
    durable: bool = True
    """Whether it is still there after a restart."""
    auto_delete: bool = False
    """It goes with the last binding from it."""
    internal: bool = False
    """Nobody publishes to it but other exchanges."""
    alternate: str | None = None
    """The exchange that gets what matches none of the bindings. It need not exist."""
    delayed: bool = False
    """Messages may carry a delay."""
    arguments: Mapping[str, object] = field(default_factory=dict, hash=False)
    """As declared: for comparing and showing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """From an exchange to a queue, or with `to_exchange` to another exchange."""

    source: str
    destination: str
    to_exchange: bool = False
    key: bytes = b""
    arguments: Mapping[str, object] = field(default_factory=dict, hash=False)
