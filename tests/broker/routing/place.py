"""A router with queues that are only names."""

from collections.abc import Mapping

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Router
from tests.broker.routing.naive import Mailbox

DIRECT, FANOUT, TOPIC, HEADERS = ExchangeKind


class Place:
    """A router with short names for what tests do to it."""

    def __init__(self, *queues: str, most_routes: int = 10_000) -> None:
        self.router: Router[Mailbox] = Router(most_routes)
        for name in queues:
            self.router.add_queue(name, Mailbox(name))

    def exchange(self, name: str, kind: ExchangeKind = DIRECT, alternate: str | None = None) -> Exchange:
        return self.router.declare(ExchangeDefinition(name=name, kind=kind, alternate=alternate))

    def bind(
        self, source: str, queue: str, key: bytes = b"", arguments: Mapping[str, object] | None = None
    ) -> Binding:
        binding = Binding(source=source, destination=queue, key=key, arguments=arguments or {})
        assert self.router.bind(binding)
        return binding

    def join(self, source: str, destination: str, key: bytes = b"") -> Binding:
        binding = Binding(source=source, destination=destination, to_exchange=True, key=key)
        assert self.router.bind(binding)
        return binding

    def route(
        self, exchange: str, key: bytes = b"", headers: Mapping[str, object] | None = None
    ) -> list[str]:
        found = self.router.route(
            self.router.exchange(exchange), key, None if headers is None else lambda: headers
        )
        return [queue.name for queue in found]
