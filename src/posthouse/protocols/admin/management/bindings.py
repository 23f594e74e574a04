"""Bindings: listed by either end, made and removed.

A binding has no name. Its `properties_key` tells it from others between the same ends: the routing key, and a
hash of the arguments where there are any.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

import msgspec

from posthouse.broker.access.operations import Kind
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.routing.definitions import Binding
from posthouse.broker.routing.table_values import to_json
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.handlers.bindings import sees_binding
from posthouse.protocols.admin.management.errors import not_found
from posthouse.protocols.admin.management.listing import item, listed
from posthouse.protocols.admin.management.other_rows import OtherRows
from posthouse.protocols.admin.management.requests import (
    body_of,
    channel_of,
    exchange_name,
    exchange_of,
    namespace_of,
    namespaces_of,
    queue_of,
    table,
    text,
)
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import NO_CONTENT, Response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.admin.turns import in_turns

_QUEUE, _EXCHANGE = "q", "e"


def properties_key(binding: Binding) -> str:
    key = quote(binding.key.decode(errors="replace"), safe="").replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    encoded = msgspec.json.encode(to_json(dict(binding.arguments)), order="sorted")
    return f"{key}~{urlsafe_b64encode(sha256(encoded).digest()[:6]).decode()}"


def binding_view(namespace: Namespace, binding: Binding) -> dict[str, Any]:
    return {
        "source": binding.source,
        "vhost": namespace.name,
        "destination": binding.destination,
        "destination_type": "exchange" if binding.to_exchange else "queue",
        "routing_key": binding.key.decode(errors="replace"),
        "arguments": to_json(dict(binding.arguments)),
        "properties_key": properties_key(binding),
    }


def _implicit(name: str) -> Binding:
    """Every queue is bound to the default exchange by its name."""
    return Binding(source="", destination=name, key=name.encode())


def _all_of(namespace: Namespace) -> Iterator[Binding]:
    """Of copies of what there is: others may change it meanwhile."""
    yield from (_implicit(name) for name in sorted(namespace.queues))
    yield from namespace.router.bindings()


async def _answer(
    context: CallContext,
    request: HttpRequest,
    rows: list[tuple[Namespace, Binding]],
    others: OtherRows | None = None,
) -> Response:
    visible = [row async for row in in_turns(rows) if _sees(context, *row)]
    return await listed(
        request, visible, lambda row: binding_view(*row), lambda row: row[1].destination, others=others
    )


def _sees(context: CallContext, namespace: Namespace, binding: Binding) -> bool:
    if not binding.source:
        return context.guard.sees(Kind.TOPIC, namespace.topic_of(binding.destination))
    return sees_binding(context, namespace, binding)


async def _list(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    others = OtherRows(context, request, parameters)
    rows = [
        (namespace, binding)
        for namespace in namespaces_of(context, parameters)
        async for binding in in_turns(_all_of(namespace))
    ]
    return await _answer(context, request, rows, others)


async def _of_queue(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    name = queue_of(context, namespace, parameters["name"]).name
    found = [_implicit(name), *namespace.router.bindings(destination=name)]
    return await _answer(context, request, [(namespace, each) for each in found])


async def _from_exchange(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    name = exchange_of(context, namespace, parameters["name"]).name
    found = namespace.router.bindings(source=name) if name else [_implicit(each) for each in namespace.queues]
    return await _answer(context, request, [(namespace, each) for each in found])


async def _to_exchange(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    name = exchange_of(context, namespace, parameters["name"]).name
    found = namespace.router.bindings(destination=name, to_exchange=True)
    return await _answer(context, request, [(namespace, each) for each in found])


def _between(context: CallContext, namespace: Namespace, parameters: Parameters) -> list[Binding]:
    """Bindings between the ends that the path names."""
    source, destination = (
        exchange_of(context, namespace, parameters["source"]).name,
        parameters["destination"],
    )
    if _is_to_exchange(parameters):
        name = exchange_of(context, namespace, destination).name
        return namespace.router.bindings(source=source, destination=name, to_exchange=True)
    name = queue_of(context, namespace, destination).name
    return namespace.router.bindings(source=source, destination=name) if source else [_implicit(name)]


def _is_to_exchange(parameters: Parameters) -> bool:
    if parameters["kind"] not in (_QUEUE, _EXCHANGE):
        raise not_found()
    return parameters["kind"] == _EXCHANGE


async def _list_between(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    return await _answer(
        context, request, [(namespace, each) for each in _between(context, namespace, parameters)]
    )


def _one(context: CallContext, namespace: Namespace, parameters: Parameters) -> Binding:
    for binding in _between(context, namespace, parameters):
        if properties_key(binding) == parameters["key"]:
            return binding
    raise not_found()


async def _show(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    binding = _one(context, namespace, parameters)
    if not _sees(context, namespace, binding):
        raise not_found()
    return item(request, binding_view(namespace, binding))


async def _bind(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace, body = namespace_of(context, parameters), body_of(request)
    binding = Binding(
        source=exchange_name(parameters["source"]),
        destination=parameters["destination"],
        to_exchange=_is_to_exchange(parameters),
        key=text(body, "routing_key").encode(),
        arguments=table(body, "arguments"),
    )
    await channel_of(context, namespace).bind(binding)
    note_binding(context, "bind", namespace, binding)
    place = f"{quote(binding.destination, safe='')}/{quote(properties_key(binding), safe='~')}"
    return Response(status=201, content_type="", headers=(("location", place),))


async def _unbind(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace = namespace_of(context, parameters)
    binding = _one(context, namespace, parameters)
    await channel_of(context, namespace).unbind(binding)
    note_binding(context, "unbind", namespace, binding)
    return NO_CONTENT


def note_binding(context: CallContext, action: str, namespace: Namespace, binding: Binding) -> None:
    source, destination = namespace.topic_of(binding.source), namespace.topic_of(binding.destination)
    context.guard.note(action, f"{Kind.TOPIC}:{destination}", f"from {source}")


_BETWEEN: Final = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"
ROUTES: Final = (
    Route(method="GET", path="/api/bindings", handler=_list),
    Route(method="GET", path="/api/bindings/{vhost}", handler=_list),
    Route(method="GET", path=_BETWEEN, handler=_list_between),
    Route(method="POST", path=_BETWEEN, handler=_bind),
    Route(method="GET", path=f"{_BETWEEN}/{{key}}", handler=_show),
    Route(method="DELETE", path=f"{_BETWEEN}/{{key}}", handler=_unbind),
    Route(method="GET", path="/api/queues/{vhost}/{name}/bindings", handler=_of_queue),
    Route(method="GET", path="/api/exchanges/{vhost}/{name}/bindings/source", handler=_from_exchange),
    Route(method="GET", path="/api/exchanges/{vhost}/{name}/bindings/destination", handler=_to_exchange),
)
