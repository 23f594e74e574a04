"""What the parts of a node have in common."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posthouse.cluster.dialling import Dialler
from posthouse.loaded_settings import LoadedSettings
from posthouse.model.brokers import ClusterBroker
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError
from posthouse.node_place import NodePlace
from posthouse.protocols.scope_moves import ScopeMoves
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.log_news import Grown, LogNews
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.membership.lease import Lease, LeaseTimes
from posthouse.storage.shared.membership.registry import BrokerRegistry

AGAIN_SECONDS = 0.5
REST_SECONDS = 5.0
"""After a start that would fail again: others have the time to become the coordinator."""
ABANDON_SECONDS = 15.0
"""More than it takes to stop at once; a process that takes longer ends, so that it cannot answer."""


class NodeFailed(PosthouseError):
    """The process must end."""


class NodeStorage(Storage, Protocol):
    """A storage that several brokers write to."""

    def grown(self, told: Grown) -> None:
        """Call `told` with what commits of this broker change."""

    def hinted(self, news: Sequence[LogNews]) -> None:
        """What another broker tells of its commits."""


class StorageSource(Protocol):
    """Makes the storages of a node, on parts that they share: connections, caches."""

    async def open(self) -> None:
        """Raises InvalidConfig or Unavailable if the shared storage cannot be used."""

    def make(self, lease: Lease) -> NodeStorage:
        """Called for each app of the node, which opens and closes what is made."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    loaded: LoadedSettings
    place: NodePlace
    database: Database
    registry: BrokerRegistry
    own: ClusterBroker
    secret: bytes
    """Of the cluster: brokers prove with it that they belong to it."""
    dialler: Dialler
    storages: StorageSource
    clock: Clock
    lease_clock: Clock
    times: LeaseTimes
    moves: ScopeMoves
    stopping: asyncio.Event
    """Set when the node is to stop."""

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    def check_registry(self) -> None:
        """Raises NodeFailed."""
        if self.registry.failure is not None:
            raise NodeFailed(str(self.registry.failure))

    def end_if_commits_are_lost(self, lease: Lease, confirmed_losses: int) -> None:
        """End the lease if the database has lost commits since `confirmed_losses`: the storage in memory has
        commits that are gone."""
        if self.registry.loss is not None:
            lease.fenced(self.registry.loss)
        elif self.registry.view.confirmed_losses != confirmed_losses:
            lease.fenced("the database has lost commits")

    async def pause(self, seconds: float) -> None:
        """Shorter if the node is to stop."""
        # Not `wait_for`: in Python 3.11 that returns although it is cancelled, if what it waits for happens
        # in the same turn. A node that stops does both.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
