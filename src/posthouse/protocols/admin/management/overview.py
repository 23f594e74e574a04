"""The broker in one answer, and as a node."""

import os
import platform
import resource
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

import msgspec

from posthouse import __version__
from posthouse.broker.access.operations import Operation
from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.connections import amqp_connections
from posthouse.protocols.admin.management.errors import not_found
from posthouse.protocols.admin.management.listing import item, listed
from posthouse.protocols.admin.management.node import (
    RABBITMQ_VERSION,
    descriptors_used,
    memory_used,
    node_name,
)
from posthouse.protocols.admin.management.statistics import lengths, message_stats, with_rate
from posthouse.protocols.admin.rates import Counts, total_of
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response, json_response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.admin.turns import in_turns

_STARTED: Final = monotonic()
_EXCHANGE_TYPES: Final = ("direct", "fanout", "headers", "topic", "x-delayed-message")
_MECHANISMS: Final = ("AMQPLAIN", "EXTERNAL", "PLAIN")
_CLUSTER_NAME: Final = "posthouse"
_SUMMED: Final = ("message_stats", "queue_totals", "object_totals")
"""Of all brokers."""


def _types() -> list[dict[str, Any]]:
    return [{"name": name, "description": f"{name} exchange", "enabled": True} for name in _EXCHANGE_TYPES]


def listeners(context: CallContext) -> list[dict[str, Any]]:
    return [
        {
            "node": node_name(),
            "protocol": protocol_name(each.protocol, has_tls=each.has_tls),
            "ip_address": each.address.host,
            "port": each.address.port,
            "socket_opts": {},
        }
        for each in context.listeners
        if each.address is not None
    ]


def protocol_name(protocol: str, *, has_tls: bool) -> str:
    """As RabbitMQ names protocols of listeners; Kafka's keeps its own."""
    if protocol == "admin":
        return "https" if has_tls else "http"
    return f"{protocol}/ssl" if has_tls else protocol


async def _overview(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    parts = context.parts(NAMESPACES, "namespaces")
    namespaces = list(context.broker.namespaces)
    counts = rates = Counts()
    for namespace in namespaces:
        counts = counts.plus(await total_of(list(namespace.queues.values())))
        rates = rates.plus(context.rates.of_namespace(namespace.name))
    connections = amqp_connections(context)
    channels = 0
    async for _, connection in in_turns(connections):
        channels += len(connection.info.channels)
    consumers = 0
    for namespace in namespaces:
        async for queue in in_turns(list(namespace.queues.values())):
            consumers += queue.consumer_count
    nothing = {"rate": 0.0}
    confirmed = with_rate("confirm", counts.publish, rates.publish)
    view: dict[str, Any] = {
        "management_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Posthouse",
        "product_version": __version__,
        "cluster_name": _CLUSTER_NAME,
        "erlang_version": platform.python_version(),
        "erlang_full_version": f"Python {platform.python_version()}",
        "node": node_name(),
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [5], "basic": [5], "detailed": [5]},
        "exchange_types": _types(),
        "disable_stats": False,
        "enable_queue_totals": False,
        "release_series_support_status": "supported",
        "statistics_db_event_queue": 0,
        "message_stats": message_stats(counts, rates) | confirmed,
        "churn_rates": {
            f"{name}{suffix}": nothing if suffix else 0
            for name in ("channel_closed", "channel_created", "connection_closed", "connection_created")
            for suffix in ("", "_details")
        },
        "queue_totals": lengths(counts, rates),
        "object_totals": {
            "connections": len(connections),
            "channels": channels,
            "consumers": consumers,
            "exchanges": sum(len(each.router.exchanges()) for each in namespaces),
            "queues": sum(len(each.queues) for each in namespaces),
        },
        "listeners": listeners(context),
        "contexts": [],
    }
    for other in parts.others:
        totals = msgspec.json.decode(await other.read(request.segments, {}))
        view |= {name: _sum(view[name], totals[name]) for name in _SUMMED}
    parts.check()
    return item(request, view)


def _sum(counts: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Of numbers, and of tables of them."""
    return {
        name: _sum(value, more[name]) if isinstance(value, Mapping) else value + more[name]
        for name, value in counts.items()
    }


async def _node(context: CallContext) -> dict[str, Any]:
    condition = await context.broker.storage_condition()
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = sum(len(each.listener) for each in context.listeners)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    numbers = {
        "mem_used": memory_used(),
        "fd_used": descriptors_used(),
        "sockets_used": connections,
        "proc_used": 1,
        "disk_free": condition.free_bytes or 0,
    }
    view: dict[str, Any] = {
        "name": node_name(),
        "type": "disc",
        "running": True,
        "being_drained": False,
        "os_pid": str(os.getpid()),
        "uptime": int((monotonic() - _STARTED) * 1000),
        "processors": os.cpu_count() or 1,
        "run_queue": 0,
        "fd_total": descriptors,
        "sockets_total": context.settings.max_connections,
        "proc_total": 1,
        "mem_limit": memory,
        "mem_alarm": False,
        "mem_calculation_strategy": "rss",
        "disk_free_limit": 0,
        "disk_free_alarm": not condition.has_reserve,
        "rates_mode": "basic",
        "net_ticktime": 60,
        "partitions": [],
        "cluster_links": [],
        "applications": [{"name": "posthouse", "description": "Posthouse", "version": __version__}],
        "auth_mechanisms": [{"name": each, "description": each, "enabled": True} for each in _MECHANISMS],
        "exchange_types": _types(),
        "contexts": [],
        "enabled_plugins": ["rabbitmq_management"],
        "config_files": [],
        "log_files": [],
        "db_dir": str(context.settings.data),
        "metrics_gc_queue_length": {},
    }
    for name, value in numbers.items():
        view |= with_rate(name, value, 0)
    return view


async def _nodes(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    return await listed(request, [await _node(context)], lambda view: view, lambda view: node_name())


async def _show_node(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    context.require_cluster(Operation.DESCRIBE)
    if parameters["node"] != node_name():
        raise not_found()
    return item(request, await _node(context))


async def _cluster_name(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    return json_response({"name": _CLUSTER_NAME})


ROUTES: Final = (
    Route(method="GET", path="/api/overview", handler=_overview),
    Route(method="GET", path="/api/nodes", handler=_nodes),
    Route(method="GET", path="/api/nodes/{node}", handler=_show_node),
    Route(method="GET", path="/api/cluster-name", handler=_cluster_name),
)
