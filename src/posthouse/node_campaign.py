"""How a node takes the lease, when no other broker holds it."""

import logging

from posthouse.node_context import AGAIN_SECONDS, NodeContext
from posthouse.storage.shared.database import CommitsLost, DatabaseAway
from posthouse.storage.shared.membership.lease import Lease, take_lease

log = logging.getLogger(__name__)

_SOONEST_SECONDS = 0.2


class Campaign:
    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._rest_seconds = 0.0

    def rest(self, seconds: float) -> None:
        """Do not try to take the lease for so long: this broker could not coordinate."""
        self._rest_seconds = seconds

    async def run(self) -> Lease | None:
        """The lease, once this broker has taken it; None when it is to stop. Raises NodeFailed."""
        node, registry = self._node, self._node.registry
        rest_seconds, self._rest_seconds = self._rest_seconds, 0.0
        if rest_seconds:
            await node.pause(rest_seconds)
        while not node.stopping.is_set():
            node.check_registry()
            left = registry.lease_seconds_left()
            if left <= 0 and registry.loss is None:
                lease = await self.try_to_take()
                if lease is not None:
                    return lease
            await node.pause(min(max(left, _SOONEST_SECONDS), AGAIN_SECONDS))
        return None

    async def try_to_take(self) -> Lease | None:
        node, registry = self._node, self._node.registry
        before = registry.view
        try:
            lease = await take_lease(
                node.database,
                node.own.incarnation,
                clock=node.lease_clock,
                times=node.times,
                seen=registry.seen,
            )
        except CommitsLost as error:
            registry.lost_commits(error.loss)
            return None
        except DatabaseAway as error:
            log.warning("broker %s cannot take the lease: %s", node.own.name, error)
            await node.pause(AGAIN_SECONDS)
            return None
        if lease is not None:
            why = "it was free"
            if before.holder_incarnation is not None:
                who = before.holder.name if before.holder else "a broker that is gone"
                why = f"that of {who}, epoch {before.epoch}, has ended"
            log.info("broker %s takes the lease of epoch %d: %s", node.own.name, lease.epoch, why)
            registry.took_lease(lease)
            lease.keep()
        return lease
