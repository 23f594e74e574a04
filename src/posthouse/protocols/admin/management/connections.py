"""Connections of AMQP clients, and their channels."""

from collections.abc import Mapping
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from posthouse.broker.access.operations import Operation
from posthouse.listener_settings import AMQP
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.handlers.connections import ask_brokers_with_clients, close
from posthouse.protocols.admin.management.errors import not_found
from posthouse.protocols.admin.management.listing import item, listed
from posthouse.protocols.admin.management.node import connection_name, iso_time, node_name, peer_address
from posthouse.protocols.admin.management.other_rows import OtherRows
from posthouse.protocols.admin.management.requests import namespace_of
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import NO_CONTENT, Response
from posthouse.protocols.admin.router import Handler, Parameters, Route
from posthouse.protocols.admin.turns import in_turns
from posthouse.protocols.connection_info import ChannelInfo, ConnectionInfo
from posthouse.protocols.listener import Connection
from posthouse.protocols.served import ServedListener

_Row = tuple[ServedListener, Connection]


def amqp_connections(context: CallContext) -> list[_Row]:
    return [row for row in context.listeners.clients() if row[0].protocol == AMQP.name]


def connection_view(context: CallContext, row: _Row) -> dict[str, Any]:
    served, connection = row
    info = connection.info
    address = served.address
    state = "flow" if info.is_paused else "running"
    rate = {"rate": 0.0}
    return {
        "name": connection_name(context, info.peer),
        "node": node_name(),
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "state": "starting" if info.namespace is None else state,
        "user": info.user or "",
        "user_who_performed_action": info.user or "",
        "user_provided_name": str(info.client_properties.get("connection_name", "")),
        "vhost": info.namespace or "",
        "host": "" if address is None else address.host,
        "port": 0 if address is None else address.port,
        "ssl": info.has_tls,
        "ssl_protocol": None,
        "ssl_key_exchange": None,
        "ssl_cipher": None,
        "ssl_hash": None,
        "peer_cert_subject": None,
        "peer_cert_issuer": None,
        "peer_cert_validity": None,
        "auth_mechanism": info.mechanism,
        "timeout": info.heartbeat_seconds,
        "frame_max": info.frame_max,
        "channel_max": info.channel_max,
        "channels": len(info.channels),
        "connected_at": info.since_ms,
        "client_properties": _plain(info.client_properties),
        "recv_oct": info.received_bytes,
        "recv_oct_details": rate,
        "recv_cnt": 0,
        "send_oct": info.sent_bytes,
        "send_oct_details": rate,
        "send_cnt": 0,
        "send_pend": 0,
        "reductions": 0,
        "reductions_details": rate,
        "garbage_collection": {},
    } | peer_address(info.peer)


def channel_view(context: CallContext, info: ConnectionInfo, channel: ChannelInfo) -> dict[str, Any]:
    name = connection_name(context, info.peer)
    return {
        "name": f"{name} ({channel.number})",
        "number": channel.number,
        "node": node_name(),
        "vhost": info.namespace or "",
        "user": info.user or "",
        "user_who_performed_action": info.user or "",
        "connection_details": {"name": name} | peer_address(info.peer),
        "state": "flow" if info.is_paused else "running",
        "confirm": channel.confirms,
        "transactional": channel.is_transactional,
        "consumer_count": channel.consumers,
        "messages_unacknowledged": channel.unacked,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.global_prefetch,
        "pending_raft_commands": 0,
        "idle_since": iso_time(context.broker.now_ms()),
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        "garbage_collection": {},
    }


def _plain(value: object) -> object:
    """What clients tell of themselves, as JSON can have it."""
    match value:
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return value.decode(errors="replace")
        case Decimal():
            return str(value)
        case bool() | str() | float() | None:
            return value
        case int():
            return int(value)
        case _:
            return str(value)


async def _list(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    others = OtherRows(context, request, parameters)
    rows = amqp_connections(context)
    if "vhost" in parameters:
        vhost = namespace_of(context, parameters).name
        rows = [row async for row in in_turns(rows) if row[1].info.namespace == vhost]
    return await listed(
        request, rows, lambda row: connection_view(context, row), lambda row: row[1].peer, others=others
    )


def _find(context: CallContext, name: str) -> _Row:
    """By the whole name, or by the address of the client, which begins it."""
    peer = name.partition(" -> ")[0]
    for row in amqp_connections(context):
        if row[1].peer == peer:
            return row
    raise not_found()


async def _show(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    return item(request, connection_view(context, _find(context, parameters["name"])))


async def _close(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.ALTER)
    served, connection = _find(context, parameters["name"])
    close(context, served, connection, request.headers.get("x-reason", "")[:200])
    return NO_CONTENT


async def _channels(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    others = OtherRows(context, request, parameters)
    vhost = namespace_of(context, parameters).name if "vhost" in parameters else None
    found = await _channels_of(amqp_connections(context), vhost)
    return await listed(
        request, found, lambda row: channel_view(context, *row), lambda row: row[0].peer, others=others
    )


async def _channels_of_one(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    found = await _channels_of([_find(context, parameters["name"])], None)
    return await listed(request, found, lambda row: channel_view(context, *row), lambda row: row[0].peer)


async def _channels_of(rows: list[_Row], vhost: str | None) -> list[tuple[ConnectionInfo, ChannelInfo]]:
    """With a virtual host, only those of its connections."""
    found: list[tuple[ConnectionInfo, ChannelInfo]] = []
    async for _, connection in in_turns(rows):
        info = connection.info
        if vhost is None or info.namespace == vhost:
            found += [(info, channel) for channel in info.channels]
    return found


async def _show_channel(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    name, _, number = parameters["channel"].rpartition(" ")
    info = _find(context, name)[1].info
    for channel in info.channels:
        if number == f"({channel.number})":
            more: dict[str, Any] = {"consumer_details": [], "deliveries": [], "publishes": []}
            return item(request, channel_view(context, info, channel) | more)
    raise not_found()


def _wherever(handler: Handler) -> Handler:
    """A connection that this broker does not have may be at another one."""

    async def answer(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
        try:
            return await handler(context, request, parameters)
        except Problem as problem:
            if problem.status != HTTPStatus.NOT_FOUND:
                raise
            found = await ask_brokers_with_clients(context, request)
            if found is None:
                raise
            return found

    return answer


ROUTES: Final = (
    Route(method="GET", path="/api/connections", handler=_list),
    Route(method="GET", path="/api/connections/{name}", handler=_wherever(_show)),
    Route(method="DELETE", path="/api/connections/{name}", handler=_wherever(_close)),
    Route(method="GET", path="/api/connections/{name}/channels", handler=_wherever(_channels_of_one)),
    Route(method="GET", path="/api/vhosts/{vhost}/connections", handler=_list),
    Route(method="GET", path="/api/vhosts/{vhost}/channels", handler=_channels),
    Route(method="GET", path="/api/channels", handler=_channels),
    Route(method="GET", path="/api/channels/{channel}", handler=_wherever(_show_channel)),
)
