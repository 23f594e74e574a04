"""A Kafka connection of a client: frames out, answers in, in the order of the requests."""

import asyncio
from collections import deque
from typing import Self

from posthouse.protocols.kafka.codec.primitives import Message
from tests.wire.kafka import FrameSplitter, PendingRequest, RequestEncoder


class Lost(Exception):
    """No answer: it may have been done, or not."""


Answer = asyncio.Future[Message | Lost]


class KafkaWire(asyncio.Protocol):
    """Without streams: they take several turns of the event loop for an answer, and a seed has hundreds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._requests = RequestEncoder("simulated")
        self._frames = FrameSplitter()
        self._pending: deque[tuple[PendingRequest, Answer]] = deque()
        self.lost: Lost | None = None
        """Why it is of no use any more."""

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Self:
        try:
            _, wire = await asyncio.get_running_loop().create_connection(cls, host, port)
        except OSError as error:
            raise Lost(str(error)) from None
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: Message) -> Answer:
        answer: Answer = self._loop.create_future()
        if self.lost is not None:
            answer.set_result(self.lost)
            return answer
        chunks, pending = self._requests.encode(request)
        self._pending.append((pending, answer))
        self._transport.writelines(chunks)
        return answer

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            pending, answer = self._pending.popleft()
            answer.set_result(pending.response(frame, Message))

    def connection_lost(self, error: Exception | None) -> None:
        self.lose(repr(error))

    def lose(self, reason: str) -> None:
        """Every pending request is answered with the reason."""
        if self.lost is None:
            self.lost = Lost(reason)
            self._transport.close()
            while self._pending:
                self._pending.popleft()[1].set_result(self.lost)
