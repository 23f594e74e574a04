"""The scopes of the cluster: which broker holds which, and how operators move them."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.scopes import COORDINATOR, SCOPES, Scope
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody, NoParameters
from posthouse.protocols.admin.handlers.brokers import Current
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.membership import ClusterControl, Membership

BrokerName = Annotated[str, Meta(min_length=1, max_length=255, description="Name of the broker.")]
ScopeName = Annotated[
    str,
    Meta(
        description="`coordinator`, or one of those that `GET /v1/cluster` lists, such as `groups/07`; "
        "in a path the slash is `%2F`."
    ),
]
State = Annotated[
    Literal["ready", "draining", "starting"],
    Meta(description="`draining`: it hands over its scopes. `starting`: it cannot hold any yet."),
]


class BrokerScopes(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    state: State
    scopes: Annotated[int, Meta(description="How many it holds.")]
    lease_seconds: Annotated[float, Meta(description="How long its lease lasts unless it is renewed.")]


class ScopeView(msgspec.Struct, frozen=True, kw_only=True):
    name: ScopeName
    holder: Annotated[int | None, Meta(description="Id of the live broker that holds it; null if none does.")]
    wanted: Annotated[
        int | None, Meta(description="Id of the broker that an operator has moved it to; null: any.")
    ]


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    brokers: Annotated[list[BrokerScopes], Meta(description="Those that were seen in the last seconds.")]
    scopes: Annotated[list[ScopeView], Meta(description="Empty if the broker does not share its storage.")]
    current: Current


class OfBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    broker: BrokerName


class OfScope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scope: ScopeName


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    broker: Annotated[
        str | None,
        Meta(description="Where to; the scope stays there while that broker lives. null: wherever it fits."),
    ] = None


async def _describe(context: CallContext, parameters: NoParameters, body: NoBody) -> Cluster:
    context.require_cluster(Operation.DESCRIBE)
    membership = context.backend.membership
    if membership is None:
        return Cluster(brokers=[], scopes=[], current=True)
    scopes = [_scope(membership, each) for each in SCOPES]
    held = [each.holder for each in scopes]
    return Cluster(
        brokers=[
            BrokerScopes(
                id=each.id,
                name=each.name,
                state=_state(each),
                scopes=held.count(each.id),
                lease_seconds=round(each.lease_seconds_left, 3),
            )
            for each in membership.brokers()
        ],
        scopes=scopes,
        current=membership.is_current,
    )


def _scope(membership: Membership, scope: Scope) -> ScopeView:
    view = membership.view()
    holder = membership.coordinator() if scope == COORDINATOR else view.holder_of(scope)
    return ScopeView(
        name=scope.name, holder=None if holder is None else holder.id, wanted=view.wanted.get(scope)
    )


def _state(broker: ClusterBroker) -> Literal["ready", "draining", "starting"]:
    if not broker.is_ready:
        return "starting"
    return "draining" if broker.is_draining else "ready"


async def _drain(context: CallContext, parameters: OfBroker, body: NoBody) -> None:
    context.require_cluster(Operation.ALTER)
    control, view = _control(context)
    others = [each for each in view.brokers if each.name != parameters.broker]
    if not _takers(others):
        raise Problem(409, "no other broker could take the scopes: all others are draining or not ready")
    await control.drain(parameters.broker, is_draining=True)
    context.guard.note("drain-broker", f"broker:{parameters.broker}")


async def _undrain(context: CallContext, parameters: OfBroker, body: NoBody) -> None:
    context.require_cluster(Operation.ALTER)
    control, _ = _control(context)
    await control.drain(parameters.broker, is_draining=False)
    context.guard.note("undrain-broker", f"broker:{parameters.broker}")


async def _move(context: CallContext, parameters: OfScope, body: Move) -> None:
    context.require_cluster(Operation.ALTER)
    control, view = _control(context)
    scope = Scope(parameters.scope)
    if scope not in SCOPES:
        raise Problem(404, f"there is no scope {parameters.scope[:200]!r}; GET /v1/cluster lists them")
    if body.broker is not None and not _takers([each for each in view.brokers if each.name == body.broker]):
        raise Problem(409, f"broker {body.broker[:200]!r} is not alive, or draining, or not ready")
    await control.want(scope, body.broker)
    context.guard.note("move-scope", f"scope:{scope}", "" if body.broker is None else f"to {body.broker}")


def _control(context: CallContext) -> tuple[ClusterControl, ClusterView]:
    membership = context.backend.membership
    if membership is None or membership.control is None:
        raise Problem(409, "this broker does not share its storage, and holds all scopes itself")
    return membership.control, membership.view()


def _takers(brokers: Sequence[ClusterBroker]) -> list[ClusterBroker]:
    return [each for each in brokers if each.is_ready and not each.is_draining]


CLUSTER: Final = (
    Endpoint(
        method="GET",
        path="/v1/cluster",
        summary="Which broker holds which scope",
        description="A scope is a part of what one broker does for all: the `coordinator` has settings of "
        "topics, users and permissions; consumer groups are in 64 scopes, by the hash of their names, "
        "transactional ids in 64 others, namespaces with their queues in 16, and the background work on logs "
        "is in 16. The broker that is asked answers, also if there is no coordinator.",
        tag="broker",
        handler=_describe,
        result=Cluster,
    ),
    Endpoint(
        method="POST",
        path="/v1/cluster/brokers/{broker}/drain",
        summary="Let a broker hand over its scopes, one at a time, and get none any more",
        description="It goes on serving logs. It stays so after a restart, until `undrain`.",
        tag="broker",
        handler=_drain,
        parameters=OfBroker,
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/cluster/brokers/{broker}/undrain",
        summary="Let a broker hold scopes again",
        tag="broker",
        handler=_undrain,
        parameters=OfBroker,
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/cluster/scopes/{scope}/move",
        summary="Move a scope to a broker, or leave it to the brokers again",
        tag="broker",
        handler=_move,
        parameters=OfScope,
        body=Move,
        problems=(404, 409),
    ),
)
