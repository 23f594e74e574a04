"""Definitions: everything that was declared, exported to one document and imported from one.

What a document of RabbitMQ has and Posthouse does not is skipped, and logged: policies, parameters, limits,
and users whose password is given as a hash. What is there already must be the same.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from posthouse.broker.access.operations import Operation
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.routing.definitions import Binding
from posthouse.broker.routing.table_values import to_json
from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.bindings import binding_view, note_binding
from posthouse.protocols.admin.management.errors import ManagementRefusal, bad_request
from posthouse.protocols.admin.management.exchanges import exchange_view, is_predeclared
from posthouse.protocols.admin.management.node import RABBITMQ_VERSION
from posthouse.protocols.admin.management.requests import (
    body_of,
    boolean,
    channel_of,
    namespace_of,
    namespaces_of,
    new_name,
    table,
    text,
)
from posthouse.protocols.admin.management.users import (
    permissions,
    set_permissions,
    set_user,
    user_names,
    user_view,
)
from posthouse.protocols.admin.management.vhosts import FIXED
from posthouse.protocols.admin.other_brokers import Parts
from posthouse.protocols.admin.reachable_namespaces import namespace_names
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import JSON, NO_CONTENT, Response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.admin.turns import in_turns

log = logging.getLogger(__name__)

_SKIPPED: Final = ("policies", "operator_policies", "parameters", "topic_permissions", "global_parameters")
_IMPORTED: Final = ("exchanges", "queues", "bindings")
"""In this order: a binding needs its ends."""
_OF_EXCHANGES: Final = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
_OF_BINDINGS: Final = ("source", "vhost", "destination", "destination_type", "routing_key", "arguments")

_MOST_BODY: Final = 8 * 1024 * 1024
"""An export of 10,000 queues has 2 MB."""
_PIECE: Final = 64 * 1024


_View: TypeAlias = Mapping[str, Any] | msgspec.Raw
"""Those of other brokers are JSON already."""


class _Exported(msgspec.Struct):
    """By another broker: of the virtual hosts that it serves."""

    vhosts: list[msgspec.Raw]
    queues: list[msgspec.Raw]
    exchanges: list[msgspec.Raw]
    bindings: list[msgspec.Raw]


async def _export(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    parts = Parts() if "vhost" in parameters else context.parts(NAMESPACES, "namespaces")
    head: dict[str, Any] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Posthouse",
    }
    if "vhost" not in parameters:
        head |= {
            "users": [user_view(context, name) for name in user_names(context)],
            "vhosts": [{"name": each.name} for each in context.broker.namespaces],
            "permissions": await permissions(context),
            "topic_permissions": [],
            "global_parameters": [],
        }
    head |= {"parameters": [], "policies": []}
    namespaces = namespaces_of(context, parameters)
    lists: dict[str, Iterable[_View]] = {
        "queues": (view for each in namespaces for view in _queues(each)),
        "exchanges": (view for each in namespaces for view in _exchanges(each)),
        "bindings": (view for each in namespaces for view in _bindings(each)),
    }
    if "vhost" in parameters:
        return Response(body=_document(head, lists, "vhost"))
    for other in parts.others:
        exported = msgspec.json.decode(await other.read(request.segments, {}), type=_Exported)
        head["vhosts"] += exported.vhosts
        for kind, views in lists.items():
            lists[kind] = chain(views, getattr(exported, kind))
    parts.check()
    return Response(body=_document(head, lists, ""))


async def _document(
    head: Mapping[str, Any], lists: Mapping[str, Iterable[_View]], hidden: str
) -> AsyncIterator[bytes]:
    """One JSON object, sent in pieces: an export of very many queues does not hold up other clients."""
    piece = bytearray(msgspec.json.encode(head)[:-1])
    for kind, views in lists.items():
        piece += b',"%s":[' % kind.encode()
        separator = b""
        async for view in in_turns(views):
            shown = (
                view
                if isinstance(view, msgspec.Raw)
                else {name: value for name, value in view.items() if name != hidden}
            )
            piece += separator + msgspec.json.encode(shown)
            separator = b","
            if len(piece) > _PIECE:
                yield bytes(piece)
                piece.clear()
        piece += b"]"
    yield bytes(piece + b"}")


def _queues(namespace: Namespace) -> Iterator[Mapping[str, Any]]:
    for queue in list(namespace.queues.values()):
        if not queue.definition.exclusive:
            yield {
                "name": queue.name,
                "vhost": namespace.name,
                "durable": queue.definition.durable,
                "auto_delete": queue.definition.auto_delete,
                "arguments": to_json(dict(queue.definition.arguments)),
            }


def _exchanges(namespace: Namespace) -> Iterator[Mapping[str, Any]]:
    for exchange in list(namespace.router.exchanges()):
        if not is_predeclared(exchange):
            yield _only(exchange_view(namespace, exchange), _OF_EXCHANGES)


def _bindings(namespace: Namespace) -> Iterator[Mapping[str, Any]]:
    for binding in list(namespace.router.bindings()):
        yield _only(binding_view(namespace, binding), _OF_BINDINGS)


def _only(view: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: view[name] for name in names}


async def _import(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    document = body_of(request)
    if "vhost" in parameters:
        _tell_of_skipped(document)
        return await _import_into(context, namespace_of(context, parameters), document)
    # Everything is looked at before anything is made.
    parts: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for kind in _IMPORTED:
        for each in _objects(document, kind):
            parts.setdefault(_vhost(context, each), {}).setdefault(kind, []).append(each)
    await _import_access(context, document)
    _tell_of_skipped(document)
    for vhost, part in parts.items():
        response = await _import_part(context, vhost, part)
        if response.status >= HTTPStatus.BAD_REQUEST:
            return response  # of another broker
    return NO_CONTENT


async def _import_part(context: CallContext, vhost: str, part: Mapping[str, Any]) -> Response:
    """Into one virtual host, by the broker that serves it."""
    path, headers = ("api", "definitions", vhost), {"content-type": JSON}
    request = HttpRequest(
        method="POST", segments=path, query={}, headers=headers, body=msgspec.json.encode(part)
    )
    namespaces = context.broker.namespaces
    return await context.in_namespace(
        vhost, request, lambda: _import_into(context, namespaces.get(vhost), part)
    )


def _tell_of_skipped(document: Mapping[str, Any]) -> None:
    for kind in _SKIPPED:
        names = [str(each.get("name")) for each in _objects(document, kind)]
        if names and names != ["internal_cluster_id"]:
            log.warning("import of definitions: %s are skipped: %s", kind, ", ".join(names)[:500])


async def _import_into(context: CallContext, namespace: Namespace, document: Mapping[str, Any]) -> Response:
    exchanges, queues, bindings = (_objects(document, kind) for kind in _IMPORTED)
    for each in exchanges:
        await channel_of(context, namespace).declare_exchange(
            new_name(text(each, "name")),
            text(each, "type", "direct"),
            durable=boolean(each, "durable", default=True),
            auto_delete=boolean(each, "auto_delete"),
            internal=boolean(each, "internal"),
            arguments=table(each, "arguments"),
        )
    for each in queues:
        await channel_of(context, namespace).declare_queue(
            new_name(text(each, "name")),
            durable=boolean(each, "durable", default=True),
            auto_delete=boolean(each, "auto_delete"),
            arguments=table(each, "arguments"),
        )
    for each in bindings:
        if text(each, "source"):
            binding = _binding(each)
            await channel_of(context, namespace).bind(binding)
            note_binding(context, "bind", namespace, binding)
    return NO_CONTENT


def _binding(each: Mapping[str, Any]) -> Binding:
    return Binding(
        source=text(each, "source"),
        destination=text(each, "destination"),
        to_exchange=text(each, "destination_type", "queue") == "exchange",
        key=text(each, "routing_key").encode(),
        arguments=table(each, "arguments"),
    )


def _objects(document: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    found = document.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise bad_request(f"{kind} must be a list of objects")
    return found


def _vhost(context: CallContext, each: Mapping[str, Any], field: str = "vhost") -> str:
    name = text(each, field, "/")
    if name not in namespace_names(context):
        raise ManagementRefusal(400, "bad_request", f"no_such_vhost {name!r}: {FIXED}")
    return name


async def _import_access(context: CallContext, document: Mapping[str, Any]) -> None:
    for each in _objects(document, "vhosts"):
        _vhost(context, each, "name")
    users, rules = _objects(document, "users"), _objects(document, "permissions")
    known = set(user_names(context))
    users = [each for each in users if "password" in each or text(each, "name") not in known]
    if not context.settings.must_log_in or (not users and not rules):
        return
    context.require_cluster(Operation.ALTER)
    for each in users:
        if "password" in each:
            await set_user(context, text(each, "name"), each)
        else:
            log.warning("import of definitions: user %r is skipped: it has no password", each.get("name"))
    for each in rules:
        user = text(each, "user")
        vhost = _vhost(context, each)
        if context.broker.access.users.get(user) is None or user in context.settings.superusers:
            continue
        try:
            await set_permissions(context, user, vhost, each)
        except ManagementRefusal as refusal:
            log.warning("import of definitions: permissions of user %r are skipped: %s", user, refusal)


ROUTES: Final = (
    Route(method="GET", path="/api/definitions", handler=_export),
    Route(method="POST", path="/api/definitions", handler=_import, most_body=_MOST_BODY),
    Route(method="GET", path="/api/definitions/{vhost}", handler=_export),
    Route(method="POST", path="/api/definitions/{vhost}", handler=_import, most_body=_MOST_BODY),
)
