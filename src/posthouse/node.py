"""The life of a broker that shares its storage: standby, holder of the lease, and standby again.

The node owns the listening sockets, so clients always reach it at the same addresses. A standby passes their
connections on; the holder serves them with an `App`. While neither accepts, connections wait in the system's
queue.
"""

import asyncio
import logging
import socket
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol
from uuid import UUID, uuid4

import posthouse
from posthouse.app import App
from posthouse.cluster.dialling import PATIENCE_SECONDS, Dialler
from posthouse.cluster.peers import Adopt, PeerListener
from posthouse.cluster.standby import Standby
from posthouse.descriptors import RESERVE, allowed_descriptors
from posthouse.loaded_settings import LoadedSettings
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.clock import Clock, SystemClock
from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.gate import Gate
from posthouse.protocols.listening import ListeningSockets
from posthouse.protocols.membership import Membership
from posthouse.settings import Address, Settings
from posthouse.storage.contract import Storage
from posthouse.storage.shared.database import Database, DatabaseAway
from posthouse.storage.shared.identity import cluster_identity
from posthouse.storage.shared.inspection import inspect
from posthouse.storage.shared.lease import Lease, LeaseTimes, take_lease
from posthouse.storage.shared.registry import Registration, Registry

log = logging.getLogger(__name__)

PEER = "peer"
"""The name of the listener for other brokers, in the registry."""
_AGAIN_SECONDS = 0.5
_SOONEST_SECONDS = 0.1
_ABANDON_SECONDS = 15.0
"""More than it takes to stop at once; a process that takes longer ends, so that it cannot answer."""


class Role(StrEnum):
    STARTING = "starting"
    STANDBY = "standby"
    HOLDER = "holder"


class NodeFailed(PosthouseError):
    """The process must end."""


class StorageSource(Protocol):
    """Makes a storage each time the lease was taken. The node opens and closes both."""

    async def open(self) -> None: ...

    def make(self, lease: Lease) -> Storage: ...

    async def close(self) -> None: ...


