"""The brokers that share the storage, and which of them is the coordinator."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from posthouse import __version__
from posthouse.broker.access.operations import Operation
from posthouse.model.brokers import ClusterBroker
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody, NoParameters
from posthouse.protocols.membership import Membership

_ALONE_ID = 1

Role = Annotated[
    Literal["coordinator", "member", "alone"],
    Meta(
        description="All brokers serve logs, groups, transactional ids and namespaces. The coordinator also "
        "has what is not divided: see `GET /v1/cluster`. `alone`: it does not share its storage."
    ),
]


Current = Annotated[
    bool,
    Meta(
        description="False if the broker that answers does not reach the database: this is what it knew last."
    ),
]


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[int, Meta(description="Node id, as Kafka clients see it.")]
    name: str
    role: Role
    rack: str | None
    version: str
    addresses: Annotated[Mapping[str, str], Meta(description="By the name of the listener.")]
    uptime: Annotated[float | None, Meta(description="Seconds; null if it is alone.")]


class Brokers(msgspec.Struct, frozen=True, kw_only=True):
    brokers: Annotated[list[BrokerView], Meta(description="Those that were seen in the last seconds.")]
    epoch: Annotated[int | None, Meta(description="Of the lease; null if the broker is alone.")]
    lease_seconds: Annotated[
        float | None, Meta(description="How long the coordinator may serve unless it renews its lease.")
    ]
    commits: Annotated[int | None, Meta(description="Of the coordinator, since its process started.")]
    current: Current


async def _describe(context: CallContext, parameters: NoParameters, body: NoBody) -> Brokers:
    context.require_cluster(Operation.DESCRIBE)
    return described(context)


def described(context: CallContext) -> Brokers:
    membership = context.backend.membership
    return _alone(context) if membership is None else _shared(membership)


def _alone(context: CallContext) -> Brokers:
    addresses = {each.name: str(each.address) for each in context.listeners if each.address is not None}
    own = BrokerView(
        id=_ALONE_ID,
        name=context.settings.broker_name,
        role="alone",
        rack=context.settings.rack,
        version=__version__,
        addresses=addresses,
        uptime=None,
    )
    return Brokers(brokers=[own], epoch=None, lease_seconds=None, commits=None, current=True)


def _shared(membership: Membership) -> Brokers:
    coordinator = membership.coordinator()
    return Brokers(
        brokers=[
            _view(each, is_coordinator=coordinator is not None and each.id == coordinator.id)
            for each in membership.brokers()
        ],
        epoch=membership.epoch,
        lease_seconds=round(membership.lease_seconds_left, 3),
        commits=membership.view().commits,
        current=membership.is_current,
    )


def _view(broker: ClusterBroker, *, is_coordinator: bool) -> BrokerView:
    return BrokerView(
        id=broker.id,
        name=broker.name,
        role="coordinator" if is_coordinator else "member",
        rack=broker.rack,
        version=broker.version,
        addresses={name: str(address) for name, address in broker.addresses.items()},
        uptime=round(broker.seconds_since_start, 1),
    )


BROKERS: Final = Endpoint(
    method="GET",
    path="/v1/brokers",
    summary="The brokers that share the storage, and the lease",
    description="The broker that is asked answers, also if there is no coordinator.",
    tag="broker",
    handler=_describe,
    result=Brokers,
)
