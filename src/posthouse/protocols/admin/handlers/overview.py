"""The broker in one answer."""

import os
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse import __version__
from posthouse.broker.access.operations import Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody, NoParameters
from posthouse.protocols.admin.handlers.groups import LISTED
from posthouse.protocols.admin.handlers.health import unready_reasons
from posthouse.protocols.admin.paging import Paging
from posthouse.protocols.admin.traffic_totals import TrafficView


class ListenerView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    protocol: str
    address: str | None
    tls: bool
    connections: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
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
    traffic: TrafficView
    authentication: bool
    listeners: list[ListenerView]


async def _describe(context: CallContext, parameters: NoParameters, body: NoBody) -> Overview:
    context.require_cluster(Operation.DESCRIBE)
    return await overview(context)


async def overview(context: CallContext) -> Overview:
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
        groups=await _groups(context),
        namespaces=len(namespaces),
        queues=sum(len(each.queues) for each in namespaces),
        exchanges=sum(len(each.router.exchanges()) for each in namespaces),
        connections=sum(len(each.listener) for each in context.listeners),
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


async def _groups(context: CallContext) -> int:
    """Of all brokers."""
    own = len(context.broker.groups.listed()) + sum(1 for _ in context.broker.subscriptions)
    return own + sum([page.total async for page in LISTED.pages(context, Paging(limit=1))])


OVERVIEW: Final = Endpoint(
    method="GET",
    path="/v1/overview",
    summary="The broker in one answer",
    tag="broker",
    handler=_describe,
    result=Overview,
)
