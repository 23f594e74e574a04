"""Connections of clients, of all protocols: listed with their channels, and closed."""

import asyncio
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns
from posthouse.protocols.admin.problems import Problem
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


def by_key(context: CallContext) -> dict[str, tuple[ServedListener, Connection]]:
    """Two listeners may have a connection of the same peer."""
    return {
        f"{connection.peer} {served.name}": (served, connection)
        for served, connection in context.listeners.connections()
    }


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[ConnectionView]:
    context.require_cluster(Operation.DESCRIBE)
    found = by_key(context)

    def item(key: str) -> ConnectionView:
        served, connection = found[key]
        return view(served.name, connection.info, channels=_MOST_CHANNELS)

    return await page_in_turns(found, paging, item, sees=lambda key: True)


async def _describe(context: CallContext, parameters: OfConnection, body: NoBody) -> ConnectionView:
    context.require_cluster(Operation.DESCRIBE)
    served, connection = _find(context, parameters.peer)[0]
    return view(served.name, connection.info)


async def _close(context: CallContext, parameters: OfConnection, body: NoBody) -> None:
    context.require_cluster(Operation.ALTER)
    for served, connection in _find(context, parameters.peer):
        close(context, served, connection)


def _find(context: CallContext, peer: str) -> list[tuple[ServedListener, Connection]]:
    """At least one: mostly there is one. Raises Problem 404."""
    found = [row for row in context.listeners.connections() if row[1].peer == peer]
    if not found:
        raise Problem(404, f"there is no connection from {peer[:200]!r}")
    return found


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
