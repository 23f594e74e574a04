"""Limits on how fast the consumers of a queue or group get messages."""

from collections.abc import Mapping
from typing import Final

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.config import CONCURRENCY, RATE
from posthouse.model.errors import InvalidConfig
from posthouse.model.ids import GroupId
from posthouse.model.rates import shown_rate
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.delivery_views import LimitsBody
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.handlers.groups import OfGroup
from posthouse.protocols.admin.handlers.queues import OfQueue
from posthouse.protocols.admin.reachable_namespaces import reachable_namespace

_OF_QUEUES: Final = (
    "They count over all consumers of the queue together, with and without acknowledgements, and over "
    "`basic.get`. They apply at once, to the next delivery, and replace those that the queue was declared "
    "with. They belong to the name: they outlive the queue. See `docs/flow-control.md`."
)
_OF_GROUPS: Final = (
    "They are the settings `posthouse.delivery.rate` and `posthouse.delivery.concurrency` of the group, "
    "which may not exist yet. They apply to share groups and to RocketMQ's consumers; see "
    "`docs/flow-control.md` for consumer groups."
)


async def _limit_queue(context: CallContext, parameters: OfQueue, body: LimitsBody) -> None:
    namespace = reachable_namespace(context, parameters.namespace)
    topic = namespace.topic_of(parameters.queue)
    context.require(Operation.ALTER_CONFIGS, Kind.TOPIC, topic)
    context.guard.note("limit-deliveries", f"{Kind.TOPIC}:{topic}", _told(body))
    await namespace.limits.set(parameters.queue, body.limits())


async def _unlimit_queue(context: CallContext, parameters: OfQueue, body: NoBody) -> None:
    namespace = reachable_namespace(context, parameters.namespace)
    topic = namespace.topic_of(parameters.queue)
    context.require(Operation.ALTER_CONFIGS, Kind.TOPIC, topic)
    context.guard.note("limit-deliveries", f"{Kind.TOPIC}:{topic}", "none")
    await namespace.limits.remove(parameters.queue)


async def _limit_group(context: CallContext, parameters: OfGroup, body: LimitsBody) -> None:
    context.require(Operation.ALTER_CONFIGS, Kind.GROUP, parameters.group)
    limits = body.limits()
    if limits.is_empty:
        raise InvalidConfig("a limit needs a rate, a concurrency, or both")
    context.guard.note("limit-deliveries", f"{Kind.GROUP}:{parameters.group}", _told(body))
    wanted: dict[str, str] = {}
    if limits.rate is not None:
        wanted[RATE] = shown_rate(limits.rate)
    if limits.concurrency is not None:
        wanted[CONCURRENCY] = str(limits.concurrency)
    await _change(context, parameters.group, wanted)


async def _unlimit_group(context: CallContext, parameters: OfGroup, body: NoBody) -> None:
    context.require(Operation.ALTER_CONFIGS, Kind.GROUP, parameters.group)
    context.guard.note("limit-deliveries", f"{Kind.GROUP}:{parameters.group}", "none")
    await _change(context, parameters.group, {})


async def _change(context: CallContext, group: str, wanted: Mapping[str, str]) -> None:
    def changed(overrides: Mapping[str, str]) -> Mapping[str, str]:
        kept = {name: text for name, text in overrides.items() if name not in (RATE, CONCURRENCY)}
        return kept | dict(wanted)

    await context.broker.group_configs.change(GroupId(group), changed)


def _told(body: LimitsBody) -> str:
    return f"rate={body.rate or 'none'}, concurrency={body.concurrency or 'none'}"


DELIVERY_LIMITS: Final = (
    Endpoint(
        method="PUT",
        path="/v1/queues/{namespace}/{queue}/limits",
        summary="Limit the rate and concurrency of the deliveries of a queue",
        tag="queues",
        description=_OF_QUEUES,
        handler=_limit_queue,
        parameters=OfQueue,
        body=LimitsBody,
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/queues/{namespace}/{queue}/limits",
        summary="Lift the limits on the deliveries of a queue",
        tag="queues",
        description="Those that it was declared with apply again.",
        handler=_unlimit_queue,
        parameters=OfQueue,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path="/v1/groups/{group}/limits",
        summary="Limit the rate and concurrency of the deliveries to a group",
        tag="groups",
        description=_OF_GROUPS,
        handler=_limit_group,
        parameters=OfGroup,
        body=LimitsBody,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/groups/{group}/limits",
        summary="Lift the limits on the deliveries to a group",
        tag="groups",
        handler=_unlimit_group,
        parameters=OfGroup,
    ),
)
