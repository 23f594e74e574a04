"""A node that holds the lease: it coordinates groups, transactions and queues, and serves logs as all do."""

import asyncio
import logging
from collections.abc import Callable

from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.node_app import NodeApp
from posthouse.node_context import ABANDON_SECONDS, AGAIN_SECONDS, REST_SECONDS, NodeContext, NodeFailed
from posthouse.storage.shared.membership.lease import Lease

log = logging.getLogger(__name__)


class CoordinatorRole:
    """Run once, for one lease."""

    def __init__(self, node: NodeContext, lease: Lease, *, started: Callable[[], None]) -> None:
        """`started` is called when clients are accepted."""
        self._node = node
        self._started = started
        self.lease = lease
        self.app: NodeApp | None = None
        """While it serves."""
        self.rest_seconds = 0.0
        """How long this broker should not try to take the lease again, because it could not serve."""

    async def run(self, *, is_first: bool) -> None:
        """Until the lease is lost or the node is to stop. Raises NodeFailed, and with `is_first`
        InvalidConfig if it cannot start: a broker that is up stays a member, and may coordinate later."""
        lease = self.lease
        try:
            confirmed_losses = self._node.registry.view.confirmed_losses
            app = await self._started_app(is_first=is_first)
            if app is not None:
                self.app = app
                self._started()
                log.info("broker %s is the coordinator, epoch %d", self._node.own.name, lease.epoch)
                try:
                    await self._serve(confirmed_losses)
                finally:
                    self.app = None
                    await self._stop(app)
        finally:
            await lease.release()
        if lease.failure is not None:
            raise NodeFailed(lease.lost_because)

    async def _started_app(self, *, is_first: bool) -> NodeApp | None:
        """None if this broker cannot serve now."""
        try:
            app = NodeApp(self._node, self.lease)
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
        log.error("broker %s cannot serve, epoch %d: %s", self._node.own.name, self.lease.epoch, error)
        self.rest_seconds = rest_seconds

    async def _start(self, app: NodeApp) -> bool:
        """False if the lease was lost, or the node is to stop, before the app had started."""
        lease = self.lease
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
            log.warning("broker %s gives up its start, epoch %d: %s", self._node.own.name, lease.epoch, why)
            return False
        await starting
        return True

    def _reasons_to_end(self) -> "list[asyncio.Task[object]]":
        return [asyncio.create_task(self.lease.lost()), asyncio.create_task(self._node.stopping.wait())]

    async def _serve(self, confirmed_losses: int) -> None:
        """Returns when the lease is lost, the database has lost commits, or the node is to stop. More losses
        than `confirmed_losses` were confirmed since the storage was made: it remembers what is gone."""
        node = self._node
        waiting = self._reasons_to_end()
        try:
            while node.registry.loss is None and not any(each.done() for each in waiting):
                node.check_registry()
                if node.registry.view.confirmed_losses != confirmed_losses:
                    log.warning("broker %s: the database has lost commits", node.own.name)
                    return
                await asyncio.wait(waiting, timeout=AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _stop(self, app: NodeApp) -> None:
        node, lease, registry = self._node, self.lease, self._node.registry
        at_once = lease.is_lost or registry.loss is not None or registry.failure is not None
        seconds = ABANDON_SECONDS
        if at_once:
            why = registry.loss or registry.failure or lease.lost_because
            log.warning(
                "broker %s loses the lease of epoch %d and closes all connections: %s",
                *(node.own.name, lease.epoch, why),
            )
        else:
            seconds += node.settings.shutdown_seconds
        try:
            async with asyncio.timeout(seconds):
                await app.stop(at_once=at_once)
        except TimeoutError:
            raise NodeFailed(f"the broker did not stop serving within {seconds:g} s") from None
        except PosthouseError as error:
            log.warning("broker %s: stopping, epoch %d: %s", node.own.name, lease.epoch, error)
