"""An active exchange: its definition, its bindings and its cached routes."""

from typing import Any

from posthouse.broker.routing.definitions import ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.direct import DirectMatcher
from posthouse.broker.routing.fanout import FanoutMatcher
from posthouse.broker.routing.headers import HeadersMatcher
from posthouse.broker.routing.matcher import Bound, Matcher
from posthouse.broker.routing.topic import TopicMatcher

_MATCHERS: dict[ExchangeKind, type[Matcher]] = {
    ExchangeKind.DIRECT: DirectMatcher,
    ExchangeKind.FANOUT: FanoutMatcher,
    ExchangeKind.TOPIC: TopicMatcher,
    ExchangeKind.HEADERS: HeadersMatcher,
}


class Exchange:
    """Created and changed by its `Router`. Others only read it, and may set `data`."""

    __slots__ = ("bound", "data", "definition", "is_deleted", "matcher", "name", "route_of_all", "routes")

    def __init__(self, definition: ExchangeDefinition) -> None:
        self.definition = definition
        self.name = definition.name
        self.data: object | None = None
        """For the owner of the router."""
        self.is_deleted = False
        self.matcher: Matcher = _MATCHERS[definition.kind]()
        self.bound: dict[bytes, Bound] = {}
        """The bindings from this exchange by their encoded form, which distinguishes 1 from true where `==`
        does not."""
        self.routes: dict[bytes, tuple[Any, ...]] = {}
        """Cached queues by routing key."""
        self.route_of_all: tuple[Any, ...] | None = None
        """The cached route if the routing key does not matter."""

    @property
    def is_used(self) -> bool:
        """Whether there are bindings from it."""
        return bool(self.bound)

    def __repr__(self) -> str:
        return f"<{self.definition.kind} exchange {self.name!r}>"
