"""A node that coordinates transactions, queues and definitions, and serves logs as all do."""

import asyncio
import logging
from collections.abc import Callable

from posthouse.cluster.scope_plan import may_coordinate
from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.model.scopes import COORDINATOR
from posthouse.node_app import MovedConnection, NodeApp
from posthouse.node_context import ABANDON_SECONDS, AGAIN_SECONDS, REST_SECONDS, NodeContext, NodeFailed
from posthouse.node_scopes import SETTLED_SECONDS, ScopeKeeper
from posthouse.storage.shared.membership.scopes import Scopes

log = logging.getLogger(__name__)

_UNWANTED_SECONDS = 60.0
"""How long a coordinator that operators do not want stays before it lets the others try again."""


class CoordinatorRole:
    """Run once, each time the broker has taken the scope coordinator."""

    def __init__(
        self,
        node: NodeContext,
        scopes: Scopes,
        keeper: ScopeKeeper,
        *,
        moved: list[MovedConnection],
        is_wanted: bool,
        started: Callable[[], None],
    ) -> None:
        """`started` is called when clients are accepted. Those whose connections can go on with the next app
        are added to `moved`. If operators do not want this broker to be the coordinator (`is_wanted`), it has
        taken over because no other one did."""
        self._node = node
        self._started = started
        self._moved = moved
        self._keep_seconds = 0.0 if is_wanted else _UNWANTED_SECONDS
        self._scopes = scopes
        self._keeper = keeper
        self._lease = scopes.lease
        self.epoch = scopes.lease.scopes.get(COORDINATOR, 0)
        """Of the scope coordinator."""
        self.app: NodeApp | None = None
        """While it serves."""
        self.rest_seconds = 0.0
        """How long this broker should not try to become the coordinator again, because it could not serve."""

    async def run(self, *, is_first: bool) -> bool:
        """Until the lease is lost, operators want another coordinator, or the node is to stop. Returns
        whether it has given up the role in good order. Raises NodeFailed, and with `is_first` InvalidConfig
        if it cannot start: a broker that is up stays a member, and may coordinate later."""
        confirmed_losses = self._node.registry.view.confirmed_losses
        app = await self._started_app(is_first=is_first)
        if app is not None:
            self.app = app
            self._started()
            log.info("broker %s is the coordinator, epoch %d", self._node.own.name, self.epoch)
            try:
                await self._serve(app, confirmed_losses)
            finally:
                self.app = None
                await self._stop(app)
        if not self._node.stopping.is_set():  # else it is released with the lease
            await self._scopes.give_up(COORDINATOR)
        return app is not None and not self._has_to_end

    async def _started_app(self, *, is_first: bool) -> NodeApp | None:
        """None if this broker cannot serve now."""
        try:
            app = NodeApp(self._node, self._lease, self._keeper, coordinates=True)
            return app if await self._start(app) else None
        except NodeFailed:
            raise
        except InvalidConfig as error:
            if is_first:
                raise
            self._cannot_serve(error, REST_SECONDS)
        except (PosthouseError, OSError) as error:
            self._cannot_serve(error, AGAIN_SECONDS)
        return None

    def _cannot_serve(self, error: Exception, rest_seconds: float) -> None:
        log.error("broker %s cannot serve, epoch %d: %s", self._node.own.name, self.epoch, error)
        self.rest_seconds = rest_seconds

    async def _start(self, app: NodeApp) -> bool:
        """False if the lease was lost, or the node is to stop, before the app had started."""
        lease = self._lease
        starting = asyncio.create_task(app.start())
        waiting = self._reasons_to_end()
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
            log.warning("broker %s gives up its start, epoch %d: %s", self._node.own.name, self.epoch, why)
            return False
        await starting
        return True

    def _reasons_to_end(self) -> "list[asyncio.Task[object]]":
        return [asyncio.create_task(self._lease.lost()), asyncio.create_task(self._node.stopping.wait())]

    async def _serve(self, app: NodeApp, confirmed_losses: int) -> None:
        """Returns when the lease is lost, operators want another coordinator, or the node is to stop. The
        lease ends if the database has lost commits, also if more losses than `confirmed_losses` were
        confirmed since: the storage remembers what is gone."""
        node, loop = self._node, asyncio.get_running_loop()
        keep_until = loop.time() + self._keep_seconds
        waiting = self._reasons_to_end()
        try:
            while not any(each.done() for each in waiting):
                if loop.time() >= keep_until and not self._is_wanted():
                    return
                node.check_registry()
                app.check()
                node.end_if_commits_are_lost(self._lease, confirmed_losses)
                app.sweep()
                await asyncio.wait(waiting, timeout=AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    def _is_wanted(self) -> bool:
        return may_coordinate(self._node.registry.view, self._node.own.id, seconds=SETTLED_SECONDS)

    @property
    def _has_to_end(self) -> bool:
        """Not only as the coordinator."""
        return self._lease.is_lost or self._node.stopping.is_set()

    async def _stop(self, app: NodeApp) -> None:
        node, lease, registry = self._node, self._lease, self._node.registry
        at_once = lease.is_lost or registry.failure is not None
        moved = None if at_once or self._has_to_end else self._moved
        seconds = ABANDON_SECONDS
        if moved is not None:
            log.info("broker %s gives up the coordinator of epoch %d", node.own.name, self.epoch)
        elif at_once:
            log.warning(
                "broker %s loses its lease as the coordinator of epoch %d and closes all connections: %s",
                *(node.own.name, self.epoch, registry.failure or lease.lost_because),
            )
        else:
            seconds += node.settings.shutdown_seconds
        try:
            async with asyncio.timeout(seconds):
                await app.stop(at_once=at_once, moved=moved)
        except TimeoutError:
            raise NodeFailed(f"the broker did not stop serving within {seconds:g} s") from None
        except PosthouseError as error:
            log.warning("broker %s: stopping, epoch %d: %s", node.own.name, self.epoch, error)
