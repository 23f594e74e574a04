"""Negative controls: clusters without one of their safeguards, which the checker must notice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from posthouse.broker.groups.committing import GroupOffsets
from posthouse.broker.queues.left_referrals import Referral
from posthouse.broker.queues.pending_referrals import PendingReferrals
from posthouse.model.scopes import Scope
from posthouse.storage.shared.commits.commit_call import CommitCall
from posthouse.storage.shared.commits.committer import Committer
from tests.simulation.cluster.cluster_faults import KINDS
from tests.simulation.cluster.database_server import DatabaseServer
from tests.simulation.controls import OpenDoor
from tests.storage.shared.broken_calls import ForgetfulCall, VeryHastyCall


def _nothing(server: DatabaseServer) -> None:
    """The database as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterControl:
    prepare: Callable[[DatabaseServer], None] = _nothing
    commit_call: type[CommitCall] = CommitCall
    committer: type[Committer] = Committer
    group_offsets: type[GroupOffsets] = GroupOffsets
    referrals: type[PendingReferrals] = PendingReferrals
    kinds: Sequence[str] = tuple(KINDS)
    """Of faults: those that can bring it to light."""


def _no_fencing(server: DatabaseServer) -> None:
    server.tables.fences = False


def _no_guard(server: DatabaseServer) -> None:
    """A broker goes on appending to logs of namespaces that it has given up."""
    server.tables.guards_queues = False


def _slow(server: DatabaseServer) -> None:
    """Loading takes long enough for others to write meanwhile."""
    server.slowest_ns = 300_000_000


class EarlyCommitter(Committer):
    """Appends to logs of namespaces before their bindings are loaded."""

    def take_namespaces(self, scope: Scope) -> None:
        self.serve_namespaces(scope)


class ForgottenReferrals(PendingReferrals):
    """Removes referrals, and refers to nothing."""

    async def _refer(self, referral: Referral) -> None:
        await self._storage.commit([referral.removal()])


NO_CONTROL = ClusterControl()
CLUSTER_CONTROLS = {
    "none": NO_CONTROL,
    "no-fencing": ClusterControl(prepare=_no_fencing, kinds=("pause", "cut from database")),
    "repeated-commit": ClusterControl(
        commit_call=ForgetfulCall, kinds=("lost answers", "database restart", "lost connections")
    ),
    "hasty-acknowledgement": ClusterControl(
        commit_call=VeryHastyCall, kinds=("kill", "database restart", "cut from database")
    ),
    "open-door": ClusterControl(group_offsets=OpenDoor),
    "unguarded-queues": ClusterControl(prepare=_no_guard),
    "early-service": ClusterControl(
        prepare=_slow, committer=EarlyCommitter, kinds=("stop", "drain", "moved scopes")
    ),
    "forgotten-referrals": ClusterControl(referrals=ForgottenReferrals),
}
