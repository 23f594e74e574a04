"""Bindings of all namespaces, but for those from the default exchange, which every queue has."""

from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.routing.definitions import Binding
from posthouse.broker.routing.encoding import encode_binding
from posthouse.broker.routing.table_values import to_json
from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page
from posthouse.protocols.admin.reachable_namespaces import chosen_namespaces, place_prefix
from posthouse.protocols.admin.turns import in_turns


class BindingPaging(Paging, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`search` is looked for in the names of both ends."""

    namespace: Annotated[str | None, Meta(description="Only bindings of this namespace.")] = None
    source: Annotated[str | None, Meta(description="Only bindings from this exchange.")] = None
    destination: Annotated[str | None, Meta(description="Only bindings to the queue or exchange.")] = None


class BindingView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="Unique. Lists are sorted by it, and events name it.")]
    namespace: str
    source: Annotated[str, Meta(description="Name of an exchange.")]
    destination: str
    to_exchange: Annotated[bool, Meta(description="The destination is an exchange, not a queue.")]
    key: Annotated[str, Meta(description="Routing key, or pattern of routing keys.")]
    arguments: dict[str, Any]


def sees_binding(context: CallContext, namespace: Namespace, binding: Binding) -> bool:
    """A client that sees one of its ends sees the binding."""
    guard = context.guard
    return guard.sees(Kind.TOPIC, namespace.topic_of(binding.source)) or guard.sees(
        Kind.TOPIC, namespace.topic_of(binding.destination)
    )


def _is_meant(paging: BindingPaging, binding: Binding) -> bool:
    return (
        paging.source in (None, binding.source)
        and paging.destination in (None, binding.destination)
        and (paging.search in binding.source or paging.search in binding.destination)
    )


async def _list(context: CallContext, paging: BindingPaging, body: NoBody) -> Page[BindingView]:
    return await LISTED.whole(context, paging, lambda: _page(context, paging))


async def _page(context: CallContext, paging: BindingPaging) -> Page[BindingView]:
    """Of this broker."""
    found: dict[str, tuple[str, Binding]] = {}
    for namespace in chosen_namespaces(context, paging.namespace):
        async for binding in in_turns(namespace.router.bindings()):
            if _is_meant(paging, binding) and sees_binding(context, namespace, binding):
                found[_id(namespace.name, binding)] = (namespace.name, binding)
    return page(found, msgspec.structs.replace(paging, search=""), lambda key: view(*found[key]))


LISTED: Final[SpreadList[BindingView]] = SpreadList(
    noun="namespaces",
    scopes=NAMESPACES,
    path=("v1", "bindings"),
    answer=Page[BindingView],
    page=lambda answer: answer,
    name=lambda binding: binding.id,
)
"""Those of other brokers."""


def _id(namespace: str, binding: Binding) -> str:
    """Unique: bindings may differ in their arguments alone."""
    identity = sha256(encode_binding(binding)).hexdigest()[:16]
    return f"{place_prefix(namespace)}{binding.source}/{binding.destination}/{identity}"


def view(namespace: str, binding: Binding) -> BindingView:
    return BindingView(
        id=_id(namespace, binding),
        namespace=namespace,
        source=binding.source,
        destination=binding.destination,
        to_exchange=binding.to_exchange,
        key=binding.key.decode(errors="replace"),
        arguments=to_json(dict(binding.arguments)),  # type: ignore[arg-type]
    )


BINDINGS: Final = (
    Endpoint(
        method="GET",
        path="/v1/bindings",
        summary="List bindings",
        tag="queues",
        handler=_list,
        parameters=BindingPaging,
        result=Page[BindingView],
        problems=(404,),
    ),
)
