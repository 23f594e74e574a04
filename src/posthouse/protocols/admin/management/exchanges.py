"""Exchanges: listed, shown, declared and deleted."""

from typing import Any, Final

from posthouse.broker.access.operations import Kind
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.table_values import to_json
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.errors import bad_request
from posthouse.protocols.admin.management.listing import item, listed
from posthouse.protocols.admin.management.other_rows import OtherRows
from posthouse.protocols.admin.management.queues import CREATED
from posthouse.protocols.admin.management.requests import (
    body_of,
    boolean,
    channel_of,
    exchange_of,
    namespace_of,
    namespaces_of,
    new_name,
    table,
    text,
)
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import NO_CONTENT, Response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.admin.turns import in_turns
from posthouse.protocols.direct_channel import DirectRefusal

_DELAYED = "x-delayed-message"
_COMMAND_INVALID = 503


def exchange_type(exchange: Exchange) -> str:
    return _DELAYED if exchange.definition.delayed else exchange.definition.kind.value


def exchange_view(namespace: Namespace, exchange: Exchange) -> dict[str, Any]:
    definition = exchange.definition
    return {
        "name": exchange.name,
        "vhost": namespace.name,
        "type": exchange_type(exchange),
        "durable": definition.durable,
        "auto_delete": definition.auto_delete,
        "internal": definition.internal,
        "arguments": to_json(dict(definition.arguments)),
        "policy": None,
        "user_who_performed_action": "rmq-internal" if is_predeclared(exchange) else "",
    }


def is_predeclared(exchange: Exchange) -> bool:
    return not exchange.name or exchange.name.startswith("amq.")


def sees(context: CallContext, namespace: Namespace, exchange: Exchange) -> bool:
    """Everyone sees the default exchange."""
    return not exchange.name or context.guard.sees(Kind.TOPIC, namespace.topic_of(exchange.name))


async def _list(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    others = OtherRows(context, request, parameters)
    rows: list[tuple[Namespace, Exchange]] = []
    for namespace in namespaces_of(context, parameters):
        exchanges = sorted(namespace.router.exchanges(), key=lambda each: each.name)
        rows += [(namespace, each) async for each in in_turns(exchanges) if sees(context, namespace, each)]
    return await listed(
        request, rows, lambda row: exchange_view(*row), lambda row: row[1].name, others=others
    )


async def _show(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    exchange = exchange_of(context, namespace, parameters["name"])
    return item(request, exchange_view(namespace, exchange) | {"incoming": [], "outgoing": []})


async def _declare(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace, name, body = namespace_of(context, parameters), new_name(parameters["name"]), body_of(request)
    is_new = all(each.name != name for each in namespace.router.exchanges())
    kind = text(body, "type", "direct")
    try:
        await channel_of(context, namespace).declare_exchange(
            name,
            kind,
            durable=boolean(body, "durable", default=True),
            auto_delete=boolean(body, "auto_delete"),
            internal=boolean(body, "internal"),
            arguments=table(body, "arguments"),
        )
    except DirectRefusal as refused:
        if refused.code == _COMMAND_INVALID:
            raise bad_request(f"invalid exchange type '{kind}'") from None
        raise
    return CREATED if is_new else NO_CONTENT


async def _delete(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    exchange = exchange_of(context, namespace, parameters["name"])
    await channel_of(context, namespace).delete_exchange(
        exchange.name, if_unused=request.query.get("if-unused") == "true"
    )
    return NO_CONTENT


ROUTES: Final = (
    Route(method="GET", path="/api/exchanges", handler=_list),
    Route(method="GET", path="/api/exchanges/{vhost}", handler=_list),
    Route(method="GET", path="/api/exchanges/{vhost}/{name}", handler=_show),
    Route(method="PUT", path="/api/exchanges/{vhost}/{name}", handler=_declare),
    Route(method="DELETE", path="/api/exchanges/{vhost}/{name}", handler=_delete),
)
