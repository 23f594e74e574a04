"""The fanout exchange: every message matches every binding."""

from collections.abc import Collection, Mapping
from typing import ClassVar

from posthouse.broker.routing.matcher import Bound, RoutingInputs


class FanoutMatcher:
    reads: ClassVar[RoutingInputs] = RoutingInputs.NOTHING

    def __init__(self) -> None:
        self._bound: dict[Bound, None] = {}

    def add(self, bound: Bound) -> None:
        self._bound[bound] = None

    def remove(self, bound: Bound) -> None:
        del self._bound[bound]

    def match(self, key: bytes, headers: Mapping[str, object]) -> Collection[Bound]:
        return self._bound
