"""Every path that is served."""

from typing import Final

from posthouse.protocols.admin.endpoints import ENDPOINTS
from posthouse.protocols.admin.handlers.health import HEALTH_ROUTES
from posthouse.protocols.admin.management.routes import MANAGEMENT_ROUTES
from posthouse.protocols.admin.openapi import OPENAPI_ROUTE
from posthouse.protocols.admin.router import Route

ROUTES: Final[tuple[Route, ...]] = (
    *HEALTH_ROUTES,
    OPENAPI_ROUTE,
    *MANAGEMENT_ROUTES,
    *(endpoint.route() for endpoint in ENDPOINTS),
)
