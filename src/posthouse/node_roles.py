"""The roles of a node: member of the cluster, coordinator while it holds the lease, and member again.

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
from posthouse.node_context import NodeContext
from posthouse.node_coordinator import CoordinatorRole
from posthouse.node_member import MemberRole
from posthouse.storage.shared.membership.lease import Lease

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
        self.settled = asyncio.Event()
        """The first role was taken."""
        self.role = Role.STARTING
        self._moved: list[MovedConnection] = []
        """During a takeover: clients that were connected to the member, and wait for the coordinator."""

    @property
    def app(self) -> App | None:
        """While this broker serves."""
        app = self._app
        return None if app is None else app.app

    @property
    def lease(self) -> Lease | None:
        """While this broker holds it."""
        return self._current.lease if isinstance(self._current, CoordinatorRole) else None

    @property
    def _app(self) -> NodeApp | None:
        return None if self._current is None else self._current.app

    def stop(self) -> None:
        """Ask `run` to end."""
        self._node.stopping.set()

    async def run(self) -> None:
        """Until it is to stop. Raises NodeFailed, and InvalidConfig if the broker cannot serve."""
        stopping = self._node.stopping
        try:
            lease = await self._campaign.try_to_take()
            while not stopping.is_set():
                lease = lease or await self._be_member()
                if lease is not None:
                    await self._coordinate(lease)
                    lease = None
        except PosthouseError as error:
            log.error("broker %s ends: %s", self._node.own.name, error)
            raise
        finally:
            self._close_moved()
        if lease is not None:
            await lease.release()

    def adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        """What serves connections of other brokers."""
        if self._app is not None:
            return self._app.adopter(passage)
        return Refusal.NOT_READY if isinstance(passage, HintPassage) else Refusal.NOT_HOLDER

    async def _be_member(self) -> Lease | None:
        """The lease, once this broker has taken it; None when it is to stop."""
        member = self._current = MemberRole(
            self._node, started=self._member_started, suspended=lambda: self._take_role(Role.MEMBER)
        )
        serving = asyncio.create_task(member.run(is_first=not self.settled.is_set()))
        campaign = asyncio.create_task(self._campaign.run())
        lease: Lease | None = None
        try:
            await asyncio.wait([serving, campaign], return_when=asyncio.FIRST_COMPLETED)
            if not campaign.done():
                serving.result()  # raises: by itself it does not end
            lease = campaign.result()
        finally:
            for each in (serving, campaign):
                each.cancel()
            await asyncio.gather(serving, campaign, return_exceptions=True)
            await member.stop(moved=self._moved if lease is not None else None)
            self._current = None
        return lease

    def _member_started(self) -> None:
        view = self._node.registry.view
        why = "no broker is the coordinator"
        if view.holder is not None:
            why = f"{view.holder.name} is the coordinator"
        log.info("broker %s is a member, epoch %d: %s", self._node.own.name, view.epoch, why)
        self._take_role(Role.MEMBER)

    async def _coordinate(self, lease: Lease) -> None:
        role = self._current = CoordinatorRole(self._node, lease, started=self._coordinator_started)
        try:
            await role.run(is_first=not self.settled.is_set())
        finally:
            self._close_moved()
            self.role = Role.MEMBER
            self._current = None
            self._campaign.rest(role.rest_seconds)

    def _coordinator_started(self) -> None:
        self._take_role(Role.COORDINATOR)
        if self._app is not None:
            self._app.go_on_with(self._moved)

    def _close_moved(self) -> None:
        """Of a takeover that has failed."""
        while self._moved:
            self._moved.pop().socket.close()

    def _take_role(self, role: Role) -> None:
        self.role = role
        self.settled.set()
