"""The kinds of calls, as handlers see them: unary, streaming (one request, many answers), bidirectional."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from posthouse.protocols.grpc.call import Call
from posthouse.protocols.grpc.messages import encode_message
from posthouse.protocols.grpc.status import RESPONSE, SUCCESS, Status, only_trailers, trailers

log = logging.getLogger(__name__)

_UNREAD_BYTES: Final = 64 * 1024
"""More than this waits in a stream: `send` waits, `push` refuses."""


class UnaryCall(Call):
    __slots__ = ("_size",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._size = 0
        """Bytes that are in flight."""

    def received(self, data: bytes) -> None:
        message = self._only(data)
        if message is None:
            return
        self._count(-len(message))  # counted as in flight from now on
        self.go(message)

    def go(self, message: bytes) -> None:
        """The request is complete."""
        self._size = len(message)
        self._carrier.in_flight(self._size)
        self._work(message)

    def answer(self, message: bytes) -> None:
        if not self.is_ended:
            self._ended()
            self._carrier.http2.sender.respond(self._stream, RESPONSE, encode_message(message), SUCCESS)
        if self._task is None:
            self._done()

    def fail(self, status: Status, text: str = "") -> None:
        super().fail(status, text)
        if self._task is None:
            self._done()

    def _returned(self, result: Any) -> None:
        if isinstance(result, bytes):
            self.answer(result)
        elif not self.is_ended:
            log.error("%s of %s has no answer", self.name, self._carrier.peer)
            self.fail(Status.INTERNAL, "the broker has failed; its log says why")
        self._done()

    def _done(self) -> None:
        if self._is_working:
            super()._done()
            self._carrier.in_flight(-self._size)


class StreamingCall(Call):
    __slots__ = ("_is_begun", "_sendable")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._is_begun = False
        """The first headers are sent."""
        self._sendable: asyncio.Future[None] | None = None

    def received(self, data: bytes) -> None:
        message = self._only(data)
        if message is None:
            return
        self._work(message)  # stays counted until the call ends: handlers keep what they were asked

    def hold(self, size: int) -> None:
        """Count bytes that the handler keeps until the call ends: what it has yet to send."""
        if not self.is_ended:
            self._count(size)

    async def send(self, message: bytes) -> None:
        """Waits while the client has much to read."""
        self._send(message)
        while self._is_behind and not self.is_ended:
            if self._sendable is None:
                self._sendable = self._carrier.loop.create_future()
                self._stream.drained = self._drained
            await asyncio.shield(self._sendable)

    def push(self, message: bytes) -> bool:
        """False if the client does not read, or the call has ended: then nothing is sent."""
        if self.is_ended or self._is_behind:
            return False
        self._send(message)
        return True

    @property
    def _is_behind(self) -> bool:
        return self._stream.pending_bytes > _UNREAD_BYTES

    def _send(self, message: bytes) -> None:
        if self.is_ended:
            return
        sender = self._carrier.http2.sender
        if not self._is_begun:
            self._is_begun = True
            sender.headers(self._stream, RESPONSE)
        sender.data(self._stream, encode_message(message))

    def _drained(self) -> None:
        sendable, self._sendable = self._sendable, None
        self._stream.drained = None
        if sendable is not None and not sendable.done():
            sendable.set_result(None)

    def _failure(self, status: Status, text: str) -> bytes:
        return trailers(status, text) if self._is_begun else only_trailers(status, text)

    def _returned(self, result: Any) -> None:
        if not self.is_ended:
            self._finish(SUCCESS if self._is_begun else RESPONSE + SUCCESS)
        self._done()

    def _ended(self) -> None:
        super()._ended()
        self._drained()


class BidiCall(StreamingCall):
    __slots__ = ("_extra", "_inbox", "_receivable")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inbox: deque[tuple[bytes, int]] = deque()
        self._receivable: asyncio.Future[None] | None = None
        self._extra = 0
        """Bytes by which the stream's window was opened for a large message."""

    def start(self) -> None:
        self._work()

    def received(self, data: bytes) -> None:
        for message, size in self._read(data):
            self._inbox.append((message, size))
            self._count(len(message))
        self._wake()

    def _extended(self, size: int) -> None:
        self._extra += size

    async def receive(self) -> bytes | None:
        """The next message of the client; None after the last one."""
        while not self._inbox:
            if self._stream.is_remote_ended or self.is_ended:
                return None
            if self._receivable is None:
                self._receivable = self._carrier.loop.create_future()
            await asyncio.shield(self._receivable)
        message, size = self._inbox.popleft()
        if not self.is_ended:
            self._count(-len(message))
            self._give_back(size)
        return message

    def _give_back(self, size: int) -> None:
        if self._has_room and not self._inbox:
            self._has_room = False
            self._carrier.room.leave(self)
        beyond = min(size, self._extra)
        self._extra -= beyond
        self._carrier.http2.taken(self._stream, size - beyond)
        self._ask_for_room()  # for the next message, if it is large, too

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.receive()) is not None:
            yield message

    def _wake(self) -> None:
        receivable, self._receivable = self._receivable, None
        if receivable is not None and not receivable.done():
            receivable.set_result(None)

    def _observe(self) -> None:
        self.metrics.untimed += 1  # it lives as long as the client wants

    def _ended(self) -> None:
        super()._ended()
        self._wake()
