"""A host with one broker: a whole node of the real code, which is started, stopped, paused and killed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posthouse.model.clock import Clock
from posthouse.model.errors import Unavailable
from posthouse.node import Node
from posthouse.service_url import ServiceUrl
from posthouse.settings import Address, Settings
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from posthouse.storage.shared.membership.lease import Lease, LeaseTimes
from posthouse.storage.shared.stores import SharedStores
from tests.simulation.cluster.cluster_loop import ClusterLoop
from tests.simulation.cluster.database_server import DatabaseServer
from tests.simulation.cluster.sockets import TcpNetwork
from tests.simulation.loop import Failure
from tests.simulation.machine import AMQP_PORT, KAFKA_PORT
from tests.simulation.machine import Clock as JumpingClock
from tests.simulation.world import Process, World

PEER_PORT = 9095
TIMES = LeaseTimes(seconds=3.0, renewal_seconds=0.7, margin_seconds=0.8, cut_off_seconds=30.0)
"""Shorter than in life, so that a seed sees several takeovers."""
PATIENCE_SECONDS = 4.0
_NEVER = 1e9
_NO_UPKEEP = UpkeepSettings(
    consolidation_seconds=_NEVER,
    merging_seconds=_NEVER,
    slot_seconds=_NEVER,
    removal_seconds=_NEVER,
    garbage_seconds=_NEVER,
)
"""Housekeeping of the shared storage has models of its own; the simulated database has no segments."""
DATABASE_URL = ServiceUrl("postgresql://posthouse@database/posthouse")
OBJECTS_URL = ServiceUrl("file:///objects")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimits:
    """Small ones, so that records are read from the database as well as from memory."""

    connection_buffer_bytes: int
    tail_bytes: int
    inline_bytes: int
    vhosts: tuple[str, ...] = ()
    """Besides the default one."""


class Storages:
    """As `SharedStorages`, with these limits and without housekeeping."""

    def __init__(self, settings: Settings, clock: Clock, limits: ClusterLimits) -> None:
        self._defaults = settings.topic_defaults()
        self._clock = clock
        self._limits = limits
        self._stores = SharedStores(
            database=DATABASE_URL.url,
            objects=OBJECTS_URL.url,
            clock=clock,
            cache_bytes=settings.cache_bytes,
            inline_bytes=limits.inline_bytes,
        )

    async def open(self) -> None:
        await self._stores.open()

    def make(self, lease: Lease) -> SharedStorage:
        stores = self._stores
        return SharedStorage(
            stores.database,
            stores.objects,
            stores.blocks,
            lease,
            clock=self._clock,
            defaults=self._defaults,
            inline_bytes=self._limits.inline_bytes,
            tail_bytes=self._limits.tail_bytes,
            cache_bytes=self._limits.tail_bytes,
            upkeep=_NO_UPKEEP,
            last_commits=stores.last_commits,
        )

    async def close(self) -> None:
        await self._stores.close()


class BrokerHost:
    def __init__(
        self,
        number: int,
        world: World,
        network: TcpNetwork,
        server: DatabaseServer,
        limits: ClusterLimits,
        hosts: dict[str, str],
        on_failure: Failure,
    ) -> None:
        self.number = number
        self.name = f"broker-{number}"
        self.address = f"127.0.0.{number}"
        self.world = world
        self.clock = JumpingClock(world)
        self.lives = 0
        self.is_stopping = False
        self.node: Node | None = None
        self.loop: ClusterLoop | None = None
        self.has_started = False
        self.on_death: Callable[[BrokerHost, str], None] = lambda host, kind: None
        self._network = network
        self._server = server
        self._limits = limits
        self._hosts = hosts
        self._on_failure = on_failure
        self._dead: list[ClusterLoop] = []

    @property
    def is_up(self) -> bool:
        """Whether it serves, in one of its roles."""
        return (
            self.node is not None
            and self.has_started
            and not self.is_stopping
            and self.node.parts.life.app is not None
        )

    def boot(self) -> None:
        """No-op if it is running."""
        if self.node is not None:
            return
        self.lives += 1
        self.is_stopping = self.has_started = False
        self.world.note(f"{self.name} boots, life {self.lives}")
        process = Process(self.world, f"{self.name} ({self.lives})")
        loop = self.loop = ClusterLoop(
            process,
            self._network,
            self._on_failure,
            host=self.name,
            address=self.address,
            hosts=self._hosts,
        )
        settings = Settings(
            data=Path("/nowhere"),
            kafka=Address(self.address, KAFKA_PORT),
            amqp=Address(self.address, AMQP_PORT),
            admin=None,
            peer=Address(self.address, PEER_PORT),
            broker_name=self.name,
            database=DATABASE_URL,
            objects=OBJECTS_URL,
            namespaces=self._limits.vhosts,
            connection_buffer_bytes=self._limits.connection_buffer_bytes,
            retention_check_seconds=_NEVER,
            auto_create_topics=False,
            shutdown_seconds=2.0,
        )
        storages = Storages(settings, self.clock, self._limits)
        node = self.node = Node(
            settings, storages, clock=self.clock, times=TIMES, patience_seconds=PATIENCE_SECONDS
        )
        running = loop.create_task(self._run(node))
        running.add_done_callback(self._ended)

    async def _run(self, node: Node) -> None:
        await node.start()
        self.has_started = True
        self.world.note(f"{self.name} has started as {node.role}")
        await node.ended()

    def _ended(self, task: Any) -> None:
        """A broker may find no database when it starts. Nothing else ends it but a fault or a stop."""
        error, node = task.exception(), self.node
        if error is None and (self.is_stopping or node is None):
            return
        by_itself = error or (node and node.parts.running.exception())
        kind = "end" if error is None else "failed start"
        self.world.note(f"{self.name} ends by {kind}: {by_itself!r}")
        if error is None or not isinstance(error, Unavailable):
            context = {"message": f"the broker ended by itself ({kind})", "exception": by_itself}
            self._on_failure(self.name, context)
        self.die(kind)

    def die(self, kind: str) -> None:
        """At once: what it has in memory is gone."""
        if self.node is None or self.loop is None:
            return
        self.world.note(f"{self.name} dies by {kind}")
        loop, self.loop, self.node = self.loop, None, None
        loop.process.is_dead = True
        self._network.died(loop)
        self._server.died(loop)
        self._dead.append(loop)
        self.on_death(self, kind)

    def stop(self) -> None:
        """As by SIGTERM."""
        if self.node is not None and self.loop is not None and self.has_started and not self.is_stopping:
            self.is_stopping = True
            self.loop.create_task(self._stop(self.node))

    async def _stop(self, node: Node) -> None:
        await node.stop()
        if node is self.node:
            self.die("stop")

    def pause(self, seconds: float) -> None:
        if self.loop is not None:
            self.loop.process.pause(seconds)

    def resume(self) -> None:
        if self.loop is not None:
            self.loop.process.resume()

    def scrap(self) -> None:
        """It is all over."""
        if self.loop is not None:
            self._dead.append(self.loop)
        for loop in self._dead:
            loop.bury()
