"""Queues: listed, described, purged and deleted."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.queue import Queue
from posthouse.broker.routing.table_values import to_json
from posthouse.model.errors import InvalidDefinition
from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.delivery_views import LimitsView, limits_view
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.flow_rates import FlowView
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page
from posthouse.protocols.admin.reachable_namespaces import (
    chosen_namespaces,
    place_prefix,
    reachable_namespace,
)
from posthouse.protocols.admin.turns import in_turns

NamespaceName = Annotated[str, Meta(description="Name of the namespace (virtual host); / is written %2F.")]
QueueName = Annotated[str, Meta(max_length=255, description="Name of the queue.")]
State = Literal["empty", "consumed", "stalled", "unconsumed"]

_MOST_READS: Final = 100
"""Queues whose oldest message is read from disk for one list."""
_MOST_CONSUMERS: Final = 1000
OPERATOR: Final = object()
"""The session of requests by HTTP: no exclusive queue belongs to it."""


class OfQueue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    namespace: NamespaceName
    queue: QueueName


class QueuePaging(Paging, frozen=True, kw_only=True, forbid_unknown_fields=True):
    namespace: Annotated[str | None, Meta(description="Only queues of this namespace.")] = None
    state: Annotated[
        State | None,
        Meta(
            description="empty: no messages. consumed: a consumer takes them. stalled: no consumer can take "
            "more before it acknowledges. unconsumed: there are messages, and no consumer."
        ),
    ] = None
    brief: Annotated[
        bool, Meta(description="`oldest_age_ms` is null: nothing is read from disk for the list.")
    ] = False


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Messages since the broker started."""

    published: int
    delivered: int
    got: Annotated[int, Meta(description="One by one, by clients that ask.")]
    acked: int
    redelivered: int
    dead_lettered: int
    expired: int


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    tag: str
    peer: Annotated[
        str,
        Meta(
            description="Address of the client; see /v1/connections. It is empty, as is `user`, for the "
            "consumers of others if you may not describe the cluster."
        ),
    ]
    channel: int
    user: str
    needs_ack: bool
    prefetch: Annotated[int, Meta(description="Messages that it may hold unsettled; 0 for no limit.")]
    unacked: int
    priority: int
    is_exclusive: bool
    is_active: bool


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    kind: Literal["queue", "stream"]
    durable: bool
    state: State
    ready: Annotated[int, Meta(description="Messages that wait for a consumer.")]
    unacked: Annotated[int, Meta(description="Messages that consumers hold and have not settled.")]
    consumers: int
    oldest_age_ms: Annotated[
        int | None,
        Meta(
            description="Age of the oldest message that is ready; null if there is none, or if it is not "
            "known yet: one request reads those of 100 queues from disk, and the next one those of others."
        ),
    ]
    counters: Counters


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As the queue was declared. What is not set is left out."""

    durable: bool
    overflow: Annotated[str, Meta(description="What happens to messages beyond a limit.")]
    exclusive: bool = False
    auto_delete: bool = False
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int = 0
    single_active: bool = False
    delivery_limit: int | None = None
    delivery_rate: float | None = None
    delivery_concurrency: int | None = None
    ordered_by_key: bool = False
    max_age_ms: int | None = None
    segment_bytes: int | None = None
    arguments: dict[str, Any] = {}


class QueueView(QueueSummary, frozen=True, kw_only=True):
    definition: QueueSettings
    consumer_list: Annotated[list[ConsumerView], Meta(description=f"At most {_MOST_CONSUMERS} of them.")]
    topic: Annotated[str, Meta(description="Where messages for this queue alone are stored.")]
    dead_letter_queues: Annotated[
        list[str], Meta(description="Queues that its dead letters come to, by the bindings of now.")
    ]
    limits: Annotated[
        LimitsView | None, Meta(description="Of the deliveries to all consumers together; null without any.")
    ]
    flow: Annotated[
        FlowView | None, Meta(description="Null for a stream, whose messages stay when they were read.")
    ]


class Deletion(OfQueue, frozen=True, kw_only=True, forbid_unknown_fields=True):
    if_empty: Annotated[bool, Meta(description="Only if it has no messages.")] = False
    if_unused: Annotated[bool, Meta(description="Only if it has no consumers.")] = False


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    messages: Annotated[int, Meta(description="How many were removed.")]


def find(context: CallContext, operation: Operation, parameters: OfQueue) -> tuple[Namespace, LogQueue]:
    """The queue, exclusive or not. Raises Problem 403, UnknownNamespace and UnknownQueue."""
    namespace = reachable_namespace(context, parameters.namespace)
    context.require(operation, Kind.TOPIC, namespace.topic_of(parameters.queue))
    return namespace, namespace.queue_of_any_session(parameters.queue)


def state_of(queue: LogQueue) -> State:
    if not queue.lengths[0]:
        return "empty"
    if not queue.consumer_count:
        return "unconsumed"
    if isinstance(queue, Queue) and not queue.dispatcher.has_credit:
        return "stalled"
    return "consumed"


def summary(context: CallContext, queue: LogQueue, oldest_ms: int | None) -> QueueSummary:
    """`oldest_ms` is the time when the oldest message was published, where that is known."""
    ready, unacked = queue.lengths
    return QueueSummary(
        namespace=queue.namespace,
        name=queue.name,
        kind="stream" if queue.definition.is_stream else "queue",
        durable=queue.definition.durable,
        state=state_of(queue),
        ready=ready,
        unacked=unacked,
        consumers=queue.consumer_count,
        oldest_age_ms=None if oldest_ms is None else max(context.broker.now_ms() - oldest_ms, 0),
        counters=Counters(**{name: getattr(queue.counters, name) for name in Counters.__struct_fields__}),
    )


async def _summaries(context: CallContext, queues: Sequence[LogQueue], *, brief: bool) -> list[QueueSummary]:
    oldest, found = context.broker.oldest_messages, []
    reads = oldest.reads
    async for queue in in_turns(queues):
        published_ms = None if brief else oldest.known_ms(queue)
        if published_ms is None and not brief and oldest.reads - reads < _MOST_READS:
            published_ms = await oldest.read_ms(queue)
        found.append(summary(context, queue, published_ms))
    return found


def _settings(definition: QueueDefinition) -> QueueSettings:
    values: dict[str, Any] = {
        name: getattr(definition, name) for name in QueueSettings.__struct_fields__ if name != "arguments"
    }
    return QueueSettings(**values, arguments=to_json(dict(definition.arguments)))  # type: ignore[arg-type]


def _dead_letter_queues(context: CallContext, namespace: Namespace, definition: QueueDefinition) -> list[str]:
    """Those that the client may see. Those of dead letters that keep their key are known only where any key
    leads to them."""
    exchange, key = definition.dead_letter_exchange, definition.dead_letter_key
    if exchange is None:
        return []
    if not exchange:
        names = set() if key is None else {key}
    elif key is not None and any(each.name == exchange for each in namespace.router.exchanges()):
        routed = namespace.router.route(namespace.router.exchange(exchange), key.encode())
        names = {queue.name for queue in routed}
    else:
        names = {binding.destination for binding in namespace.router.bindings(source=exchange)}
    return sorted(
        name
        for name in names
        if name in namespace.queues and context.guard.sees(Kind.TOPIC, namespace.queues[name].backing.name)
    )


def _consumers(context: CallContext, queue: LogQueue) -> list[ConsumerView]:
    """Who the clients are is shown where connections are, and of a client's own consumers."""
    guard = context.guard
    is_shown = guard.may(Operation.DESCRIBE, Kind.CLUSTER, CLUSTER)
    found = []
    for each in queue.described_consumers()[:_MOST_CONSUMERS]:
        view = ConsumerView(**asdict(each))
        if not is_shown and each.user != guard.principal.name:
            view = msgspec.structs.replace(view, peer="", user="")
        found.append(view)
    return found


