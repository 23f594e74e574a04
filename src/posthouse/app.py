"""The composition root: settings → storage → broker → listeners. The only place that knows them all."""

import asyncio
import logging
import os
from dataclasses import dataclass, replace

from posthouse.broker.broker import Broker
from posthouse.descriptors import allowed_descriptors, share_out
from posthouse.model.clock import Clock, SystemClock
from posthouse.protocols.amqp.connection import AmqpConnections
from posthouse.protocols.amqp.mapping.attributes import read_attributes
from posthouse.protocols.budget import Budget
from posthouse.protocols.gate import Gate
from posthouse.protocols.kafka.connection import KafkaConnections
from posthouse.protocols.kafka.consumer_protocol import ConsumerProtocol
from posthouse.protocols.kafka.dispatch import Dispatcher
from posthouse.protocols.listener import Connection, Listener
from posthouse.protocols.tls import Certificates
from posthouse.settings import MIB, Address, Settings
from posthouse.storage.contract import Storage
from posthouse.storage.memory.engine import MemoryStorage

log = logging.getLogger(__name__)


_MOST_INFLIGHT = 1024 * MIB
_SWEEP_SECONDS = 1.0
_CERTIFICATE_SECONDS = 5.0
"""How often the files of the certificate are looked at."""


@dataclass(frozen=True, slots=True)
class _Door:
    name: str
    address: Address
    listener: Listener
    with_tls: bool


class App:
    """One broker with its listeners, in the running event loop. Started once, stopped once."""

    def __init__(
        self, settings: Settings, *, clock: Clock | None = None, storage: Storage | None = None
    ) -> None:
        settings.check()
        settings = _affordable(settings)
        clock = clock or SystemClock()
        self.settings = settings
        self.broker = Broker(
            storage or _storage(settings, clock), settings, clock, ConsumerProtocol(), read_attributes
        )
        self._certificates = Certificates.of(settings)
        self._following: asyncio.Task[None] | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        gate = self._gate = Gate(
            clock,
            total=settings.max_connections,
            per_address=settings.max_connections_per_address,
            seconds_to_wait=settings.offender_wait_seconds,
        )
        self.broker.dynamic_settings.limit_connections = lambda limits: gate.limit(
            total=limits.total, per_address=limits.per_address
        )
        budget = self._budget = Budget(settings.inflight_bytes or _affordable_bytes())
        dispatcher, access = Dispatcher(self.broker), self.broker.access
        amqp = AmqpConnections(
            self.broker.namespaces, self.broker.publishing, access, settings, budget=budget
        )
        self._doors = [
            _Door(name, where, Listener(label, connections, gate), with_tls=with_tls)
            for name, label, where, connections, with_tls in (
                (
                    "kafka",
                    "Kafka",
                    settings.kafka,
                    KafkaConnections(dispatcher, access, settings, budget, settings.kafka_advertised),
                    False,
                ),
                (
                    "kafka_tls",
                    "Kafka",
                    settings.kafka_tls,
                    KafkaConnections(dispatcher, access, settings, budget, settings.kafka_tls_advertised),
                    True,
                ),
                ("amqp", "AMQP", settings.amqp, amqp, False),
                ("amqp_tls", "AMQP", settings.amqp_tls, amqp, True),
            )
            if where is not None
        ]
        self.listeners: dict[str, Address] = {}
        """Where clients are served, by protocol, once started."""

    async def start(self) -> None:
        await self.broker.start()
        try:
            for door in self._doors:
                tls = self._certificates if door.with_tls else None
                self.listeners[door.name] = await door.listener.start(door.address, tls)
        except BaseException:
            for door in self._doors:
                door.listener.close()
            await self.broker.stop()
            raise
        self._sweep()
        if self._certificates is not None:
            self._following = asyncio.create_task(self._certificates.follow(_CERTIFICATE_SECONDS))

    def _sweep(self) -> None:
        """Once a second: whoever takes too long, or too much, has to go."""
        self._gate.sweep()
        self._budget.sweep()
        for door in self._doors:
            door.listener.sweep()
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def reload_certificates(self) -> None:
        """At once, instead of when the change is next looked for."""
        if self._certificates is not None:
            asyncio.get_running_loop().run_in_executor(None, self._certificates.reload_changed)

    @property
    def connections(self) -> list[Connection]:
        return [connection for door in self._doors for connection in door.listener]

    async def stop(self) -> None:
        """Accept nobody more, answer what was asked, then let go of the storage."""
        if self._following is not None:
            self._following.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for door in self._doors:
            door.listener.close()
        self.broker.wake_readers()
        await asyncio.gather(*(door.listener.drained(self.settings.shutdown_seconds) for door in self._doors))
        await self.broker.stop()


def _affordable(settings: Settings) -> Settings:
    """No more connections and open segments than the system allows descriptors for."""
    limit = allowed_descriptors()
    shared = share_out(limit, max_connections=settings.max_connections, open_files=settings.open_files)
    if shared.connections < settings.max_connections:
        log.warning(
            "max_connections is %d, but the system allows this process %d open files: %d clients may be "
            "connected at once. Allow more (ulimit -n, or LimitNOFILE of systemd), or lower max_connections",
            *(settings.max_connections, limit, shared.connections),
        )
    return replace(
        settings,
        max_connections=shared.connections,
        max_connections_per_address=min(settings.max_connections_per_address, shared.connections),
        open_files=shared.files,
    )


def _affordable_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory // 4, _MOST_INFLIGHT)


def _storage(settings: Settings, clock: Clock) -> Storage:
    if settings.memory:
        return MemoryStorage(clock)
    # Not needed by brokers in memory, which tests start in large numbers.
    from posthouse.storage.files.engine import FileStorage

    return FileStorage(
        settings.data,
        clock=clock,
        defaults=settings.topic_defaults(),
        journal_bytes=settings.journal_bytes,
        open_files=settings.open_files,
    )