class Node:
    """Started once, stopped once."""

    def __init__(
        self,
        settings: LoadedSettings | Settings,
        storages: StorageSource,
        *,
        clock: Clock | None = None,
        times: LeaseTimes | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        loaded = LoadedSettings.of_program(settings) if isinstance(settings, Settings) else settings
        settings = loaded.settings
        settings.check()
        if settings.database is None:
            raise InvalidConfig("a node needs the settings database and objects")
        self._loaded = loaded
        self.settings = settings
        self._storages = storages
        self._clock = clock or SystemClock()
        self._times = times or LeaseTimes()
        self._patience_seconds = patience_seconds
        self._database = Database(settings.database.url)
        self.incarnation: UUID = uuid4()
        self.role = Role.STARTING
        self.listeners: dict[str, Address] = {}
        """The addresses of the client listeners, by the name of the setting, once started."""
        self._sockets: dict[str, ListeningSockets] = {}
        self._app: App | None = None
        self._lease: Lease | None = None
        self._settled = asyncio.Event()
        """The first role was taken."""
        self._stopping = asyncio.Event()
        self._living: asyncio.Task[None] | None = None
        self._peers: PeerListener | None = None

    async def start(self) -> None:
        """Returns when clients are accepted, in whichever role."""
        try:
            await self._prepare()
        except BaseException:
            for each in self._sockets.values():
                each.close()
            raise
        self._living = asyncio.get_running_loop().create_task(self._live())
        settled = asyncio.create_task(self._settled.wait())
        await asyncio.wait([self._living, settled], return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if self._living.done():
            await self.stop()

    async def _prepare(self) -> None:
        for warning in await inspect(self._database):
            log.warning("%s", warning)
        await self._storages.open()
        connection = await self._database.connect("start")
        try:
            identity = await cluster_identity(connection)
        finally:
            await connection.close()
        for each in self.settings.listeners:
            self._sockets[each.name] = await ListeningSockets.bind(each.address)
            self.listeners[each.name] = self._sockets[each.name].address
        peers = await ListeningSockets.bind(self.settings.peer)
        self._dialler = Dialler(
            identity.secret, self._holder_address, patience_seconds=self._patience_seconds
        )
        self._peers = PeerListener(peers, identity.secret, self._adopter)
        self._registration = Registration(
            name=self.settings.broker_name or _default_name(self.listeners),
            incarnation=self.incarnation,
            addresses=self._addresses(peers.address),
            rack=self.settings.rack,
            version=posthouse.__version__,
        )
        self._registry = Registry(self._database, self._registration)
        await self._registry.register()
        self._registry.start()
        self._peers.start()

    def _addresses(self, peer: Address) -> dict[str, Address]:
        found = {each.name: each.advertised or self.listeners[each.name] for each in self.settings.listeners}
        return found | {PEER: self.settings.peer_advertised or peer}

    @property
    def app(self) -> App | None:
        """The application that serves while this broker is the holder."""
        return self._app

    @property
    def name(self) -> str:
        return self._registration.name

    @property
    def view(self) -> ClusterView:
        return self._registry.view

    @property
    def epoch(self) -> int:
        """Of the lease that this broker holds, or has seen last."""
        return self._registry.view.epoch if self._lease is None else self._lease.epoch

    @property
    def descriptions(self) -> list[str]:
        """Which clients connect where, in words, without TLS listeners."""
        describe = {front_end.protocol: front_end.describe for front_end in FRONT_ENDS}
        return [
            describe[each.protocol](self.listeners[each.name], self.settings)
            for each in self.settings.listeners
            if not each.has_tls
        ]

    def reload_certificates(self) -> None:
        if self._app is not None:
            self._app.reload_certificates()

    def ready(self) -> dict[str, object]:
        """What the ready line says besides the addresses."""
        return {"broker": self.name, "role": str(self.role), "epoch": self.epoch}

    async def ended(self) -> None:
        """Returns when the node has ended by itself; `stop` then raises the reason."""
        if self._living is not None:
            await asyncio.wait([self._living])

    async def stop(self) -> None:
        """Raises the reason if the node has ended by itself."""
        self._stopping.set()
        if self._living is not None:
            await asyncio.wait([self._living])
        if self._peers is not None:
            await self._peers.close()
        await self._registry.stop()
        for each in self._sockets.values():
            each.close()
        await self._storages.close()
        if self._living is not None:
            self._living.result()

    # Roles

    async def _live(self) -> None:
        try:
            lease = await self._try_to_take()
            while not self._stopping.is_set():
                if lease is None:
                    lease = await self._stand_by()
                if lease is not None:
                    await self._hold(lease)
                    lease = None
        except PosthouseError as error:
            log.error("broker %s ends: %s", self.name, error)
            raise

    async def _stand_by(self) -> Lease | None:
        """The lease, once this broker has taken it; None when it is to stop."""
        total = min(self.settings.max_connections, (allowed_descriptors() - RESERVE) // 2)
        gate = Gate(
            self._clock,
            total=total,
            per_address=self.settings.max_connections_per_address,
            seconds_to_wait=self.settings.offender_wait_seconds,
        )
        standby = Standby(self.settings.listeners, gate, self._dialler)
        standby.start(self._copies())
        self._take_role(Role.STANDBY)
        holder = self.view.holder
        why = "no broker is the holder" if holder is None else f"{holder.name} is the holder"
        log.info("broker %s is a standby, epoch %d: %s", self.name, self.view.epoch, why)
        try:
            return await self._campaign()
        finally:
            await standby.stop()

    async def _campaign(self) -> Lease | None:
        while not self._stopping.is_set():
            if self._registry.failure is not None:
                raise NodeFailed(str(self._registry.failure))
            left = self._registry.lease_seconds_left()
            if left <= 0 and self._registry.loss is None:
                lease = await self._try_to_take()
                if lease is not None:
                    return lease
                left = _SOONEST_SECONDS
            await self._pause(min(max(left, _SOONEST_SECONDS), _AGAIN_SECONDS))
        return None

    async def _pause(self, seconds: float) -> None:
        """Shorter if the node is to stop."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _try_to_take(self) -> Lease | None:
        before = self._registry.view
        try:
            lease = await take_lease(self._database, self.incarnation, clock=self._clock, times=self._times)
        except DatabaseAway as error:
            log.warning("broker %s cannot take the lease: %s", self.name, error)
            await self._pause(_AGAIN_SECONDS)
            return None
        if lease is not None:
            why = "it was free"
            if before.holder_incarnation is not None:
                who = before.holder.name if before.holder else "a broker that is gone"
                why = f"that of {who}, epoch {before.epoch}, has ended"
            log.info("broker %s takes the lease of epoch %d: %s", self.name, lease.epoch, why)
            lease.keep()
        return lease

    async def _hold(self, lease: Lease) -> None:
        self._lease = lease
        app: App | None = None
        try:
            app = App(
                self._loaded,
                clock=self._clock,
                storage=self._storages.make(lease),
                membership=Membership(own=self._own(), lease=lease, view=lambda: self._registry.view),
            )
            if await self._start_app(app, lease):
                self._app = app
                self._take_role(Role.HOLDER)
                log.info("broker %s is the holder, epoch %d", self.name, lease.epoch)
                await self._serve(lease)
                await self._stop_app(app, lease)
        finally:
            self._app = None
            self.role = Role.STANDBY
            await lease.release()
            self._lease = None

    async def _start_app(self, app: App, lease: Lease) -> bool:
        try:
            await app.start(self._copies())
        except InvalidConfig:
            raise
        except (PosthouseError, OSError) as error:
            log.error("broker %s cannot serve, epoch %d: %s", self.name, lease.epoch, error)
            await self._pause(_AGAIN_SECONDS)
            return False
        return True

    async def _serve(self, lease: Lease) -> None:
        """Returns when the lease is lost, the database has lost commits, or the node is to stop."""
        waiting = [asyncio.create_task(lease.lost()), asyncio.create_task(self._stopping.wait())]
        try:
            while not any(each.done() for each in waiting):
                await asyncio.wait(waiting, timeout=_AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if self._registry.failure is not None:
                    raise NodeFailed(str(self._registry.failure))
                if self._registry.loss is not None:
                    return
        finally:
            for each in waiting:
                each.cancel()

    async def _stop_app(self, app: App, lease: Lease) -> None:
        at_once = lease.is_lost or self._registry.loss is not None
        if at_once:
            why = self._registry.loss or "another broker has taken it"
            log.warning(
                "broker %s loses the lease of epoch %d and closes all connections: %s",
                *(self.name, lease.epoch, why),
            )
        seconds = _ABANDON_SECONDS if at_once else _ABANDON_SECONDS + self.settings.shutdown_seconds
        try:
            async with asyncio.timeout(seconds):
                await app.stop(at_once=at_once)
        except TimeoutError:
            raise NodeFailed(f"the broker did not stop serving within {seconds:g} s") from None
        except PosthouseError as error:
            log.warning("broker %s: stopping, epoch %d: %s", self.name, lease.epoch, error)

    def _take_role(self, role: Role) -> None:
        self.role = role
        self._settled.set()

    # What others see

    def _own(self) -> ClusterBroker:
        mine = self._registration
        return ClusterBroker(
            id=self._registry.node_id,
            name=mine.name,
            incarnation=mine.incarnation,
            addresses=mine.addresses,
            rack=mine.rack,
            version=mine.version,
        )

    def _copies(self) -> Mapping[str, ListeningSockets]:
        return {name: each.duplicate() for name, each in self._sockets.items()}

    def _holder_address(self) -> Address | None:
        holder = self._registry.view.holder
        if holder is None or holder.incarnation == self.incarnation:
            return None
        return holder.addresses.get(PEER)

    def _adopter(self, name: str) -> Adopt | None:
        listener = None if self._app is None else self._app.listener(name)
        return None if listener is None else listener.adopt


def _default_name(listeners: Mapping[str, Address]) -> str:
    port = next(iter(listeners.values())).port
    for name in ("kafka", "kafka_tls"):
        if name in listeners:
            port = listeners[name].port
            break
    return f"{socket.gethostname()}:{port}"
