"""Every path of the management API."""

from dataclasses import replace
from typing import Final

from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management import (
    absent,
    bindings,
    connections,
    definitions,
    exchanges,
    health,
    messages,
    overview,
    queues,
    users,
    vhosts,
)
from posthouse.protocols.admin.management.errors import refusal_of
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.direct_channel import DirectRefusal


def _by_holder(route: Route) -> Route:
    """A call about one virtual host is answered by the broker that serves it."""
    if "{vhost}" not in route.path:
        return route

    async def answer(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
        return await context.in_namespace(
            parameters["vhost"], request, lambda: route.handler(context, request, parameters)
        )

    return replace(route, handler=answer)


def _telling_refusals(route: Route) -> Route:
    async def answer(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
        try:
            return await route.handler(context, request, parameters)
        except DirectRefusal as refused:
            raise refusal_of(refused) from None

    return replace(route, handler=answer)


_OF_VIRTUAL_HOSTS: Final = (
    *bindings.ROUTES,
    *connections.ROUTES,
    *definitions.ROUTES,
    *exchanges.ROUTES,
    *health.ROUTES,
    *messages.ROUTES,
    *queues.ROUTES,
    *vhosts.ROUTES,
)
MANAGEMENT_ROUTES: Final = tuple(
    _telling_refusals(route)
    for route in (
        *absent.ROUTES,
        *map(_by_holder, _OF_VIRTUAL_HOSTS),
        *overview.ROUTES,
        *users.ROUTES,
    )
)
