"""Brokers of a cluster that break their promises, for negative controls."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from random import Random

import psycopg

from posthouse.broker.scope_handover import ScopeHandover
from posthouse.model.scopes import Scope
from posthouse.storage.shared import engine
from posthouse.storage.shared.commits import committer
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.logs.follower import Follower
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.membership.loss_watch import LossWatch
from posthouse.storage.shared.objects.store import Buffer
from posthouse.storage.shared.stores import SharedStores
from tests.storage.shared.broken_calls import WITHOUT_CHECK_OF_THE_LEASE, ForgetfulCall, VeryHastyCall
from tests.torture.cluster.arena import ClusterArena
from tests.torture.cluster.kinds import BrokerClockJump, BrokerPause, ScopeMove
from tests.torture.cluster.nodes import NodeRecipe
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

BOTH_WRITE = 200
"""Acknowledgements after which two holders have contradicted each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HastyRecipe(NodeRecipe):
    """Acknowledges before the transaction has ended, and does not watch whether the database has it."""

    def disturb(self, stores: SharedStores) -> None:
        engine.CommitCall = VeryHastyCall  # type: ignore[attr-defined]
        LossWatch.committed = _unwatched  # type: ignore[method-assign, assignment]
        Follower._lose = _not_noticed  # type: ignore[method-assign, assignment]


def _unwatched(watch: LossWatch, commits: int) -> None:
    """No-op."""


async def _not_noticed(follower: Follower, loss: str) -> None:
    """No-op: hints of such a broker say where a log ends before the database has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetfulRecipe(NodeRecipe):
    """Repeats a commit whose answer was lost, without a commit id."""

    def disturb(self, stores: SharedStores) -> None:
        engine.CommitCall = ForgetfulCall  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppingRecipe(NodeRecipe):
    """Its object store says that it has stored, and has not."""

    def disturb(self, stores: SharedStores) -> None:
        stores.objects.put = _dropped  # type: ignore[method-assign]


async def _dropped(key: str, data: Buffer) -> None:
    """No-op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StubbornRecipe(NodeRecipe):
    """Never learns that it has lost its lease."""

    def disturb(self, stores: SharedStores) -> None:
        Lease.renew = _renewed  # type: ignore[method-assign, assignment]
        Lease._lose = _kept  # type: ignore[method-assign, assignment]


def _kept(lease: Lease, why: str) -> None:
    """No-op."""


_renew = Lease.renew


async def _renewed(lease: Lease) -> bool:
    await _renew(lease)
    lease._deadline = lease._monotonic() + 3600
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClingingRecipe(NodeRecipe):
    """Gives scopes of namespaces away, and goes on serving their queues."""

    clinging: Path
    """From the moment this file is there."""

    def disturb(self, stores: SharedStores) -> None:
        release = ScopeHandover.release

        async def released(handover: ScopeHandover, scope: Scope) -> None:
            if scope.namespace_shard is None or not self.clinging.exists():
                await release(handover, scope)

        ScopeHandover.release = released  # type: ignore[method-assign, assignment]
        committer.check_scopes = _unchecked  # type: ignore[attr-defined]


def _unchecked(lease: HeldLease, scopes: Iterable[Scope]) -> None:
    """No-op."""


def clinging(plain: NodeRecipe, place: Path) -> ClingingRecipe:
    values = {each.name: getattr(plain, each.name) for each in fields(plain)}
    return ClingingRecipe(**values, clinging=_clinging(place))


def _clinging(place: Path) -> Path:
    return place / "clinging"


class Clinging(ScopeMove):
    """The database does not check who holds the scopes either: two brokers serve the same queues."""

    drains = 0.0
    kills = 0.0
    afterwards = BOTH_WRITE

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        return clinging(super().node_recipe(place, name, random), place)

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> ClusterArena:
        arena = super().arena(place, workload, recorder, random)
        cling_once_prepared(arena, place)
        return arena


def cling_once_prepared(arena: ClusterArena, place: Path) -> None:
    arena.began = partial(remove_check_of_the_lease, arena)
    arena.ready = partial(_cling, place)
    arena.is_pinned = True  # so that both holders have clients


async def _cling(place: Path) -> None:
    _clinging(place).touch()


class HastyClockJump(BrokerClockJump):
    """What was acknowledged too early is lost only with the broker."""

    kills = 1.0

    def __init__(self) -> None:
        super().__init__(changed_to(HastyRecipe))


class Unfenced(BrokerPause):
    """The database does not check the lease either: both brokers write. Only the first coordinator can be
    replaced: it believes for ever that it is one. So the first round must strike it."""

    beyond_lease = (1.5,)
    of_holder = 1.0
    afterwards = BOTH_WRITE

    def __init__(self) -> None:
        super().__init__(changed_to(StubbornRecipe))

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> ClusterArena:
        arena = super().arena(place, workload, recorder, random)
        arena.began = partial(remove_check_of_the_lease, arena)
        arena.is_pinned = True  # so that each coordinator has clients
        return arena


async def remove_check_of_the_lease(arena: ClusterArena) -> None:
    async with await psycopg.AsyncConnection.connect(arena.database, autocommit=True) as connection:
        await connection.execute(WITHOUT_CHECK_OF_THE_LEASE)


def changed_to(kind: type[NodeRecipe]) -> Callable[[NodeRecipe], NodeRecipe]:
    return lambda recipe: kind(**{each.name: getattr(recipe, each.name) for each in fields(recipe)})
