"""The roles of a node: standby, holder of the lease, and standby again.

A standby passes connections on; the holder serves them with an `App`. While neither accepts, connections wait
in the system's queue, because the listening sockets stay.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Protocol

from posthouse.app import App
from posthouse.cluster.dialling import Dialler
from posthouse.cluster.peers import Adopt
from posthouse.cluster.preamble import AnyPassage, HintPassage, Refusal, RelayPassage
from posthouse.cluster.standby import Standby
from posthouse.descriptors import RESERVE, allowed_descriptors
from posthouse.model.brokers import ClusterBroker
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.node_place import NodePlace
from posthouse.protocols.gate import Gate
from posthouse.protocols.introduction import Origin
from posthouse.protocols.membership import Membership
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.shared.database import CommitsLost, Database, DatabaseAway
from posthouse.storage.shared.membership.lease import Lease, LeaseTimes, take_lease
from posthouse.storage.shared.membership.registry import Registry

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.5
_SOONEST_SECONDS = 0.2
_GRACE_SECONDS = 5.0
"""More than a connection waits for a holder: waiting is no offence of the client."""
_REST_SECONDS = 5.0
"""After a start that would fail again: others have the time to take the lease."""
_ABANDON_SECONDS = 15.0
"""More than it takes to stop at once; a process that takes longer ends, so that it cannot answer."""


class Role(StrEnum):
    STARTING = "starting"
    STANDBY = "standby"
    HOLDER = "holder"


class StorageSource(Protocol):
    """Makes the storages of a node, on parts that they share: connections, caches."""

    async def open(self) -> None:
        """Raises InvalidConfig or Unavailable if the shared storage cannot be used."""

    def make(self, lease: Lease) -> Storage:
        """Called each time the node has taken the lease. The app opens and closes what is made."""

    async def close(self) -> None: ...


class NodeFailed(PosthouseError):
    """The process must end."""


class NodeRoles:
    """Run once."""

    def __init__(
        self,
        settings: Settings,
        place: NodePlace,
        database: Database,
        registry: Registry,
        own: ClusterBroker,
        dialler: Dialler,
        storages: StorageSource,
        make_app: Callable[[Storage, Membership], App],
        *,
        clock: Clock,
        lease_clock: Clock,
        times: LeaseTimes,
    ) -> None:
        self._settings = settings
        self._place = place
        self._database = database
        self._registry = registry
        self._own = own
        self._dialler = dialler
        self._storages = storages
        self._make_app = make_app
        self._clock = clock
        self._lease_clock = lease_clock
        self._times = times
        self._stopping = asyncio.Event()
        self._rest_seconds = 0.0
        """How long this broker does not try to take the lease after it could not serve."""
        self.settled = asyncio.Event()
        """The first role was taken."""
        self.role = Role.STARTING
        self.app: App | None = None
        """While this broker serves."""
        self.lease: Lease | None = None
        """While this broker holds it."""

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    async def run(self) -> None:
        """Until it is to stop. Raises NodeFailed, and InvalidConfig if the broker cannot serve."""
        try:
            lease = await self._try_to_take()
            while not self._stopping.is_set():
                lease = lease or await self._stand_by()
                if lease is not None:
                    await self._hold(lease)
                    lease = None
        except PosthouseError as error:
            log.error("broker %s ends: %s", self._own.name, error)
            raise
        if lease is not None:
            await lease.release()

    def adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        """What serves connections that other brokers pass on."""
        if isinstance(passage, HintPassage):
            return Refusal.NOT_A_REQUEST
        if self.app is None:
            return Refusal.NOT_COORDINATOR
        listener = self.app.listener(passage.listener)
        if listener is None:
            return Refusal.NO_SUCH_LISTENER
        origin = Origin(client=passage.client)
        if isinstance(passage, RelayPassage):
            origin = Origin(client=passage.client, relayed_by=passage.broker, user=passage.user)
        return partial(listener.adopt, origin=origin)

    # Standby

    async def _stand_by(self) -> Lease | None:
        """The lease, once this broker has taken it; None when it is to stop."""
        standby = Standby(self._settings.listeners, self._gate(), self._dialler)
        standby.start(self._place.copies())
        self._take_role(Role.STANDBY)
        view = self._registry.view
        why = "no broker is the holder" if view.holder is None else f"{view.holder.name} is the holder"
        log.info("broker %s is a standby, epoch %d: %s", self._own.name, view.epoch, why)
        lease: Lease | None = None
        try:
            lease = await self._campaign()
        finally:
            await standby.stop(takes_over=lease is not None)
        return lease

    def _gate(self) -> Gate:
        """Each connection that is passed on takes two descriptors."""
        return Gate(
            self._clock,
            total=min(self._settings.max_connections, (allowed_descriptors() - RESERVE) // 2),
            per_address=self._settings.max_connections_per_address,
            seconds_to_prove=self._dialler.patience_seconds + _GRACE_SECONDS,
            seconds_to_wait=self._settings.offender_wait_seconds,
        )

    async def _campaign(self) -> Lease | None:
        rest_seconds, self._rest_seconds = self._rest_seconds, 0.0
        if rest_seconds:
            await self._pause(rest_seconds)
        while not self._stopping.is_set():
            self._check_registry()
            left = self._registry.lease_seconds_left()
            if left <= 0 and self._registry.loss is None:
                lease = await self._try_to_take()
                if lease is not None:
                    return lease
            await self._pause(min(max(left, _SOONEST_SECONDS), _AGAIN_SECONDS))
        return None

    async def _try_to_take(self) -> Lease | None:
        before = self._registry.view
        try:
            lease = await take_lease(
                self._database,
                self._own.incarnation,
                clock=self._lease_clock,
                times=self._times,
                seen=self._registry.seen,
            )
        except CommitsLost as error:
            self._registry.lost_commits(error.loss)
            return None
        except DatabaseAway as error:
            log.warning("broker %s cannot take the lease: %s", self._own.name, error)
            await self._pause(_AGAIN_SECONDS)
            return None
        if lease is not None:
            why = "it was free"
            if before.holder_incarnation is not None:
                who = before.holder.name if before.holder else "a broker that is gone"
                why = f"that of {who}, epoch {before.epoch}, has ended"
            log.info("broker %s takes the lease of epoch %d: %s", self._own.name, lease.epoch, why)
            self._registry.took_lease(lease)
            lease.keep()
        return lease

    def _check_registry(self) -> None:
        if self._registry.failure is not None:
            raise NodeFailed(str(self._registry.failure))

    async def _pause(self, seconds: float) -> None:
        """Shorter if the node is to stop."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    # Holder

    async def _hold(self, lease: Lease) -> None:
        self.lease = lease
        try:
            app = await self._started_app(lease)
            if app is not None:
                self.app = app
                self._take_role(Role.HOLDER)
                log.info("broker %s is the holder, epoch %d", self._own.name, lease.epoch)
                try:
                    await self._serve(lease)
                finally:
                    self.app = None
                    await self._stop_app(app, lease)
        finally:
            self.role = Role.STANDBY
            await lease.release()
            self.lease = None
        if lease.failure is not None:
            raise NodeFailed(lease.lost_because)

    async def _started_app(self, lease: Lease) -> App | None:
        """None if this broker cannot serve now. Raises InvalidConfig only if it has had no role before: a
        broker that is up stays a standby, and may serve later."""
        try:
            membership = Membership(own=self._own, lease=lease, view=lambda: self._registry.view)
            app = self._make_app(self._storages.make(lease), membership)
            return app if await self._start_app(app, lease) else None
        except NodeFailed:
            raise
        except InvalidConfig as error:
            if not self.settled.is_set():
                raise
            self._cannot_serve(lease, error, rest_seconds=_REST_SECONDS)
        except (PosthouseError, OSError) as error:
            self._cannot_serve(lease, error, rest_seconds=_AGAIN_SECONDS)
        return None

    def _cannot_serve(self, lease: Lease, error: Exception, *, rest_seconds: float) -> None:
        log.error("broker %s cannot serve, epoch %d: %s", self._own.name, lease.epoch, error)
        self._rest_seconds = rest_seconds

    async def _start_app(self, app: App, lease: Lease) -> bool:
        """False if the lease was lost, or the node is to stop, before the app had started."""
        starting = asyncio.create_task(app.start(self._place.copies()))
        waiting = [asyncio.create_task(lease.lost()), asyncio.create_task(self._stopping.wait())]
        await asyncio.wait([starting, *waiting], return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting], timeout=_ABANDON_SECONDS)
            if not starting.done():
                raise NodeFailed(f"the broker did not give up its start within {_ABANDON_SECONDS:g} s")
        if starting.cancelled():
            why = lease.lost_because or "the broker stops"
            log.warning("broker %s gives up its start, epoch %d: %s", self._own.name, lease.epoch, why)
            return False
        await starting
        return True

    async def _serve(self, lease: Lease) -> None:
        """Returns when the lease is lost, the database has lost commits, or the node is to stop."""
        waiting = [asyncio.create_task(lease.lost()), asyncio.create_task(self._stopping.wait())]
        try:
            while self._registry.loss is None and not any(each.done() for each in waiting):
                self._check_registry()
                await asyncio.wait(waiting, timeout=_AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _stop_app(self, app: App, lease: Lease) -> None:
        registry = self._registry
        at_once = lease.is_lost or registry.loss is not None or registry.failure is not None
        seconds = _ABANDON_SECONDS
        if at_once:
            why = registry.loss or registry.failure or lease.lost_because
            log.warning(
                "broker %s loses the lease of epoch %d and closes all connections: %s",
                *(self._own.name, lease.epoch, why),
            )
        else:
            seconds += self._settings.shutdown_seconds
        try:
            async with asyncio.timeout(seconds):
                await app.stop(at_once=at_once)
        except TimeoutError:
            raise NodeFailed(f"the broker did not stop serving within {seconds:g} s") from None
        except PosthouseError as error:
            log.warning("broker %s: stopping, epoch %d: %s", self._own.name, lease.epoch, error)

    def _take_role(self, role: Role) -> None:
        self.role = role
        self.settled.set()
