"""Exchanges of all namespaces."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.table_values import to_json
from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page
from posthouse.protocols.admin.reachable_namespaces import chosen_namespaces, place_prefix
from posthouse.protocols.admin.turns import in_turns


class ExchangePaging(Paging, frozen=True, kw_only=True, forbid_unknown_fields=True):
    namespace: Annotated[str | None, Meta(description="Only exchanges of this namespace.")] = None


class ExchangeView(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: Annotated[str, Meta(description="Empty for the default exchange.")]
    kind: Annotated[str, Meta(description="direct, fanout, topic or headers.")]
    durable: bool
    auto_delete: bool
    internal: bool
    delayed: Annotated[bool, Meta(description="Messages may carry a delay.")]
    alternate: Annotated[str | None, Meta(description="Gets what matches no binding.")]
    bindings: Annotated[int, Meta(description="Bindings from this exchange.")]
    arguments: dict[str, Any]


def view(namespace: str, exchange: Exchange) -> ExchangeView:
    definition = exchange.definition
    return ExchangeView(
        namespace=namespace,
        name=exchange.name,
        kind=definition.kind,
        durable=definition.durable,
        auto_delete=definition.auto_delete,
        internal=definition.internal,
        delayed=definition.delayed,
        alternate=definition.alternate,
        bindings=len(exchange.bound),
        arguments=to_json(dict(definition.arguments)),  # type: ignore[arg-type]
    )


async def _list(context: CallContext, paging: ExchangePaging, body: NoBody) -> Page[ExchangeView]:
    return await LISTED.whole(context, paging, lambda: _page(context, paging))


async def _page(context: CallContext, paging: ExchangePaging) -> Page[ExchangeView]:
    """Of this broker."""
    found: dict[str, tuple[str, Exchange]] = {}
    for namespace in chosen_namespaces(context, paging.namespace):
        prefix = place_prefix(namespace.name)
        async for exchange in in_turns(namespace.router.exchanges()):
            if paging.search in exchange.name and (
                not exchange.name or context.guard.sees(Kind.TOPIC, namespace.topic_of(exchange.name))
            ):
                found[prefix + exchange.name] = (namespace.name, exchange)
    return page(found, msgspec.structs.replace(paging, search=""), lambda key: view(*found[key]))


LISTED: Final[SpreadList[ExchangeView]] = SpreadList(
    noun="namespaces",
    scopes=NAMESPACES,
    path=("v1", "exchanges"),
    answer=Page[ExchangeView],
    page=lambda answer: answer,
    name=lambda exchange: place_prefix(exchange.namespace) + exchange.name,
)
"""Those of other brokers."""


EXCHANGES: Final = (
    Endpoint(
        method="GET",
        path="/v1/exchanges",
        summary="List exchanges",
        tag="queues",
        handler=_list,
        parameters=ExchangePaging,
        result=Page[ExchangeView],
        problems=(404,),
    ),
)
