"""Queues: listed, shown, declared, deleted and purged."""

from typing import Any, Final

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.queues.consumer_info import ConsumerInfo
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.queue import Queue
from posthouse.broker.routing.table_values import to_json
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.listing import Columns, item, listed
from posthouse.protocols.admin.management.node import connection_name, iso_time, node_name, peer_address
from posthouse.protocols.admin.management.other_rows import OtherRows
from posthouse.protocols.admin.management.requests import (
    body_of,
    boolean,
    channel_of,
    namespace_of,
    namespaces_of,
    new_name,
    queue_of,
    table,
)
from posthouse.protocols.admin.management.statistics import lengths, message_stats
from posthouse.protocols.admin.rates import counts_of
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import NO_CONTENT, Response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.admin.turns import in_turns

CREATED: Final = Response(status=201, content_type="")


def queue_view(context: CallContext, queue: LogQueue) -> dict[str, Any]:
    definition, counts = queue.definition, counts_of(queue)
    rates = context.rates.of_queue(queue)
    ready_bytes = leased_bytes = 0
    if isinstance(queue, Queue):
        ready_bytes, leased_bytes = max(queue.ready_bytes, 0), max(queue.leased_bytes, 0)
    view = {
        "name": queue.name,
        "vhost": queue.namespace,
        "type": queue_type(queue),
        "durable": definition.durable,
        "auto_delete": definition.auto_delete,
        "exclusive": definition.exclusive,
        "arguments": to_json(dict(definition.arguments)),
        "node": node_name(),
        "state": "running",
        "consumers": queue.consumer_count,
        "consumer_capacity": float(queue.consumer_count > 0),
        "consumer_utilisation": float(queue.consumer_count > 0),
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
        "recoverable_slaves": None,
        "head_message_timestamp": None,
        "memory": ready_bytes + leased_bytes,
        "message_bytes": ready_bytes + leased_bytes,
        "message_bytes_ready": ready_bytes,
        "message_bytes_unacknowledged": leased_bytes,
        "message_bytes_ram": 0,
        "message_bytes_persistent": ready_bytes + leased_bytes,
        "message_bytes_paged_out": 0,
        "messages_ram": 0,
        "messages_ready_ram": 0,
        "messages_unacknowledged_ram": 0,
        "messages_persistent": int(counts.ready + counts.unacked),
        "messages_paged_out": 0,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        "message_stats": message_stats(counts, rates),
    }
    if not (rates.publish or rates.deliver or rates.get or rates.ack):
        clock = context.broker.namespaces.clock
        idle_ms = max(int((clock.monotonic() - queue.used_at) * 1000), 0)
        view["idle_since"] = iso_time(clock.now_ms() - idle_ms)
    return view | lengths(counts, rates)


def queue_type(queue: LogQueue) -> str:
    if queue.definition.is_stream:
        return "stream"
    return "quorum" if queue.definition.arguments.get("x-queue-type") == "quorum" else "classic"


QUICK: Final[Columns[LogQueue]] = {
    "name": lambda queue: queue.name,
    "vhost": lambda queue: queue.namespace,
    "type": queue_type,
    "durable": lambda queue: queue.definition.durable,
    "auto_delete": lambda queue: queue.definition.auto_delete,
    "exclusive": lambda queue: queue.definition.exclusive,
    "consumers": lambda queue: queue.consumer_count,
    "messages": lambda queue: sum(queue.lengths),
    "messages_ready": lambda queue: queue.lengths[0],
    "messages_unacknowledged": lambda queue: queue.lengths[1],
}
"""As in `queue_view`."""


