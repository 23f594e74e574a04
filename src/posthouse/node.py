"""A broker that shares its storage with others, in the running event loop. See `node_life`."""

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import posthouse
from posthouse.app import check_app
from posthouse.cluster.dialling import PATIENCE_SECONDS, Dialler, ScopeHolder
from posthouse.cluster.peers import PeerListener
from posthouse.loaded_settings import LoadedSettings
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.clock import Clock, SystemClock, WakingClock
from posthouse.model.errors import InvalidConfig
from posthouse.model.scopes import COORDINATOR, Scope
from posthouse.node_context import NodeContext, StorageSource
from posthouse.node_life import NodeLife, Role
from posthouse.node_place import PEER, NodePlace
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.scope_moves import ScopeMoves
from posthouse.settings import Address, Settings
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.membership.identity import cluster_identity
from posthouse.storage.shared.membership.inspection import inspect
from posthouse.storage.shared.membership.lease import LeaseTimes
from posthouse.storage.shared.membership.registry import BrokerRegistry, Registration

log = logging.getLogger(__name__)

_SHARE_SECONDS = 3.0
"""How long a start waits until the broker holds its share of the scopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """Of a node that has started."""

    place: NodePlace
    registry: BrokerRegistry
    peers: PeerListener
    life: NodeLife
    running: asyncio.Task[None]


class Node:
    """Started once, stopped once."""

    may_give_up_start: Final = True
    """It may wait for a database that hangs."""

    def __init__(
        self,
        settings: LoadedSettings | Settings,
        storages: StorageSource,
        *,
        clock: Clock | None = None,
        times: LeaseTimes | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._loaded = LoadedSettings.of_program(settings) if isinstance(settings, Settings) else settings
        settings = self._loaded.settings
        settings.check()
        if settings.database is None:
            raise InvalidConfig("a node needs the settings database and objects")
        self.settings = settings
        self._storages = storages
        self._clock = clock or SystemClock()
        # A machine that slept must not think that its lease lasts.
        self._lease_clock = clock or WakingClock()
        self._times = times or LeaseTimes()
        self._patience_seconds = patience_seconds
        self._database = Database(settings.database.url)
        self._parts: NodeParts | None = None

    async def start(self) -> None:
        """Returns when clients are accepted, in whichever role. Raises InvalidConfig, also for what only a
        coordinator needs: a member must not find out at its takeover."""
        check_app(self.settings)
        for warning in await inspect(self._database):
            log.warning("%s", warning)
        connection = await self._database.connect("start")
        try:
            identity = await cluster_identity(connection)
        finally:
            await connection.close()
        async with AsyncExitStack() as undo:
            place = await NodePlace.bind(self.settings)
            undo.callback(place.close)
            undo.push_async_callback(self._storages.close)
            await self._storages.open()
            self._parts = await self._joined(identity.secret, place)
            undo.pop_all()
        settled = asyncio.create_task(self._parts.life.settled.wait())
        try:
            await asyncio.wait([self._parts.running, settled], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            settled.cancel()
        if self._parts.running.done():
            await self.stop()
        else:
            await self._wait_for_share()

    async def _wait_for_share(self) -> None:
        """So that clients that connect at once find the coordinators of their groups."""
        keeper = self.parts.life.keeper
        if keeper is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(keeper.has_share.wait(), _SHARE_SECONDS)

    async def _joined(self, secret: bytes, place: NodePlace) -> NodeParts:
        registration = Registration(
            name=place.name,
            incarnation=uuid4(),
            addresses=place.advertised,
            rack=self.settings.rack,
            version=posthouse.__version__,
            node_id=self.settings.node_id,
        )
        registry = BrokerRegistry(self._database, registration)
        node_id = await registry.register()
        own = ClusterBroker(
            id=node_id,
            name=registration.name,
            incarnation=registration.incarnation,
            addresses=registration.addresses,
            rack=registration.rack,
            version=registration.version,
        )

        def holder(scope: Scope) -> ScopeHolder | None:
            """This broker, too: connections that waited for its takeover reach it like those of others."""
            view = registry.view
            incarnation = view.holder_incarnation if scope == COORDINATOR else view.holders.get(scope)
            if incarnation is None:
                return None
            found = view.by_incarnation.get(incarnation)
            return ScopeHolder(
                incarnation=incarnation, address=None if found is None else found.addresses.get(PEER)
            )

        context = NodeContext(
            loaded=self._loaded,
            place=place,
            database=self._database,
            registry=registry,
            own=own,
            secret=secret,
            dialler=Dialler(secret, holder, patience_seconds=self._patience_seconds),
            storages=self._storages,
            clock=self._clock,
            lease_clock=self._lease_clock,
            times=self._times,
            moves=ScopeMoves(),
            stopping=asyncio.Event(),
        )
        life = NodeLife(context)
        peers = PeerListener(place.peer, secret, life.adopter)
        registry.start()
        peers.start()
        running = asyncio.get_running_loop().create_task(life.run())
        return NodeParts(place=place, registry=registry, peers=peers, life=life, running=running)

    @property
    def parts(self) -> NodeParts:
        """Once started."""
        assert self._parts is not None, "the node has not started"
        return self._parts

    @property
    def listeners(self) -> dict[str, Address]:
        """The addresses of the client listeners, by the name of the setting."""
        return self.parts.place.listeners

    @property
    def role(self) -> Role:
        return self.parts.life.role

    @property
    def view(self) -> ClusterView:
        return self.parts.registry.view

    @property
    def epoch(self) -> int:
        """Of the scope coordinator, which this broker holds, or has seen last."""
        epoch = self.parts.life.epoch
        return self.view.epoch if epoch is None else epoch

    @property
    def descriptions(self) -> list[str]:
        """Which clients connect where, in words, without TLS listeners."""
        describe = {front_end.protocol: front_end.describe for front_end in FRONT_ENDS}
        return [
            describe[each.protocol](self.listeners[each.name], self.settings)
            for each in self.settings.listeners
            if not each.has_tls
        ]

    def ready(self) -> dict[str, object]:
        """What the ready line says besides the addresses."""
        return {"broker": self.parts.place.name, "role": str(self.role), "epoch": self.epoch}

    def reload_certificates(self) -> None:
        """Reload changed certificates at once."""
        if self.parts.life.app is not None:
            self.parts.life.app.reload_certificates()

    async def ended(self) -> None:
        """Returns when the node has ended by itself; `stop` then raises the reason."""
        await asyncio.wait([self.parts.running])

    async def stop(self) -> None:
        """Raises the reason if the node has ended by itself."""
        parts = self.parts
        parts.life.stop()
        await asyncio.wait([parts.running])
        await parts.peers.close()
        await parts.registry.stop()
        await self._storages.close()
        parts.place.close()
        parts.running.result()
