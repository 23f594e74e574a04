"""What an exchange asks of its kind: which of my bindings does this message match?"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Protocol

from posthouse.broker.routing.definitions import Binding


class RoutingInputs(IntEnum):
    """What of a message decides where it goes. Each includes the ones before."""

    NOTHING = 0
    KEY = 1
    HEADERS = 2


@dataclass(slots=True, eq=False)
class Bound:
    """A binding in force. The numbers grow from one to the next, and matches come in their order."""

    number: int
    binding: Binding
    target: Any
    """The queue, or the `Exchange` that the binding leads to. Any, so that exchanges need not be generic."""


class Matcher(Protocol):
    """The bindings of one exchange, arranged so that a message meets few of those that it does not match."""

    reads: ClassVar[RoutingInputs]

    def add(self, bound: Bound) -> None:
        """Raises InvalidDefinition, and changes nothing, where the binding makes no sense for the kind."""

    def remove(self, bound: Bound) -> None:
        """It was added before."""

    def match(self, key: bytes, headers: Mapping[str, object]) -> Collection[Bound]:
        """In the order of their numbers; valid until the next change."""


def by_number(bound: Bound) -> int:
    return bound.number