def consumer_view(context: CallContext, queue: LogQueue, consumer: ConsumerInfo) -> dict[str, Any]:
    name = connection_name(context, consumer.peer)
    return {
        "consumer_tag": consumer.tag,
        "queue": {"name": queue.name, "vhost": queue.namespace},
        "ack_required": consumer.needs_ack,
        "exclusive": consumer.is_exclusive,
        "active": consumer.is_active,
        "activity_status": "up" if consumer.is_active else "waiting",
        "prefetch_count": consumer.prefetch,
        "arguments": {},
        "channel_details": {
            "connection_name": name,
            "name": f"{name} ({consumer.channel})",
            "node": node_name(),
            "number": consumer.channel,
            "user": consumer.user,
        }
        | peer_address(consumer.peer),
    }


def _visible_consumers(context: CallContext, queue: LogQueue) -> list[ConsumerInfo]:
    """As in RabbitMQ, where the tag `monitoring` lets a user see the connections of others: users who may
    describe the cluster see all consumers, other users their own."""
    consumers, guard = queue.described_consumers(), context.guard
    if not consumers or guard.may(Operation.DESCRIBE, Kind.CLUSTER, CLUSTER):
        return consumers
    return [each for each in consumers if each.user == guard.principal.name]


async def visible_queues(context: CallContext, parameters: Parameters) -> list[LogQueue]:
    """By virtual host and name."""
    found = []
    for namespace in namespaces_of(context, parameters):
        queues = [
            queue
            async for queue in in_turns(list(namespace.queues.values()))
            if context.guard.sees(Kind.TOPIC, queue.backing.name)
        ]
        found += sorted(queues, key=lambda queue: queue.name)
    return found


async def _list(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    others = OtherRows(context, request, parameters)
    queues = await visible_queues(context, parameters)
    return await listed(
        request,
        queues,
        lambda queue: queue_view(context, queue),
        lambda queue: queue.name,
        QUICK,
        others,
    )


def visible_queue(context: CallContext, parameters: Parameters) -> LogQueue:
    return queue_of(context, namespace_of(context, parameters), parameters["name"])


async def _show(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    queue = visible_queue(context, parameters)
    details = [consumer_view(context, queue, each) for each in _visible_consumers(context, queue)]
    more = {"consumer_details": details, "deliveries": [], "incoming": [], "garbage_collection": {}}
    return item(request, queue_view(context, queue) | more)


async def _declare(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace, name, body = namespace_of(context, parameters), new_name(parameters["name"]), body_of(request)
    is_new = name not in namespace.queues
    await channel_of(context, namespace).declare_queue(
        name,
        durable=boolean(body, "durable", default=True),
        auto_delete=boolean(body, "auto_delete"),
        arguments=table(body, "arguments"),
    )
    return CREATED if is_new else NO_CONTENT


async def _delete(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    queue = visible_queue(context, parameters)
    await channel_of(context, namespace_of(context, parameters)).delete_queue(
        queue.name,
        if_unused=request.query.get("if-unused") == "true",
        if_empty=request.query.get("if-empty") == "true",
    )
    return NO_CONTENT


async def _purge(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    queue = visible_queue(context, parameters)
    await channel_of(context, namespace_of(context, parameters)).purge(queue.name)
    return NO_CONTENT


async def _consumers(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    others = OtherRows(context, request, parameters)
    rows = [
        (queue, consumer)
        async for queue in in_turns(await visible_queues(context, parameters))
        for consumer in _visible_consumers(context, queue)
    ]
    return await listed(
        request, rows, lambda row: consumer_view(context, *row), lambda row: row[1].tag, others=others
    )


ROUTES: Final = (
    Route(method="GET", path="/api/queues", handler=_list),
    Route(method="GET", path="/api/queues/{vhost}", handler=_list),
    Route(method="GET", path="/api/queues/{vhost}/{name}", handler=_show),
    Route(method="PUT", path="/api/queues/{vhost}/{name}", handler=_declare),
    Route(method="DELETE", path="/api/queues/{vhost}/{name}", handler=_delete),
    Route(method="DELETE", path="/api/queues/{vhost}/{name}/contents", handler=_purge),
    Route(method="GET", path="/api/consumers", handler=_consumers),
    Route(method="GET", path="/api/consumers/{vhost}", handler=_consumers),
)
