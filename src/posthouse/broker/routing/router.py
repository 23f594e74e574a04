"""The exchanges and bindings of one namespace, and the routes of messages to queues."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.encoding import encode_binding
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.matcher import Bound, RoutingInputs, by_number
from posthouse.broker.routing.route_cache import RouteCache
from posthouse.model.errors import AccessRefused, UnknownExchange, UnknownQueue

Q = TypeVar("Q")

Headers = Callable[[], Mapping[str, object]]
"""Called only if an exchange needs the headers."""

_MOST_ROUTES = 10_000
_NO_HEADERS: Mapping[str, object] = MappingProxyType({})


class Router(Generic[Q]):
    """Q is the type of a queue, compared by identity. Owned by the event loop.

    A route has every queue once. The queues of one exchange are in the order of their bindings; then those of
    the exchanges that it is bound to, in their order, and so on. An exchange is visited once, so cycles end.
    The alternate of an exchange is visited if none of the exchange's own bindings matched, also for exchanges
    reached by bindings.
    """

    def __init__(self, most_routes: int = _MOST_ROUTES) -> None:
        """At most `most_routes` routes are cached per exchange; 0 disables the cache."""
        self.default = Exchange(ExchangeDefinition(name="", kind=ExchangeKind.DIRECT))
        """Every queue is bound to it under its name. Those bindings are not listed."""
        self.by_name: dict[str, Exchange] = {"": self.default}
        """The exchanges. Callers only read it: a publish finds its exchange without another call."""
        self._queues: dict[str, Bound] = {}
        """Queues by name, with their bindings to the default exchange."""
        self._arriving: dict[tuple[bool, str], dict[bytes, Bound]] = {}
        """Bindings by destination."""
        self._numbers = count()
        self._cache = RouteCache(most_routes)

    def declare(self, definition: ExchangeDefinition) -> Exchange:
        """Add an exchange. The name must be free."""
        if definition.name in self.by_name:
            raise ValueError(f"exchange {definition.name!r} exists already")
        exchange = Exchange(definition)
        self.by_name[definition.name] = exchange
        self._cache.clear()
        return exchange

    def exchange(self, name: str) -> Exchange:
        """Raises UnknownExchange."""
        exchange = self.by_name.get(name)
        if exchange is None:
            raise UnknownExchange(f"there is no exchange {name!r}")
        return exchange

    def exchanges(self) -> list[Exchange]:
        """The default one first, then as they were declared."""
        return list(self.by_name.values())

    def delete(self, name: str) -> list[Binding]:
        """Delete an exchange; returns the bindings from it and to it, which are removed. Raises
        UnknownExchange."""
        exchange = self._changeable(name)
        gone = self._remove(exchange.bound | self._arriving.get((True, name), {}))
        del self.by_name[name]
        exchange.is_deleted = True
        return gone

    def add_queue(self, name: str, queue: Q) -> None:
        """Add a queue. The name must be free."""
        if name in self._queues:
            raise ValueError(f"queue {name!r} exists already")
        binding = Binding(source="", destination=name, key=name.encode())
        self._queues[name] = bound = Bound(next(self._numbers), binding, queue)
        self.default.matcher.add(bound)
        self._cache.clear()

    def remove_queue(self, name: str) -> list[Binding]:
        """Remove a queue; returns the bindings to it, which are removed. Raises UnknownQueue."""
        bound = self._queues.pop(name, None)
        if bound is None:
            raise UnknownQueue(f"there is no queue {name!r}")
        self.default.matcher.remove(bound)
        return self._remove(dict(self._arriving.get((False, name), {})))

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False if an equal one exists.

        Raises UnknownExchange or UnknownQueue, AccessRefused for the default exchange, and InvalidDefinition
        for invalid arguments.
        """
        exchange = self._changeable(binding.source)
        target = self._target(binding)
        identity = encode_binding(binding)
        if identity in exchange.bound:
            return False
        bound = Bound(next(self._numbers), binding, target)
        exchange.matcher.add(bound)
        exchange.bound[identity] = bound
        self._arriving.setdefault((binding.to_exchange, binding.destination), {})[identity] = bound
        self._cache.clear()
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; False if it does not exist. Raises AccessRefused for the default exchange."""
        if not binding.source or (binding.to_exchange and not binding.destination):
            raise _default_is_fixed()
        exchange = self.by_name.get(binding.source)
        identity = encode_binding(binding)
        if exchange is None or identity not in exchange.bound:
            return False
        self._remove({identity: exchange.bound[identity]})
        return True

    def bindings(
        self, *, source: str | None = None, destination: str | None = None, to_exchange: bool = False
    ) -> list[Binding]:
        """All bindings, or those from one exchange, or those to one queue (with `to_exchange`, to one
        exchange)."""
        if destination is not None:
            arriving = self._arriving.get((to_exchange, destination), {}).values()
            return [each.binding for each in arriving if source is None or each.binding.source == source]
        if source is not None:
            exchange = self.by_name.get(source)
            return [] if exchange is None else [each.binding for each in exchange.bound.values()]
        return [each.binding for exchange in self.by_name.values() for each in exchange.bound.values()]

    def leading_to(self, queue: str) -> set[str]:
        """The exchanges, except the default, whose messages may reach the queue, also by an alternate
        exchange."""
        found: set[str] = set()
        names = ["", *(binding.source for binding in self.bindings(destination=queue))]
        for name in names:
            if name not in found:
                found.add(name)
                names += [binding.source for binding in self.bindings(destination=name, to_exchange=True)]
                names += [each.name for each in self.by_name.values() if each.definition.alternate == name]
        return found - {""}

    def route(self, exchange: Exchange, key: bytes, headers: Headers | None = None) -> tuple[Q, ...]:
        """The queues of a message: the same tuple for the same queues, until the topology changes.

        Raises UnknownExchange if the exchange was deleted, even if a new one has its name.
        """
        route = exchange.routes.get(key)
        return self._find(exchange, key, headers) if route is None else route

    def _find(self, exchange: Exchange, key: bytes, headers: Headers | None) -> tuple[Q, ...]:
        if exchange.route_of_all is not None:
            return exchange.route_of_all
        if exchange.is_deleted:
            raise UnknownExchange(f"exchange {exchange.name!r} has been deleted")
        queues, reads = self._follow(exchange, (key,), headers)
        route = self._cache.one(tuple(queues))
        if reads is RoutingInputs.KEY:
            self._cache.keep(exchange, key, route)
        elif reads is RoutingInputs.NOTHING:
            self._cache.keep_for_all(exchange, route)
        return route

    def route_all(
        self, exchange: Exchange, keys: Sequence[bytes], headers: Headers | None = None
    ) -> tuple[Q, ...]:
        """The queues of a message with several keys: the alternate exchange is used if none of them
        matched."""
        if exchange.is_deleted:
            raise UnknownExchange(f"exchange {exchange.name!r} has been deleted")
        return tuple(self._follow(exchange, keys, headers)[0])

    def _follow(
        self, exchange: Exchange, keys: Sequence[bytes], headers: Headers | None
    ) -> tuple[Iterable[Q], RoutingInputs]:
        """All reachable queues, and the parts of the message that the route depends on."""
        queues: dict[Any, None] = {}
        reads = RoutingInputs.NOTHING
        table: Mapping[str, object] = _NO_HEADERS
        taking_part = {exchange: None}
        to_do = [exchange]
        for each in to_do:
            matcher = each.matcher
            if matcher.reads > reads:
                reads = matcher.reads
                if reads is RoutingInputs.HEADERS and headers is not None:
                    table = headers()
            matched = matcher.match(keys[0], table)
            if len(keys) > 1:
                matched = [*matched, *(bound for key in keys[1:] for bound in matcher.match(key, table))]
            onward = []
            for bound in matched:
                if bound.binding.to_exchange:
                    onward.append(bound.target)
                else:
                    queues[bound.target] = None
            if not matched and each.definition.alternate in self.by_name:
                onward.append(self.by_name[each.definition.alternate])
            for further in onward:
                if further not in taking_part:
                    taking_part[further] = None
                    to_do.append(further)
        return queues, reads

    def _changeable(self, name: str) -> Exchange:
        if not name:
            raise _default_is_fixed()
        return self.exchange(name)

    def _target(self, binding: Binding) -> Q | Exchange:
        if binding.to_exchange:
            return self._changeable(binding.destination)
        bound = self._queues.get(binding.destination)
        if bound is None:
            raise UnknownQueue(f"there is no queue {binding.destination!r}")
        queue: Q = bound.target
        return queue

    def _remove(self, gone: Mapping[bytes, Bound]) -> list[Binding]:
        for identity, bound in gone.items():
            binding = bound.binding
            source = self.by_name[binding.source]
            source.matcher.remove(bound)
            del source.bound[identity]
            destination = (binding.to_exchange, binding.destination)
            del self._arriving[destination][identity]
            if not self._arriving[destination]:
                del self._arriving[destination]
        self._cache.clear()
        return [bound.binding for bound in sorted(gone.values(), key=by_number)]


def _default_is_fixed() -> AccessRefused:
    return AccessRefused("the bindings of the default exchange cannot be changed")
