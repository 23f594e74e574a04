"""The composition root: settings → storage → broker → listeners. The only place that knows them all."""

import asyncio
import logging
import resource

from posthouse.broker.broker import Broker
from posthouse.model.clock import Clock, SystemClock
from posthouse.protocols.amqp.connection import AmqpConnections
from posthouse.protocols.amqp.mapping.attributes import read_attributes
from posthouse.protocols.kafka.connection import KafkaConnections
from posthouse.protocols.kafka.consumer_protocol import ConsumerProtocol
from posthouse.protocols.kafka.dispatch import Dispatcher
from posthouse.protocols.listener import Listener
from posthouse.settings import Address, Settings
from posthouse.storage.interface import Storage
from posthouse.storage.memory import MemoryStorage

log = logging.getLogger(__name__)


class App:
    """One broker with its listeners, in the running event loop. Started once, stopped once."""

    def __init__(
        self, settings: Settings, *, clock: Clock | None = None, storage: Storage | None = None
    ) -> None:
        settings.check()
        clock = clock or SystemClock()
        self.settings = settings
        self.broker = Broker(storage or _storage(settings, clock), settings, clock, ConsumerProtocol())
        self.broker.namespaces.read_attributes = read_attributes
        self._kafka = Listener(
            "Kafka",
            KafkaConnections(Dispatcher(self.broker), settings),
            max_connections=settings.max_connections,
        )
        self._amqp = Listener(
            "AMQP",
            AmqpConnections(self.broker.namespaces, self.broker.publishing, settings),
            max_connections=settings.max_connections,
        )
        self.listeners: dict[str, Address] = {}
        """Where clients are served, by protocol, once started."""

    async def start(self) -> None:
        await self.broker.start()
        try:
            self.listeners["kafka"] = await self._kafka.start(self.settings.kafka)
            if self.settings.amqp is not None:
                self.listeners["amqp"] = await self._amqp.start(self.settings.amqp)
        except BaseException:
            self._kafka.close()
            await self.broker.stop()
            raise

    async def stop(self) -> None:
        """Accept nobody more, answer what was asked, then let go of the storage."""
        self._kafka.close()
        self._amqp.close()
        self.broker.wake_readers()
        await asyncio.gather(
            self._kafka.drained(self.settings.shutdown_seconds),
            self._amqp.drained(self.settings.shutdown_seconds),
        )
        await self.broker.stop()


def _storage(settings: Settings, clock: Clock) -> Storage:
    if settings.memory:
        return MemoryStorage(clock)
    # Not needed by brokers in memory, which tests start in large numbers.
    from posthouse.storage.engine import FileStorage

    return FileStorage(
        settings.data,
        clock=clock,
        defaults=settings.topic_defaults(),
        journal_bytes=settings.journal_bytes,
        open_files=settings.open_files or resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
    )
