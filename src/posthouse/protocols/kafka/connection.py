"""One client: its bytes in, its responses out, in the order of its requests.

Memory is bounded. Requests that are in flight or wait, and responses that are not sent, count against
`connection_buffer_bytes`: beyond it nothing more is read, and while responses are not taken nothing more
is started. One request or response may exceed the limit by itself, or it could never pass.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, cast

from posthouse.broker.transactions.origins import Session
from posthouse.protocols.kafka.codec.primitives import Buffer, DecodeError, Message
from posthouse.protocols.kafka.dispatch import Dispatcher
from posthouse.protocols.kafka.errors import ProtocolViolation
from posthouse.protocols.kafka.frames import RECEIVE_BUFFER, FrameError, FrameReader
from posthouse.protocols.listener import Listener
from posthouse.settings import Address, Settings

log = logging.getLogger(__name__)

# Responses that become ready together leave with one system call, but not more bytes than this.
_FLUSH_BYTES = 64 * 1024


class KafkaConnections:
    """Makes the connections of one listener."""

    def __init__(self, dispatcher: Dispatcher, settings: Settings) -> None:
        self.dispatcher = dispatcher
        self.settings = settings
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER))

    def __call__(self, listener: Listener) -> asyncio.BufferedProtocol:
        return KafkaConnection(self, listener)


class _Exchange:
    """One request's place in the order of its connection; see `dispatch.Exchange`."""

    __slots__ = ("chunks", "connection", "held", "ready", "size")

    def __init__(self, connection: "KafkaConnection", size: int) -> None:
        self.connection = connection
        self.size = size
        self.chunks: list[Buffer] | None = None
        self.held = 0
        self.ready = False

    @property
    def peer(self) -> str:
        return self.connection.peer

    @property
    def session(self) -> Session:
        return self.connection.session

    def answer(self, chunks: list[Buffer] | None) -> None:
        self.chunks = chunks
        self.ready = True
        self.connection.answered(self)

    def run(self, coroutine: Coroutine[Any, Any, Message]) -> asyncio.Task[Message]:
        return self.connection.run(self, coroutine)

    def violated(self, reason: str) -> None:
        self.connection.close_because(reason)


class KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, made_by: KafkaConnections, listener: Listener) -> None:
        settings = made_by.settings
        self._dispatcher = made_by.dispatcher
        self._listener = listener
        self._advertised = settings.kafka_advertised
        self._limit = settings.connection_buffer_bytes
        self._reader = FrameReader(made_by.receive_buffer, settings.max_request_bytes)
        self._node = settings.kafka
        self.peer = "?"
        self.session = Session()
        self._exchanges: deque[_Exchange] = deque()
        self._waiting: deque[memoryview] = deque()
        self._blocked_by: _Exchange | None = None
        self._task: asyncio.Task[Message] | None = None
        self._load = 0
        """Bytes of requests that are waiting or in flight, and of responses that wait for earlier ones."""
        self._held = 0
        self._outbox: list[Buffer] = []
        self._outbox_bytes = 0
        self._writing_paused = False
        self._reading_paused = False
        self._starting = False
        self._finishing = False
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limit)
        self.peer = _shown(transport.get_extra_info("peername"))
        self._node = self._advertised or _local_address(transport, self._node)
        if not self._listener.join(self):
            self._closed = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)
        self.session.is_open = False
        if not self._closed and self._reader.in_frame:
            log.warning("the Kafka connection from %s ended in the middle of a request", self.peer)
        self._forget()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, size: int) -> None:
        if self._closed or self._finishing:
            return
        try:
            frames = self._reader.received(size)
        except FrameError as error:
            self.close_because(str(error))
            return
        for frame in frames:
            self._load += len(frame)
        self._waiting.extend(frames)
        self._start_waiting()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._regulate_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start requests in order, until one must be waited for or the client does not take its answers."""
        if self._starting:
            return
        self._starting = True
        waiting = self._waiting
        while waiting and self._task is None and not self._writing_paused and self._held <= self._limit:
            frame = waiting.popleft()
            exchange = _Exchange(self, len(frame))
            self._exchanges.append(exchange)
            try:
                self._dispatcher.dispatch(frame, self._node, exchange)
            except (DecodeError, ProtocolViolation) as error:
                self.close_because(str(error))
        self._starting = False
        self._regulate_reading()

    def _regulate_reading(self) -> None:
        if self._closed:
            return
        pause = self._writing_paused or self._finishing or self._load > self._limit
        if pause == self._reading_paused:
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def run(self, exchange: _Exchange, coroutine: Coroutine[Any, Any, Message]) -> asyncio.Task[Message]:
        self._blocked_by = exchange
        self._task = self._loop.create_task(coroutine)
        return self._task

    def answered(self, exchange: _Exchange) -> None:
        """Send what is ready, up to the first request that is still being worked on."""
        if self._closed:
            return
        if self._blocked_by is exchange:
            self._blocked_by = self._task = None
        exchanges = self._exchanges
        if exchanges[0] is not exchange:
            exchange.held = sum(map(len, exchange.chunks or ()))
            self._held += exchange.held
            self._load += exchange.held
        else:
            while exchanges and exchanges[0].ready:
                first = exchanges.popleft()
                self._load -= first.size + first.held
                self._held -= first.held
                if first.chunks:
                    self._send(first.chunks)
            if not exchanges:
                self._flush()
        if self._waiting or self._reading_paused:
            self._start_waiting()
            self._leave_when_finished()

    def _send(self, chunks: list[Buffer]) -> None:
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox += chunks
        self._outbox_bytes += sum(map(len, chunks))
        if self._outbox_bytes > _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._outbox and not self._closed:
            chunks, self._outbox = self._outbox, []
            self._outbox_bytes = 0
            self._transport.writelines(chunks)

    def close_because(self, reason: str) -> None:
        """The client is at fault: one line in the log, and no effect on anybody else."""
        if self._closed:
            return
        log.warning("closing the Kafka connection from %s: %s", self.peer, reason)
        self._flush()
        self._forget()
        # Whoever does not take what was written before would keep the connection open for ever.
        if self._writing_paused:
            self._transport.abort()
        else:
            self._transport.close()

    def finish(self) -> None:
        self._finishing = True
        self._load -= sum(map(len, self._waiting))
        self._waiting.clear()
        self._regulate_reading()
        self._leave_when_finished()

    def _leave_when_finished(self) -> None:
        if self._finishing and not self._exchanges and not self._closed:
            self._forget()
            self._transport.close()

    def abort(self) -> None:
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._exchanges.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None


def _shown(address: Any) -> str:
    return str(Address(address[0], address[1])) if isinstance(address, tuple) else str(address or "?")


def _local_address(transport: asyncio.BaseTransport, configured: Address) -> Address:
    """Where this client reached us: the one address that is sure to work for it."""
    name = transport.get_extra_info("sockname")
    return Address(name[0], name[1]) if isinstance(name, tuple) else configured
