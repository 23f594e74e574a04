"""The dispatcher of the admin front end, put together. Imports every handler: see `lazy_dispatch`."""

from collections.abc import Mapping

from posthouse.listener_settings import ADMIN
from posthouse.protocols.admin.context import CallContext, Kept
from posthouse.protocols.admin.decoding.schemas import Schemas
from posthouse.protocols.admin.dispatch import RequestDispatcher
from posthouse.protocols.admin.event_sources import sources
from posthouse.protocols.admin.events import EventHub, EventSource
from posthouse.protocols.admin.flow_rates import FlowRates
from posthouse.protocols.admin.half_checks import HalfChecks
from posthouse.protocols.admin.handlers.metrics import metrics_route
from posthouse.protocols.admin.open_streams import OpenStreams
from posthouse.protocols.admin.other_brokers import this_broker
from posthouse.protocols.admin.rates import Rates
from posthouse.protocols.admin.router import PathRouter
from posthouse.protocols.admin.routes import ROUTES
from posthouse.protocols.admin.saga_states import SagaStates
from posthouse.protocols.admin.traffic_totals import TrafficTotals
from posthouse.protocols.front_end import Backend


def new_dispatcher(backend: Backend) -> RequestDispatcher:
    broker = backend.broker
    half_checks = HalfChecks(broker.half_messages)
    broker.half_messages.ask_by(half_checks.ask, is_taken=True)
    kept = Kept(
        flow=FlowRates(broker.monotonic),
        rates=Rates(broker.namespaces),
        schemas=Schemas(),
        traffic=TrafficTotals(broker),
        streams=OpenStreams(),
        half_checks=half_checks,
        sagas=SagaStates(),
    )
    sees_all = broker.access.guard(None, "", ADMIN.name)

    def event_sources(hub: EventHub) -> Mapping[str, EventSource]:
        context = CallContext(
            backend=backend,
            guard=sees_all,
            peer="",
            caller=this_broker(_listener(backend)),
            kept=kept,
            events=hub,
        )
        return sources(context)

    router = PathRouter((*ROUTES, metrics_route(backend)))
    return RequestDispatcher(backend, router, kept, EventHub(event_sources))


def _listener(backend: Backend) -> str:
    """The one on which other brokers are asked."""
    return next(each.name for each in backend.settings.listeners if each.protocol == ADMIN)
