"""Virtual hosts, which are namespaces here: a setting of the broker declares them."""

from typing import Any, Final

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.queues.namespace import Namespace
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.errors import bad_request
from posthouse.protocols.admin.management.listing import item, listed
from posthouse.protocols.admin.management.node import node_name
from posthouse.protocols.admin.management.other_rows import OtherRows
from posthouse.protocols.admin.management.requests import namespace_of
from posthouse.protocols.admin.management.statistics import lengths, message_stats
from posthouse.protocols.admin.rates import Counts, total_of
from posthouse.protocols.admin.reachable_namespaces import reachable_namespaces
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import NO_CONTENT, Response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.admin.turns import in_turns

FIXED: Final = "virtual hosts are declared by the broker's setting `namespaces`, and not here"


async def _view(context: CallContext, namespace: Namespace) -> dict[str, Any]:
    """With the messages of the queues that the client may see."""
    queues, rates = list(namespace.queues.values()), Counts()
    if context.guard.may(Operation.DESCRIBE, Kind.CLUSTER, CLUSTER):
        rates = context.rates.of_namespace(namespace.name)
    else:
        queues = [
            each async for each in in_turns(queues) if context.guard.sees(Kind.TOPIC, each.backing.name)
        ]
    counts = await total_of(queues)
    return {
        "name": namespace.name,
        "description": "Default virtual host" if namespace.name == DEFAULT_NAMESPACE else "",
        "tags": [],
        "default_queue_type": "classic",
        "metadata": {"description": "", "tags": []},
        "tracing": False,
        "cluster_state": {node_name(): "running"},
        "message_stats": message_stats(counts, rates),
    } | lengths(counts, rates)


async def _list(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    others = OtherRows(context, request, parameters)
    views = [await _view(context, each) for each in reachable_namespaces(context)]
    return await listed(request, views, lambda view: view, lambda view: str(view["name"]), others=others)


async def _show(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    return item(request, await _view(context, namespace_of(context, parameters)))


async def _declare(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.ALTER)
    if any(each.name == parameters["vhost"] for each in context.broker.namespaces):
        return NO_CONTENT
    raise bad_request(FIXED)


async def _delete(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.ALTER)
    namespace_of(context, parameters)
    raise bad_request(FIXED)


ROUTES: Final = (
    Route(method="GET", path="/api/vhosts", handler=_list),
    Route(method="GET", path="/api/vhosts/{vhost}", handler=_show),
    Route(method="PUT", path="/api/vhosts/{vhost}", handler=_declare),
    Route(method="DELETE", path="/api/vhosts/{vhost}", handler=_delete),
)
