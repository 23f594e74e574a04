"""The life of a node: one lease after the other, and one app under each.

When the lease is lost, the node closes everything, takes a new one and begins anew. Under one lease it is the
coordinator while it holds that scope (see `node_coordinator`), and otherwise a member. While no app accepts,
connections wait in the system's queue, because the listening sockets stay.
"""

import asyncio
import logging
from enum import StrEnum

from posthouse.app import App
from posthouse.cluster.peers import Adopt
from posthouse.cluster.preamble import AnyPassage, HintPassage, Refusal
from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.node_app import NodeApp
from posthouse.node_campaign import Campaign
from posthouse.node_context import ABANDON_SECONDS, AGAIN_SECONDS, REST_SECONDS, NodeContext, NodeFailed
from posthouse.node_scopes import ScopeKeeper
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.membership.scopes import Scopes

log = logging.getLogger(__name__)


class Role(StrEnum):
    STARTING = "starting"
    MEMBER = "member"
    COORDINATOR = "coordinator"


class NodeLife:
    """Run once."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._campaign = Campaign(node)
        self._app: NodeApp | None = None
        """While it serves."""
        self._has_failed = False
        self.scopes: Scopes | None = None
        """While this broker has a lease."""
        self.keeper: ScopeKeeper | None = None
        """Of the scopes of groups and housekeeping, while this broker has a lease."""
        self.settled = asyncio.Event()
        """Clients were accepted, or an operator has to decide before they are."""

    @property
    def app(self) -> App | None:
        """While this broker serves."""
        return None if self._app is None else self._app.app

    @property
    def lease(self) -> Lease | None:
        """Of this broker, while it has one."""
        return None if self.scopes is None else self.scopes.lease

    @property
    def role(self) -> Role:
        if not self.settled.is_set():
            return Role.STARTING
        return Role.MEMBER if self.epoch is None else Role.COORDINATOR

    @property
    def epoch(self) -> int | None:
        """Of the scope coordinator, while this broker is the coordinator."""
        coordinating = None if self._app is None else self._app.coordinating
        return None if coordinating is None else coordinating.epoch

    def stop(self) -> None:
        """Ask `run` to end."""
        self._node.registry.is_ready = False
        self._node.stopping.set()

    async def run(self) -> None:
        """Until it is to stop. Raises NodeFailed, and InvalidConfig if the broker cannot serve."""
        try:
            while not self._node.stopping.is_set():
                lease = await self._campaign.enter(self.settled.set)
                if lease is not None:
                    await self._live(lease)
        except PosthouseError as error:
            log.error("broker %s ends: %s", self._node.own.name, error)
            raise

    async def _live(self, lease: Lease) -> None:
        """Until the lease is lost or the node is to stop."""
        node = self._node
        scopes = self.scopes = Scopes(node.database, lease, lambda: node.registry.seen)
        keeper = self.keeper = ScopeKeeper(node.own, scopes, clock=node.clock, moves=node.moves)
        try:
            while not node.stopping.is_set() and not lease.is_lost:
                await self._serve(scopes, keeper)
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

    async def _serve(self, scopes: Scopes, keeper: ScopeKeeper) -> None:
        """Returns when the lease is lost or the node is to stop, and soon if it cannot serve now. The lease
        ends if the database has lost commits, also those that were confirmed since: the storage remembers
        what is gone."""
        node, lease = self._node, scopes.lease
        node.check_registry()
        losses = node.registry.view.confirmed_losses
        await self._campaign.start(scopes)
        app = await self._started(scopes, keeper)
        if app is None:
            return
        self._has_failed = False
        self._app = app
        node.registry.is_ready = not node.stopping.is_set()
        self.settled.set()
        if app.coordinating is None:
            self._log_member()
        app.keep_scopes()
        waiting = self._reasons_to_end(lease)
        try:
            while not any(each.done() for each in waiting):
                node.check_registry()
                node.end_if_commits_are_lost(lease, losses)
                app.check()
                app.sweep()
                await asyncio.wait(waiting, timeout=AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            await self._stop(app, lease)

    async def _started(self, scopes: Scopes, keeper: ScopeKeeper) -> NodeApp | None:
        """None if this broker cannot serve now. Raises InvalidConfig if it never has."""
        node = self._node
        try:
            app = NodeApp(node, scopes, keeper, self._campaign)
            return app if await self._start(app, scopes.lease) else None
        except NodeFailed:
            raise
        except InvalidConfig as error:
            if not self.settled.is_set():
                raise
            await self._cannot_serve(error, REST_SECONDS, logging.ERROR)
        except (PosthouseError, OSError) as error:
            # The database is away: it heals by itself.
            await self._cannot_serve(error, AGAIN_SECONDS, logging.WARNING)
        return None

    async def _cannot_serve(self, error: Exception, seconds: float, level: int) -> None:
        if not self._has_failed:  # one line, however often it tries
            log.log(level, "broker %s cannot serve: %s", self._node.own.name, error)
        self._has_failed = True
        await self._node.pause(seconds)

    async def _start(self, app: NodeApp, lease: Lease) -> bool:
        """False if the lease was lost, or the node is to stop, before the app had started."""
        starting = asyncio.create_task(app.start())
        waiting = self._reasons_to_end(lease)
        await asyncio.wait([starting, *waiting], return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting], timeout=ABANDON_SECONDS)
            if not starting.done():
                raise NodeFailed(f"the broker did not give up its start within {ABANDON_SECONDS:g} s")
        if starting.cancelled():
            why = lease.lost_because or "the broker stops"
            log.warning("broker %s gives up its start: %s", self._node.own.name, why)
            return False
        await starting
        return True

    def _reasons_to_end(self, lease: Lease) -> "list[asyncio.Task[object]]":
        return [asyncio.create_task(lease.lost()), asyncio.create_task(self._node.stopping.wait())]

    def _log_member(self) -> None:
        view = self._node.registry.view
        why = "no broker is the coordinator"
        if view.holder is not None:
            why = f"{view.holder.name} is the coordinator"
        log.info("broker %s is a member, epoch %d: %s", self._node.own.name, view.epoch, why)

    async def _stop(self, app: NodeApp, lease: Lease) -> None:
        node, registry = self._node, self._node.registry
        at_once = lease.is_lost or registry.failure is not None
        seconds = ABANDON_SECONDS
        if at_once:
            held = "its lease"
            if app.coordinating is not None:
                held = f"its lease as the coordinator of epoch {app.coordinating.epoch}"
            log.warning(
                "broker %s loses %s and closes all connections: %s",
                *(node.own.name, held, registry.failure or lease.lost_because),
            )
        else:
            seconds += node.settings.shutdown_seconds
        self._app = None
        try:
            async with asyncio.timeout(seconds):
                await app.stop(at_once=at_once)
        except TimeoutError:
            raise NodeFailed(f"the broker did not stop serving within {seconds:g} s") from None
        except PosthouseError as error:
            log.warning("broker %s: stopping: %s", node.own.name, error)
