"""Lists of what RabbitMQ has and Posthouse does not: empty, so that tools which ask for everything go on."""

from typing import Final

from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response, json_response
from posthouse.protocols.admin.router import Parameters, Route

_LISTS: Final = (
    "/api/policies",
    "/api/policies/{vhost}",
    "/api/operator-policies",
    "/api/operator-policies/{vhost}",
    "/api/parameters",
    "/api/parameters/{component}",
    "/api/parameters/{component}/{vhost}",
    "/api/global-parameters",
    "/api/vhost-limits",
    "/api/vhost-limits/{vhost}",
    "/api/user-limits",
    "/api/user-limits/{user}",
    "/api/topic-permissions",
    "/api/users/{user}/topic-permissions",
    "/api/vhosts/{vhost}/topic-permissions",
    "/api/feature-flags",
    "/api/extensions",
)


async def _nothing(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    if "page" in request.query:
        empty = {"total_count": 0, "item_count": 0, "filtered_count": 0, "page": 1, "page_size": 100}
        return json_response({**empty, "page_count": 1, "items": []})
    return json_response([])


async def _auth(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    """How RabbitMQ's pages log in: by user name and password."""
    return json_response({"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})


ROUTES: Final = (
    *(Route(method="GET", path=path, handler=_nothing) for path in _LISTS),
    Route(method="GET", path="/api/auth", handler=_auth),
)
