"""Which broker should hold each scope.

Every broker computes the plan from what its last heartbeat has found, and all of them find the same. Scopes
of each kind are spread evenly: no broker gets two more of a kind than another. A scope stays where it is if
that is possible, so a broker that joins or leaves moves only the scopes that it gets or had. Rendezvous
hashing decides which ones move, and where to: every broker has a score for every scope.

The plan does not change while it is carried out: a scope that was released is still planned for the same
broker, and those that have arrived stay. Brokers whose views differ by a heartbeat therefore agree.

A scope that an operator wants at a broker is planned for that one, and counts as one of its kind. A broker
that is draining gets none, unless all are. A broker that starts gets none before it is ready, and one whose
lease is over loses those that it has.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Self

from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.scopes import COORDINATOR, SCOPES, SPREAD, Scope

_BROKER = Struct(">i")
_SCORE_BYTES = 8
_MOST_SCORES = 64 * len(SCOPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePlan:
    holders: Mapping[Scope, int]
    """The id of the broker that should hold each scope that is spread. Empty if no broker is ready."""

    def of(self, broker: int) -> frozenset[Scope]:
        """The scopes that this broker should hold."""
        return frozenset(scope for scope, planned in self.holders.items() if planned == broker)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOrders:
    """What operators have ordered that may keep a broker from being the coordinator."""

    wanted: int | None
    is_draining: bool

    @classmethod
    def of(cls, view: ClusterView, broker: int) -> Self:
        return cls(
            wanted=view.wanted.get(COORDINATOR),
            is_draining=any(each.id == broker and each.is_draining for each in view.brokers),
        )


def plan_scopes(view: ClusterView) -> ScopePlan:
    ready = [each for each in view.brokers if _is_ready(each)]
    brokers = sorted(each.id for each in ([each for each in ready if not each.is_draining] or ready))
    wanted = {scope: broker for scope, broker in view.wanted.items() if broker in brokers}
    planned: dict[Scope, int] = {}
    for scopes in SPREAD.values() if brokers else ():
        planned |= _spread(scopes, view, brokers, wanted)
    return ScopePlan(holders=planned)


def may_coordinate(view: ClusterView, broker: int, *, seconds: float = 0.0) -> bool:
    """Whether this broker may take the scope `coordinator`, and keep it. It may also if it is not ready yet:
    that is how the first broker starts. Others that are up for less than `seconds` do not count."""
    others = {
        each.id
        for each in view.brokers
        if each.id != broker
        and _is_ready(each)
        and not each.is_draining
        and each.seconds_since_start >= seconds
    }
    orders = CoordinatorOrders.of(view, broker)
    return orders.wanted not in others and not (orders.is_draining and others)


def coordinator_moves(view: ClusterView) -> bool:
    """Whether a broker has still to take the scope `coordinator`, or to give it up."""
    return view.holder is None or not may_coordinate(view, view.holder.id)


def _is_ready(broker: ClusterBroker) -> bool:
    return broker.is_ready and broker.lease_seconds_left > 0


def _spread(
    scopes: Sequence[Scope], view: ClusterView, brokers: Sequence[int], wanted: Mapping[Scope, int]
) -> dict[Scope, int]:
    """Of one kind."""
    planned = {scope: wanted[scope] for scope in scopes if scope in wanted}
    held: dict[int, list[Scope]] = {each: [] for each in brokers}
    for scope in scopes:
        holder = view.holder_of(scope)
        if scope not in planned and holder is not None and holder.id in held:
            held[holder.id].append(scope)
    fixed = dict.fromkeys(brokers, 0)
    for broker in planned.values():
        fixed[broker] += 1
    room: dict[int, int] = {}
    counts = {each: fixed[each] + len(held[each]) for each in brokers}
    for broker, share in _shares(len(scopes), fixed, counts).items():
        own = share - fixed[broker]
        kept = sorted(held[broker], key=lambda scope: _score(scope, broker), reverse=True)[:own]
        planned.update(dict.fromkeys(kept, broker))
        room[broker] = own - len(kept)
    planned.update(_placed([each for each in scopes if each not in planned], room))
    return planned


def _shares(count: int, fixed: Mapping[int, int], held: Mapping[int, int]) -> dict[int, int]:
    """How many of `count` scopes each broker should hold: at least those that are `fixed`, and otherwise as
    many as the others. If they cannot be divided evenly, brokers that hold more already get one more."""
    level = count // len(fixed)
    while sum(max(each, level) for each in fixed.values()) > count:
        level -= 1
    shares = {broker: max(each, level) for broker, each in fixed.items()}
    left = count - sum(shares.values())
    may_have_more = [broker for broker, share in shares.items() if share == level]
    may_have_more.sort(key=lambda broker: (held[broker] <= level, broker))
    for broker in may_have_more[:left]:
        shares[broker] += 1
    return shares


def _placed(scopes: Collection[Scope], room: Mapping[int, int]) -> dict[Scope, int]:
    """The pairs of a scope and a broker with room for it, from the highest score down."""
    pairs: Iterable[tuple[int, Scope, int]] = sorted(
        ((_score(scope, broker), scope, broker) for scope in scopes for broker in room), reverse=True
    )
    left, placed = dict(room), dict[Scope, int]()
    for _, scope, broker in pairs:
        if scope not in placed and left[broker]:
            placed[scope] = broker
            left[broker] -= 1
    return placed


@lru_cache(maxsize=_MOST_SCORES)
def _score(scope: Scope, broker: int) -> int:
    digest = blake2b(scope.name.encode() + _BROKER.pack(broker), digest_size=_SCORE_BYTES)
    return int.from_bytes(digest.digest())
