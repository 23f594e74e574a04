"""A node that is not the coordinator: it serves logs, and relays or passes on the rest."""

import asyncio
import logging
from collections.abc import Callable

from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.node_app import MovedConnection, NodeApp
from posthouse.node_context import ABANDON_SECONDS, AGAIN_SECONDS, REST_SECONDS, NodeContext, NodeFailed
from posthouse.node_scopes import ScopeKeeper
from posthouse.storage.shared.membership.lease import Lease

log = logging.getLogger(__name__)


class MemberRole:
    """Run once, then stopped."""

    def __init__(
        self, node: NodeContext, lease: Lease, keeper: ScopeKeeper, *, started: Callable[[], None]
    ) -> None:
        """`started` is called each time clients are accepted."""
        self._node = node
        self._lease = lease
        self._keeper = keeper
        self._started = started
        self._has_failed = False
        self._stopping: asyncio.Task[None] | None = None
        """Of the last app that served."""
        self.app: NodeApp | None = None
        """While it serves."""

    async def run(self, *, is_first: bool) -> None:
        """Until the lease is lost, or it is cancelled. With `is_first`, raises InvalidConfig if it cannot
        start."""
        losses = self._node.registry.view.confirmed_losses
        while not self._lease.is_lost:
            self._node.check_registry()
            try:
                await self._serve(losses)
            except InvalidConfig as error:
                if is_first:
                    raise
                await self._cannot_serve(error, REST_SECONDS, logging.ERROR)
            except (PosthouseError, OSError) as error:
                if isinstance(error, NodeFailed):
                    raise
                # The database is away: it heals by itself.
                await self._cannot_serve(error, AGAIN_SECONDS, logging.WARNING)

    async def _cannot_serve(self, error: Exception, seconds: float, level: int) -> None:
        if not self._has_failed:  # one line, however often it tries
            log.log(level, "broker %s cannot serve as a member: %s", self._node.own.name, error)
        self._has_failed = True
        await asyncio.sleep(seconds)

    async def _serve(self, losses: int) -> None:
        """Returns when the lease is lost."""
        node, lease = self._node, self._lease
        app = NodeApp(node, lease, self._keeper, coordinates=False)
        await app.start()
        self.app = app
        self._has_failed = False
        self._started()
        lost = asyncio.create_task(lease.lost())
        try:
            while not lost.done():
                node.check_registry()
                node.end_if_commits_are_lost(lease, losses)
                app.check()
                app.sweep()
                await asyncio.wait([lost], timeout=AGAIN_SECONDS)
        finally:
            lost.cancel()
        log.warning("broker %s closes all connections: %s", node.own.name, lease.lost_because)
        await self.stop(at_once=True)

    async def stop(self, *, at_once: bool = False, moved: list[MovedConnection] | None = None) -> None:
        """No-op if it does not serve. `moved` is for a takeover: see `NodeApp.stop`. Raises NodeFailed if it
        does not stop in time.

        A stop that has begun goes on if its caller is cancelled, and the next caller waits for it.
        """
        app, self.app = self.app, None
        if app is not None:
            self._stopping = asyncio.create_task(self._stop(app, at_once=at_once, moved=moved))
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _stop(self, app: NodeApp, *, at_once: bool, moved: list[MovedConnection] | None) -> None:
        seconds = ABANDON_SECONDS
        if not at_once and moved is None:
            seconds += self._node.settings.shutdown_seconds
        try:
            async with asyncio.timeout(seconds):
                await app.stop(at_once=at_once, moved=moved)
        except TimeoutError:
            raise NodeFailed(f"the broker did not stop serving within {seconds:g} s") from None
        except PosthouseError as error:
            log.warning("broker %s: stopping as a member: %s", self._node.own.name, error)
