"""The interface of an exchange's kind: find the bindings that match a message."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Protocol

from posthouse.broker.routing.definitions import Binding


class RoutingInputs(IntEnum):
    """The parts of a message that a route depends on. Each includes the previous ones."""

    NOTHING = 0
    KEY = 1
    HEADERS = 2


@dataclass(slots=True, eq=False)
class Bound:
    """An active binding. Numbers increase, and matches are in their order."""

    number: int
    binding: Binding
    target: Any
    """The queue, or the `Exchange` that the binding leads to. Any, so that exchanges need not be generic."""


class Matcher(Protocol):
    """The bindings of one exchange, indexed so that few bindings are compared that do not match."""

    reads: ClassVar[RoutingInputs]

    def add(self, bound: Bound) -> None:
        """Raises InvalidDefinition, and changes nothing, if the binding is invalid for the kind."""

    def remove(self, bound: Bound) -> None:
        """Remove a binding that was added before."""

    def match(self, key: bytes, headers: Mapping[str, object]) -> Collection[Bound]:
        """The matching bindings in the order of their numbers; valid until the next change."""


def by_number(bound: Bound) -> int:
    return bound.number
