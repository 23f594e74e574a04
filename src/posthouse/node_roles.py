"""The roles of a node: member of the cluster, coordinator while it holds that scope, and member again.

A node serves under its lease. When the lease is lost, it closes everything, takes a new one and begins anew.
Each role has an `App` of its own. While neither accepts, connections wait in the system's queue, because the
listening sockets stay.
"""

import asyncio
import logging
from enum import StrEnum

from posthouse.app import App
from posthouse.cluster.peers import Adopt
from posthouse.cluster.preamble import AnyPassage, HintPassage, Refusal
from posthouse.model.errors import PosthouseError
from posthouse.node_app import MovedConnection, NodeApp
from posthouse.node_campaign import Campaign
from posthouse.node_context import NodeContext, NodeFailed
from posthouse.node_coordinator import CoordinatorRole
from posthouse.node_member import MemberRole
from posthouse.node_scopes import ScopeKeeper
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.membership.scopes import Scopes

log = logging.getLogger(__name__)


class Role(StrEnum):
    STARTING = "starting"
    MEMBER = "member"
    COORDINATOR = "coordinator"


class NodeRoles:
    """Run once."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._campaign = Campaign(node)
        self._current: MemberRole | CoordinatorRole | None = None
        self.scopes: Scopes | None = None
        """While this broker has a lease."""
        self.keeper: ScopeKeeper | None = None
        """Of the scopes of groups, while this broker has a lease."""
        self.settled = asyncio.Event()
        """The first role was taken."""
        self.role = Role.STARTING
        self._moved: list[MovedConnection] = []
        """While the role changes: clients that were connected, and wait for the next app."""

    @property
    def app(self) -> App | None:
        """While this broker serves."""
        app = self._app
        return None if app is None else app.app

    @property
    def lease(self) -> Lease | None:
        """Of this broker, while it has one."""
        return None if self.scopes is None else self.scopes.lease

    @property
    def epoch(self) -> int | None:
        """Of the scope coordinator, while this broker is the coordinator."""
        return self._current.epoch if isinstance(self._current, CoordinatorRole) else None

    @property
    def _app(self) -> NodeApp | None:
        return None if self._current is None else self._current.app

    def stop(self) -> None:
        """Ask `run` to end."""
        self._node.registry.is_ready = False
        self._node.stopping.set()

    async def run(self) -> None:
        """Until it is to stop. Raises NodeFailed, and InvalidConfig if the broker cannot serve."""
        try:
            while not self._node.stopping.is_set():
                lease = await self._campaign.enter(lambda: self._take_role(Role.MEMBER))
                if lease is not None:
                    await self._serve(lease)
        except PosthouseError as error:
            log.error("broker %s ends: %s", self._node.own.name, error)
            raise
        finally:
            self._close_moved()

    async def _serve(self, lease: Lease) -> None:
        """In all roles, until the lease is lost or the node is to stop."""
        node = self._node
        scopes = self.scopes = Scopes(node.database, lease, lambda: node.registry.seen)
        keeper = self.keeper = ScopeKeeper(node.own, scopes, clock=node.clock, moves=node.moves)
        try:
            coordinates = self._campaign.is_wanted and await self._campaign.try_to_take(scopes)
            while not node.stopping.is_set() and not lease.is_lost:
                if coordinates:
                    await self._coordinate(scopes, keeper)
                    coordinates = False
                else:
                    coordinates = await self._be_member(scopes, keeper)
        finally:
            node.registry.is_ready = False
            self.scopes = self.keeper = None
            await lease.release()
            await scopes.close()
        if lease.failure is not None:
            raise NodeFailed(lease.lost_because)

    def adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        """What serves connections of other brokers."""
        if self._app is not None:
            return self._app.adopter(passage)
        return Refusal.NOT_READY if isinstance(passage, HintPassage) else Refusal.NOT_HOLDER

    async def _be_member(self, scopes: Scopes, keeper: ScopeKeeper) -> bool:
        """Whether this broker has become the coordinator; false when its lease is lost, or it is to stop."""
        member = self._current = MemberRole(self._node, scopes.lease, keeper, started=self._member_started)
        serving = asyncio.create_task(member.run(is_first=not self.settled.is_set()))
        campaign = asyncio.create_task(self._campaign.run(scopes))
        coordinates = False
        try:
            await asyncio.wait([serving, campaign], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            if campaign.done():
                coordinates = campaign.result() and not scopes.lease.is_lost
        finally:
            for each in (serving, campaign):
                each.cancel()
            await asyncio.gather(serving, campaign, return_exceptions=True)
            await member.stop(moved=self._moved if coordinates else None)
            self._current = None
        return coordinates

    def _member_started(self) -> None:
        view = self._node.registry.view
        why = "no broker is the coordinator"
        if view.holder is not None:
            why = f"{view.holder.name} is the coordinator"
        log.info("broker %s is a member, epoch %d: %s", self._node.own.name, view.epoch, why)
        self._started(Role.MEMBER)

    async def _coordinate(self, scopes: Scopes, keeper: ScopeKeeper) -> None:
        role = self._current = CoordinatorRole(
            self._node,
            scopes,
            keeper,
            moved=self._moved,
            is_wanted=self._campaign.is_wanted,
            started=lambda: self._started(Role.COORDINATOR),
        )
        gave_up = False
        try:
            gave_up = await role.run(is_first=not self.settled.is_set())
        finally:
            if not gave_up:
                self._close_moved()
            self.role = Role.MEMBER
            self._current = None
            self._campaign.rest(role.rest_seconds)

    def _started(self, role: Role) -> None:
        """Clients are accepted."""
        self._take_role(role)
        self._node.registry.is_ready = not self._node.stopping.is_set()
        if self._app is not None:
            self._app.go_on_with(self._moved)

    def _close_moved(self) -> None:
        """Of a change that has failed."""
        while self._moved:
            self._moved.pop().socket.close()

    def _take_role(self, role: Role) -> None:
        self.role = role
        self.settled.set()
