"""The scope coordinator of a node: taken when it is free, loaded, and given up when operators want that.

As with the scopes of groups, only what the database has given to this broker is loaded, and only what is not
loaded any more is released. Connections of Kafka and AMQP clients go on meanwhile.
"""

import asyncio
import logging
from typing import Protocol

from posthouse.cluster.scope_plan import CoordinatorOrders, may_coordinate
from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.model.scopes import COORDINATOR
from posthouse.node_campaign import Campaign
from posthouse.node_context import ABANDON_SECONDS, AGAIN_SECONDS, REST_SECONDS, NodeContext
from posthouse.node_scopes import SETTLED_SECONDS
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.membership.scopes import Scopes

log = logging.getLogger(__name__)

_UNWANTED_SECONDS = 60.0
"""How long a coordinator that operators do not want stays before it lets the others try again, unless there
is a newer order."""


class CoordinatorServer(Protocol):
    """Serves what is the coordinator's."""

    async def coordinate(self) -> None:
        """Load it. If this raises, nothing is loaded."""

    async def step_down(self) -> None:
        """Returns when nothing uses it any more and its commits have ended. Raises PosthouseError; then it is
        not served either."""


class Coordinating:
    """The lease of a broker that is the coordinator, with the epoch of the scope."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.epoch = lease.scopes.get(COORDINATOR, 0)

    @property
    def is_valid(self) -> bool:
        return self._lease.is_valid

    @property
    def is_cut_off(self) -> bool:
        return self._lease.is_cut_off

    @property
    def seconds_left(self) -> float:
        return self._lease.seconds_left


class CoordinatorScope:
    """Of one app, under one lease."""

    def __init__(
        self, node: NodeContext, scopes: Scopes, campaign: Campaign, server: CoordinatorServer
    ) -> None:
        self._node = node
        self._scopes = scopes
        self._lease = scopes.lease
        self._campaign = campaign
        self._server = server
        self._keep_until = 0.0
        self.held: Coordinating | None = None
        """While this broker is the coordinator."""

    async def start(self) -> None:
        """Before there are clients: load the scope if this broker has taken it. Raises what `coordinate` of
        the server raises; then the scope is released."""
        if not self._lease.holds(COORDINATOR):
            return
        try:
            await self._load()
        except PosthouseError as error:
            await self._cannot_load(error)
            raise

    async def run(self) -> None:
        """Until it is cancelled: then the app has to be stopped."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            if task.cancelling():  # and what was unloaded then has failed: that error has replaced it
                raise asyncio.CancelledError
            if self.held is None:
                await self._campaign.run(self._scopes)
                try:
                    await self._load()
                except (PosthouseError, OSError) as error:
                    await self._cannot_load(error)
            elif self._is_wanted():
                await self._node.registry.next_view()
            else:
                await self._give_up(self.held)

    async def _load(self) -> None:
        node = self._node
        coordinating = Coordinating(self._lease)
        self._keep_until = asyncio.get_running_loop().time() + _UNWANTED_SECONDS
        began = node.clock.monotonic()
        await self._server.coordinate()
        self.held = coordinating
        node.moves.load_seconds.observe(node.clock.monotonic() - began)
        log.info("broker %s is the coordinator, epoch %d", node.own.name, coordinating.epoch)

    async def _cannot_load(self, error: Exception) -> None:
        node = self._node
        epoch = self._lease.scopes.get(COORDINATOR, 0)
        log.error("broker %s cannot serve as the coordinator, epoch %d: %s", node.own.name, epoch, error)
        self._campaign.rest(REST_SECONDS if isinstance(error, InvalidConfig) else AGAIN_SECONDS)
        await self._scopes.give_up(COORDINATOR)

    def _is_wanted(self) -> bool:
        view, own = self._node.registry.view, self._node.own.id
        if self._campaign.overruled == CoordinatorOrders.of(view, own):
            if asyncio.get_running_loop().time() < self._keep_until:
                return True
        else:
            self._campaign.overruled = None  # a newer order counts at once, even if it repeats an older one
        return may_coordinate(view, own, seconds=SETTLED_SECONDS)

    async def _give_up(self, held: Coordinating) -> None:
        """A broker that cannot give it up in good order ends its lease, and with it all that it serves."""
        node, lease = self._node, self._lease
        log.info("broker %s gives up the coordinator of epoch %d", node.own.name, held.epoch)
        began = node.clock.monotonic()
        try:
            async with asyncio.timeout(ABANDON_SECONDS):
                await self._server.step_down()
        except TimeoutError:
            lease.fenced(f"the broker did not give up the coordinator within {ABANDON_SECONDS:g} s")
        except PosthouseError as error:
            log.warning("broker %s: giving up the coordinator: %s", node.own.name, error)
        except Exception as error:
            log.exception("broker %s failed to give up the coordinator", node.own.name)
            lease.fenced(f"the broker failed to give up the coordinator: {error!r}")
        self.held = None
        await self._scopes.give_up(COORDINATOR)
        node.moves.unload_seconds.observe(node.clock.monotonic() - began)
