"""An AMQP connection of a client, whose messages come whole or not at all."""

import asyncio
from collections import deque
from typing import Any, Self

from tests.protocols.amqp.wire import Wire
from tests.wire.amqp import FRAME_START, frame_length

_SECONDS = 10.0


class AmqpWire(Wire, asyncio.Protocol):
    """Without streams, as `kafka_wire`: what arrives is taken apart at once."""

    def __init__(self, port: int, host: str) -> None:
        super().__init__(host, port)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._bytes = bytearray()
        self._arrived: deque[tuple[int, Any]] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._is_lost = False

    async def connect(self) -> Self:
        await self._loop.create_connection(lambda: self, self.host, self.port)
        return self

    def connection_made(self, transport: Any) -> None:
        self._transport = self.writer = transport

    def disconnect(self) -> None:
        """Without a word."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= FRAME_START.size:
            end = frame_length(self._bytes)
            if len(self._bytes) < end:
                return
            got = self.assembler.take(bytes(self._bytes[:end]))
            del self._bytes[:end]
            if got is not None:
                self._arrived.append(got)
                self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self, seconds: float = _SECONDS) -> tuple[int, Any]:
        """Raises TimeoutError where nothing comes, EOFError when nothing ever will."""
        if not self._arrived and not self._is_lost:
            self._waiting = self._loop.create_future()
            deadline = self._loop.call_later(seconds, self._wake)
            await self._waiting
            deadline.cancel()
        if self._arrived:
            return self._arrived.popleft()
        raise EOFError if self._is_lost else TimeoutError
