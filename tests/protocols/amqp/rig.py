"""A broker with an AMQP listener whose limits, storage and settings a test can choose."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from posthouse.broker.broker import Broker
from posthouse.broker.queues.queue import Queue
from posthouse.model.clock import SystemClock
from posthouse.model.errors import PosthouseError
from posthouse.protocols.amqp.connection import AmqpConnection
from posthouse.protocols.amqp.connections import AmqpConnections
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.predeclared import PREDECLARED
from posthouse.protocols.gate import Gate
from posthouse.protocols.listener import Listener
from posthouse.settings import Address, Settings
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append, Operation
from posthouse.storage.outcomes import Outcome
from tests.protocols.amqp.wire import Wire


class GatedStorage(MemoryStorage):
    """Appends wait while the gate is closed, and fail while there is a reason for it."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: PosthouseError | None = None

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        if not any(isinstance(operation, Append) for operation in operations):
            return super().commit(operations)
        if self.failure is not None:
            failed: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
            failed.set_exception(self.failure)
            return failed
        if self.gate.is_set():
            return super().commit(operations)
        return asyncio.ensure_future(self._later(operations))

    async def _later(self, operations: Sequence[Operation]) -> list[Outcome]:
        await self.gate.wait()
        return await super().commit(operations)


class Rig:
    def __init__(
        self,
        *,
        limits: AmqpLimits | None = None,
        storage: MemoryStorage | None = None,
        buffer: int = 8 * 1024 * 1024,
        **settings: Any,
    ) -> None:
        """`buffer` is the setting connection_buffer_bytes."""
        self.settings = Settings(memory=True, connection_buffer_bytes=buffer, **settings)
        self.broker = Broker(
            storage or MemoryStorage(SystemClock()),
            self.settings,
            SystemClock(),
            predeclared_exchanges=PREDECLARED,
        )
        self._limits = limits

    async def __aenter__(self) -> Self:
        await self.broker.start()
        await self.broker.coordinate()
        factory = AmqpConnections(
            self.broker.namespaces,
            self.broker.publishing,
            self.broker.half_messages,
            self.broker.access,
            self.settings,
            limits=self._limits,
        )
        self.listener = Listener("AMQP", factory, Gate(SystemClock(), total=100))
        self.address = await self.listener.start(Address("127.0.0.1", 0))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.listener.close()
        await self.listener.drained(1.0)
        await self.broker.stop()

    def wire(self) -> Wire:
        return Wire(self.address.host, self.address.port)

    async def open(self, **negotiated: Any) -> Wire:
        """A connection with channel 1."""
        wire = await self.wire().open(**negotiated)
        await wire.channel(1)
        return wire

    @property
    def connections(self) -> list[AmqpConnection]:
        return [each for each in self.listener if isinstance(each, AmqpConnection)]

    def queue(self, name: str) -> Queue:
        queue = self.broker.namespaces.get("/").queues[name]
        assert isinstance(queue, Queue)
        return queue

    async def paused(self) -> AmqpConnection:
        """The connection that is not read from, for longer than a turn for others takes."""
        while True:
            for each in self.connections:
                if each._flow.is_paused and not each._conversation.others_turns.left:
                    return each
            await asyncio.sleep(0.001)
