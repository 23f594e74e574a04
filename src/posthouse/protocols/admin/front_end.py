"""HTTP as a front end of the broker: health, metrics, the JSON API, RabbitMQ's management API."""

from collections.abc import Callable, Mapping
from typing import Final

from posthouse.listener_settings import ADMIN, Address, ListenerSettings
from posthouse.protocols.admin.connection import AdminConnections
from posthouse.protocols.admin.context import Context
from posthouse.protocols.admin.dispatch import Dispatcher
from posthouse.protocols.admin.event_sources import sources
from posthouse.protocols.admin.events import EventHub, Source
from posthouse.protocols.admin.handlers.metrics import metrics_route
from posthouse.protocols.admin.rates import Rates
from posthouse.protocols.admin.router import Router
from posthouse.protocols.admin.routes import ROUTES
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.settings import Settings


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    rates = Rates(backend.broker.namespaces)
    sees_all = backend.broker.access.guard(None, "", ADMIN.name)

    def event_sources(hub: EventHub) -> Mapping[str, Source]:
        return sources(Context(backend=backend, guard=sees_all, peer="", rates=rates, events=hub))

    router = Router((*ROUTES, metrics_route(backend)))
    dispatcher = Dispatcher(backend, router, rates, EventHub(event_sources))
    return lambda listener: AdminConnections(backend, dispatcher, listener.address.host)


def _describe(address: Address, settings: Settings) -> str:
    return f"operators and metrics on http://{address}"


ADMIN_FRONT_END: Final = FrontEnd(protocol=ADMIN, connect=_connect, describe=_describe)
