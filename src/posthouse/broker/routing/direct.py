"""The direct exchange: a message matches the bindings that have its routing key."""

from collections.abc import Collection, Mapping
from typing import ClassVar

from posthouse.broker.routing.matcher import Bound, RoutingInputs


class DirectMatcher:
    reads: ClassVar[RoutingInputs] = RoutingInputs.KEY

    def __init__(self) -> None:
        self._by_key: dict[bytes, dict[Bound, None]] = {}

    def add(self, bound: Bound) -> None:
        self._by_key.setdefault(bound.binding.key, {})[bound] = None

    def remove(self, bound: Bound) -> None:
        key = bound.binding.key
        of_key = self._by_key[key]
        del of_key[bound]
        if not of_key:
            del self._by_key[key]

    def match(self, key: bytes, headers: Mapping[str, object]) -> Collection[Bound]:
        return self._by_key.get(key, ())
