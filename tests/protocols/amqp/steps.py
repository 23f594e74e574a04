"""Steps of a test on a channel: methods, and publishes."""

from dataclasses import dataclass, field
from typing import Any

from pamqp.commands import Queue


@dataclass(frozen=True, slots=True)
class Publish:
    exchange: str = ""
    key: str = "r-q"
    immediate: bool = False
    properties: dict[str, Any] = field(default_factory=dict)


def declare(arguments: dict[str, Any] | None = None, name: str = "r-q") -> Queue.Declare:
    """A queue that goes with its connection."""
    return Queue.Declare(queue=name, exclusive=True, arguments=arguments)


def quorum(arguments: dict[str, Any]) -> Queue.Declare:
    return Queue.Declare(queue="r-t", durable=True, arguments={"x-queue-type": "quorum"} | arguments)


def argument(name: str, value: Any) -> Queue.Declare:
    return declare({name: value}, "r-a")
