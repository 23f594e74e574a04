"""Connections of clients, of all protocols: listed with their channels, and closed."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.listener import Connection
from posthouse.protocols.served import ServedListener

_GRACE_SECONDS = 1.0
"""For the requests in flight of a connection that is closed."""
_MOST_CHANNELS: Final = 20
"""Of one connection in a list: a client may open thousands."""

Peer = Annotated[str, Meta(min_length=1, description="Address and port of the client: 10.0.0.1:51234.")]


class OfConnection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    peer: Peer


class ChannelView(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    transactional: bool
    confirms: bool
    prefetch: int
    consumers: int
    unacked: int
    unconfirmed: int


class ConnectionView(msgspec.Struct, frozen=True, kw_only=True):
    peer: Peer
    listener: str
    protocol: str
    since: Annotated[int, Meta(description="Milliseconds since 1970.")]
    user: Annotated[str | None, Meta(description="null before the login, and where none is required.")]
    client: Annotated[str, Meta(description="Software of the client, as far as it has told.")]
    namespace: Annotated[str | None, Meta(description="Virtual host of an AMQP connection.")]
    tls: bool
    paused: Annotated[bool, Meta(description="Back-pressure: the broker does not read from it.")]
    received_bytes: int
    sent_bytes: int
    held_bytes: Annotated[int, Meta(description="Of the memory budget.")]
    channels: Annotated[
        list[ChannelView], Meta(description=f"In a list at most {_MOST_CHANNELS} of them, by number.")
    ]
    channels_total: int


def view(listener: str, info: ConnectionInfo, *, channels: int | None = None) -> ConnectionView:
    """With at most so many channels; None for all."""
    return ConnectionView(
        peer=info.peer,
        listener=listener,
        protocol=info.protocol,
        since=info.since_ms,
        user=info.user,
        client=info.client,
        namespace=info.namespace,
        tls=info.has_tls,
        paused=info.is_paused,
        received_bytes=info.received_bytes,
        sent_bytes=info.sent_bytes,
        held_bytes=info.held_bytes,
        channels=[
            ChannelView(
                number=each.number,
                transactional=each.is_transactional,
                confirms=each.confirms,
                prefetch=each.prefetch,
                consumers=each.consumers,
                unacked=each.unacked,
                unconfirmed=each.unconfirmed,
            )
            for each in info.channels[:channels]
        ],
        channels_total=len(info.channels),
    )


LISTED: Final[SpreadList[ConnectionView]] = SpreadList(
    noun="namespaces",
    scopes=NAMESPACES,
    path=("v1", "connections"),
    answer=Page[ConnectionView],
    page=lambda answer: answer,
    name=lambda connection: _key(connection.peer, connection.listener),
)
"""Those of the other brokers that serve namespaces."""


def _key(peer: str, listener: str) -> str:
    return f"{peer} {listener}"


def by_key(context: CallContext) -> dict[str, tuple[ServedListener, Connection]]:
    """Two listeners may have a connection of the same peer."""
    return {
        _key(connection.peer, served.name): (served, connection)
        for served, connection in context.listeners.clients()
    }


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[ConnectionView]:
    context.require_cluster(Operation.DESCRIBE)
    return await LISTED.whole(context, paging, lambda: _page(context, paging))


async def _page(context: CallContext, paging: Paging) -> Page[ConnectionView]:
    """Of this broker."""
    found = by_key(context)

    def item(key: str) -> ConnectionView:
        served, connection = found[key]
        return view(served.name, connection.info, channels=_MOST_CHANNELS)

    return await page_in_turns(found, paging, item, sees=lambda key: True)


async def _describe(
    context: CallContext, parameters: OfConnection, body: NoBody
) -> ConnectionView | Response:
    context.require_cluster(Operation.DESCRIBE)
    for served, connection in _find(context, parameters.peer):
        return view(served.name, connection.info)
    return await _elsewhere(context, "GET", parameters)


async def _close(context: CallContext, parameters: OfConnection, body: NoBody) -> Response | None:
    context.require_cluster(Operation.ALTER)
    found = _find(context, parameters.peer)
    for served, connection in found:
        close(context, served, connection)
    return None if found else await _elsewhere(context, "DELETE", parameters)


def _find(context: CallContext, peer: str) -> list[tuple[ServedListener, Connection]]:
    """Mostly there is at most one."""
    return [row for row in context.listeners.clients() if row[1].peer == peer]


async def _elsewhere(context: CallContext, method: str, parameters: OfConnection) -> Response:
    """The answer of the broker that has the connection. Raises Problem 404."""
    path = ("v1", "connections", parameters.peer)
    found = await ask_brokers_with_clients(
        context, HttpRequest(method=method, segments=path, query={}, headers={})
    )
    if found is None:
        raise Problem(404, f"there is no connection from {parameters.peer[:200]!r}")
    return found


async def ask_brokers_with_clients(context: CallContext, request: HttpRequest) -> Response | None:
    """The answer of the broker that has what the request is about; None if no other broker has."""
    for other in context.parts(NAMESPACES, "namespaces").others:
        answer = await other.ask(request)
        if answer.status != HTTPStatus.NOT_FOUND:
            return answer
    return None


def close(context: CallContext, served: ServedListener, connection: Connection, reason: str = "") -> None:
    connection.finish()
    asyncio.get_running_loop().call_later(_GRACE_SECONDS, _abort_if_open, served, connection)
    context.guard.note("close-connection", f"connection:{connection.peer}", reason)


def _abort_if_open(served: ServedListener, connection: Connection) -> None:
    if connection in served.listener:
        connection.abort()


CONNECTIONS: Final = (
    Endpoint(
        method="GET",
        path="/v1/connections",
        summary="List the connections of clients",
        tag="connections",
        handler=_list,
        parameters=Paging,
        result=Page[ConnectionView],
    ),
    Endpoint(
        method="GET",
        path="/v1/connections/{peer}",
        summary="Describe a connection with all its channels",
        tag="connections",
        handler=_describe,
        parameters=OfConnection,
        result=ConnectionView,
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/connections/{peer}",
        summary="Close a connection: its requests in flight have a second to be answered",
        tag="connections",
        handler=_close,
        parameters=OfConnection,
        problems=(404,),
    ),
)
