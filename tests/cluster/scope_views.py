"""Views of a cluster, as heartbeats would find them, for tests of who holds which scope."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.scopes import Scope


def incarnation(broker: int) -> UUID:
    return UUID(int=broker)


def cluster_broker(
    broker: int, *, is_draining: bool = False, seconds: float = 60.0, lease_seconds: float = 8.0
) -> ClusterBroker:
    return ClusterBroker(
        id=broker,
        name=f"b{broker}",
        incarnation=incarnation(broker),
        addresses={},
        seconds_since_start=seconds,
        lease_seconds_left=lease_seconds,
        is_draining=is_draining,
    )


def cluster_view(
    brokers: Iterable[int],
    held: Mapping[Scope, int],
    *,
    draining: Iterable[int] = (),
    wanted: Mapping[Scope, int] | None = None,
    young: Iterable[int] = (),
    lapsed: Iterable[int] = (),
) -> ClusterView:
    """`held` has the ids of holders, dead ones among them; `young` brokers have just started; the leases of
    `lapsed` ones are over."""
    return ClusterView(
        brokers=tuple(
            cluster_broker(
                each,
                is_draining=each in set(draining),
                seconds=0 if each in set(young) else 60,
                lease_seconds=0 if each in set(lapsed) else 8,
            )
            for each in brokers
        ),
        holders={scope: incarnation(broker) for scope, broker in held.items()},
        wanted=wanted or {},
    )