async def _list(context: CallContext, paging: QueuePaging, body: NoBody) -> Page[QueueSummary]:
    return await LISTED.whole(context, paging, lambda: _page(context, paging))


async def _page(context: CallContext, paging: QueuePaging) -> Page[QueueSummary]:
    """Of this broker."""
    found: dict[str, LogQueue] = {}
    for namespace in chosen_namespaces(context, paging.namespace):
        prefix = place_prefix(namespace.name)
        async for queue in in_turns(list(namespace.queues.values())):
            if (
                paging.search in queue.name
                and context.guard.sees(Kind.TOPIC, queue.backing.name)
                and (paging.state is None or paging.state == state_of(queue))
            ):
                found[prefix + queue.name] = queue
    shown = page(found, msgspec.structs.replace(paging, search=""), found.__getitem__)
    items = await _summaries(context, shown.items, brief=paging.brief)
    return Page(items=items, total=shown.total, next=shown.next)


LISTED: Final[SpreadList[QueueSummary]] = SpreadList(
    noun="namespaces",
    scopes=NAMESPACES,
    path=("v1", "queues"),
    answer=Page[QueueSummary],
    page=lambda answer: answer,
    name=lambda queue: place_prefix(queue.namespace) + queue.name,
)
"""Those of other brokers."""


