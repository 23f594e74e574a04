"""The broker in one answer."""

import os
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse import __version__
from posthouse.broker.access.operations import Operation
from posthouse.model.scopes import GROUPS, NAMESPACES
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody, NoParameters
from posthouse.protocols.admin.group_views import GroupViews
from posthouse.protocols.admin.handlers.health import unready_reasons
from posthouse.protocols.admin.traffic_totals import TrafficView

_SCOPES: Final = (*GROUPS, *NAMESPACES)
_SUMMED: Final = ("groups", "namespaces", "queues", "exchanges", "connections")


class ListenerView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    protocol: str
    address: str | None
    tls: bool
    connections: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Counts are those of all brokers of the cluster. The rest is about the broker that answers."""

    version: str
    cluster: Annotated[str, Meta(description="Id of the cluster.")]
    process: Annotated[int, Meta(description="Id of the broker's process.")]
    ready: bool
    reasons: Annotated[list[str], Meta(description="Why the broker is not ready.")]
    topics: int
    groups: Annotated[int, Meta(description="Of every kind, share groups included.")]
    namespaces: int
    queues: int
    exchanges: int
    connections: int
    traffic: Annotated[
        TrafficView,
        Meta(description="Of all live brokers, each since it started: it falls when one of them stops."),
    ]
    authentication: bool
    listeners: list[ListenerView]


async def _describe(context: CallContext, parameters: NoParameters, body: NoBody) -> Overview:
    context.require_cluster(Operation.DESCRIBE)
    return await overview(context)


async def overview(context: CallContext) -> Overview:
    parts = context.parts(_SCOPES, "groups and namespaces")
    whole = await _of_this_broker(context)
    for other in parts.others:
        body = await other.read(("v1", "overview"), {})
        whole = _sum(whole, msgspec.json.decode(body, type=Overview))
    parts.check()
    return whole


def _sum(whole: Overview, other: Overview) -> Overview:
    traffic = TrafficView(
        **{
            name: getattr(whole.traffic, name) + getattr(other.traffic, name)
            for name in TrafficView.__struct_fields__
        }
    )
    counts = {name: getattr(whole, name) + getattr(other, name) for name in _SUMMED}
    return msgspec.structs.replace(whole, traffic=traffic, **counts)


async def _of_this_broker(context: CallContext) -> Overview:
    broker = context.broker
    reasons = await unready_reasons(context)
    namespaces = list(broker.namespaces)
    return Overview(
        version=__version__,
        cluster=broker.cluster_id,
        process=os.getpid(),
        ready=not reasons,
        reasons=reasons,
        topics=len(broker.topics),
        groups=len(GroupViews(broker).names()),
        namespaces=len(namespaces),
        queues=sum(len(each.queues) for each in namespaces),
        exchanges=sum(len(each.router.exchanges()) for each in namespaces),
        connections=sum(1 for _ in context.listeners.clients()),
        traffic=await context.kept.traffic.now(),
        authentication=context.settings.must_log_in,
        listeners=[
            ListenerView(
                name=each.name,
                protocol=each.protocol,
                address=None if each.address is None else str(each.address),
                tls=each.has_tls,
                connections=len(each.listener),
            )
            for each in context.listeners
        ],
    )


OVERVIEW: Final = Endpoint(
    method="GET",
    path="/v1/overview",
    summary="The broker in one answer",
    tag="broker",
    handler=_describe,
    result=Overview,
)
