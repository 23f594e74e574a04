"""How a node takes its lease, and the scope coordinator when no other broker holds it."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

from posthouse.cluster.scope_plan import CoordinatorOrders, may_coordinate
from posthouse.model.scopes import COORDINATOR
from posthouse.node_context import AGAIN_SECONDS, NodeContext
from posthouse.storage.shared.database import CommitsLost, DatabaseAway
from posthouse.storage.shared.membership.lease import Lease, take_lease
from posthouse.storage.shared.membership.scopes import Scopes

log = logging.getLogger(__name__)

_SOONEST_SECONDS = 0.2
_UNWANTED_SECONDS = 10.0
"""So long a broker that operators do not want as the coordinator waits for another one. Then it takes over: a
coordinator that is not wanted is better than none."""


class Campaign:
    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._rest_until = -math.inf
        self._free_since: float | None = None
        """When this broker has found that none coordinates."""
        self.overruled: CoordinatorOrders | None = None
        """The orders against which this broker has taken the scope, because no other one did."""

    def rest(self, seconds: float) -> None:
        """Do not try to become the coordinator for so long: this broker could not serve as that."""
        self._rest_until = asyncio.get_running_loop().time() + seconds

    @property
    def _rests(self) -> bool:
        return asyncio.get_running_loop().time() < self._rest_until

    async def enter(self, suspended: Callable[[], None]) -> Lease | None:
        """The lease of this broker; None when it is to stop. Calls `suspended` while it gets none because the
        database has lost commits, and an operator has to decide. Raises NodeFailed."""
        node, has_waited = self._node, False
        while not node.stopping.is_set():
            node.check_registry()
            if node.registry.loss is not None:
                suspended()
                await node.pause(AGAIN_SECONDS)
                continue
            try:
                lease = await take_lease(
                    node.database,
                    node.own.incarnation,
                    clock=node.lease_clock,
                    times=node.times,
                    seen=node.registry.seen,
                )
            except CommitsLost as error:
                node.registry.lost_commits(error.loss)
                continue
            except DatabaseAway as error:
                log.warning("broker %s cannot take a lease: %s", node.own.name, error)
            else:
                if lease is not None:
                    node.registry.took_lease(lease)
                    lease.keep()
                    return lease
                if not has_waited:  # one line, however often it tries
                    log.warning("broker %s waits: the storage is being imported or exported", node.own.name)
                has_waited = True
            await node.pause(AGAIN_SECONDS)
        return None

    async def start(self, scopes: Scopes) -> None:
        """Before this broker serves: take the scope if it is free."""
        if self.is_wanted and not self._rests:
            await self._try_to_take(scopes)

    async def run(self, scopes: Scopes) -> None:
        """Returns when this broker has taken the scope."""
        node, registry = self._node, self._node.registry
        self._free_since = None  # what the campaign before has found: the scope was held since then
        while True:
            left = registry.lease_seconds_left()
            if registry.view.holder_incarnation == node.own.incarnation:
                left = 0.0  # it did not get the answer when it took or released the scope
                if not self.is_wanted:
                    await self._release(scopes)
            may_take = self._may_take(left) and registry.loss is None and not self._rests
            if may_take and await self._try_to_take(scopes):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(left, _SOONEST_SECONDS), AGAIN_SECONDS)):
                    await registry.next_view()

    async def _release(self, scopes: Scopes) -> None:
        try:
            await scopes.release(COORDINATOR)
        except DatabaseAway as error:
            log.warning("broker %s cannot give up the coordinator: %s", self._node.own.name, error)

    def _may_take(self, lease_seconds_left: float) -> bool:
        if lease_seconds_left > 0:
            self._free_since = None
            return False
        now = asyncio.get_running_loop().time()
        self._free_since = self._free_since or now
        return self.is_wanted or now >= self._free_since + _UNWANTED_SECONDS

    @property
    def is_wanted(self) -> bool:
        """Whether operators do not want another broker to be the coordinator."""
        return may_coordinate(self._node.registry.view, self._node.own.id)

    async def _try_to_take(self, scopes: Scopes) -> bool:
        node, registry = self._node, self._node.registry
        before = registry.view
        overruled = None if self.is_wanted else CoordinatorOrders.of(before, node.own.id)
        try:
            taken = await scopes.take([COORDINATOR])
        except CommitsLost as error:
            registry.lost_commits(error.loss)
            return False
        except DatabaseAway as error:
            log.warning("broker %s cannot become the coordinator: %s", node.own.name, error)
            await node.pause(AGAIN_SECONDS)
            return False
        if COORDINATOR not in taken:
            return False
        why = "the scope was free"
        if before.holder_incarnation not in (None, node.own.incarnation):
            who = before.holder.name if before.holder else "a broker that is gone"
            why = f"the lease of {who}, epoch {before.epoch}, has ended"
        epoch = scopes.lease.scopes[COORDINATOR]
        log.info("broker %s takes over as the coordinator, epoch %d: %s", node.own.name, epoch, why)
        registry.took_coordinator(epoch)
        self.overruled = overruled
        return True
