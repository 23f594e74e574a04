"""Cache of routes since the last change of the topology.

Equal routes (the same queues in the same order) are always the same tuple, whatever key or exchange led to
them, so that callers can compare routes with `is`. The cache is bounded in routes per exchange and in queues
of all routes.
"""

from typing import Any

from posthouse.broker.routing.exchange import Exchange

_LONGEST_KEY = 255
"""AMQP's limit. Longer keys, from other protocols, would make the cache large and rarely repeat."""
_MOST_QUEUES = 1_000_000


class RouteCache:
    def __init__(self, most_routes: int) -> None:
        self._most_routes = most_routes
        self._filled: set[Exchange] = set()
        """Exchanges with cached routes: with many exchanges, most have none to clear."""
        self._routes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._queues = 0

    def one(self, route: tuple[Any, ...]) -> tuple[Any, ...]:
        """The one tuple for all equal routes."""
        known = self._routes.get(route)
        if known is not None:
            return known
        if self._queues + len(route) > _MOST_QUEUES or len(self._routes) >= self._most_routes:
            self.clear()
        self._routes[route] = route
        self._queues += len(route)
        return route

    def keep(self, exchange: Exchange, key: bytes, route: tuple[Any, ...]) -> None:
        if len(key) > _LONGEST_KEY or not self._most_routes:
            return
        if len(exchange.routes) >= self._most_routes:
            exchange.routes.clear()
        exchange.routes[key] = route
        self._filled.add(exchange)

    def keep_for_all(self, exchange: Exchange, route: tuple[Any, ...]) -> None:
        """Cache the route for every routing key."""
        if self._most_routes:
            exchange.route_of_all = route
            self._filled.add(exchange)

    def clear(self) -> None:
        for exchange in self._filled:
            exchange.routes.clear()
            exchange.route_of_all = None
        self._filled.clear()
        self._routes.clear()
        self._queues = 0