async def _describe(context: CallContext, parameters: OfQueue, body: NoBody) -> QueueView:
    namespace, queue = find(context, Operation.DESCRIBE, parameters)
    oldest_ms = await context.broker.oldest_messages.read_ms(queue)
    return QueueView(
        **msgspec.structs.asdict(summary(context, queue, oldest_ms)),
        definition=_settings(queue.definition),
        consumer_list=_consumers(context, queue),
        topic=queue.backing.name,
        dead_letter_queues=_dead_letter_queues(context, namespace, queue.definition),
        limits=_limits(queue),
        flow=_flow(context, queue),
    )


def _limits(queue: LogQueue) -> LimitsView | None:
    throttle = queue.dispatcher.throttle if isinstance(queue, Queue) else None
    return None if throttle is None else limits_view(throttle.limiter.limits, throttle.limiter)


def _flow(context: CallContext, queue: LogQueue) -> FlowView | None:
    if not isinstance(queue, Queue):
        return None
    return context.flow.of(queue, entered=queue.counters.published, backlog=sum(queue.lengths))


async def _delete(context: CallContext, parameters: Deletion, body: NoBody) -> None:
    namespace, queue = find(context, Operation.DELETE, parameters)
    await namespace.delete_queue(
        queue.name, OPERATOR, if_unused=parameters.if_unused, if_empty=parameters.if_empty
    )


async def _purge(context: CallContext, parameters: OfQueue, body: NoBody) -> Purged:
    namespace, _ = find(context, Operation.READ, parameters)
    return Purged(messages=await purge(context, namespace, parameters.queue))


async def purge(context: CallContext, namespace: Namespace, name: str) -> int:
    """The permission to read is enough, as for queue.purge of AMQP."""
    queue = namespace.queue(name, OPERATOR)
    if not isinstance(queue, Queue):
        raise InvalidDefinition(f"{queue} keeps its messages: retention removes them, or its deletion")
    context.guard.note("purge", f"{Kind.TOPIC}:{queue.backing.name}")
    await namespace.effects.done(name)
    return queue.purge()


QUEUES: Final = (
    Endpoint(
        method="GET",
        path="/v1/queues",
        summary="List queues",
        tag="queues",
        handler=_list,
        parameters=QueuePaging,
        result=Page[QueueSummary],
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/queues/{namespace}/{queue}",
        summary="Describe a queue",
        tag="queues",
        handler=_describe,
        parameters=OfQueue,
        result=QueueView,
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/queues/{namespace}/{queue}",
        summary="Delete a queue with its messages",
        tag="queues",
        handler=_delete,
        parameters=Deletion,
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/{namespace}/{queue}/purge",
        summary="Remove all messages that are ready",
        tag="queues",
        handler=_purge,
        parameters=OfQueue,
        result=Purged,
        problems=(404, 409),
    ),
)
