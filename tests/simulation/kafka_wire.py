"""A Kafka connection of a client: frames out, answers in, in the order of the requests."""

import asyncio
from collections import deque
from typing import Self

from posthouse.protocols.kafka.codec.headers import decode_response_header, request_frame
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.codec.registry import APIS, Api

_BY_NAME = {api.name: api for api in APIS.values()}
_SIZE = 4


class Lost(Exception):
    """No answer: it may have been done, or not."""


Answer = asyncio.Future[Message | Lost]


class KafkaWire(asyncio.Protocol):
    """Without streams: they take several turns of the event loop for an answer, and a seed has hundreds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._arrived = bytearray()
        self._expected: deque[tuple[Api, int, Answer]] = deque()
        self._correlation_id = 0
        self.lost: Lost | None = None
        """Why it is of no use any more."""

    @classmethod
    async def connect(cls, port: int) -> Self:
        try:
            _, wire = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        except OSError as error:
            raise Lost(str(error)) from None
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: Message) -> Answer:
        api = _BY_NAME[type(request).__name__.removesuffix("Request")]
        self._correlation_id += 1
        answer: Answer = self._loop.create_future()
        if self.lost is not None:
            answer.set_result(self.lost)
            return answer
        self._expected.append((api, self._correlation_id, answer))
        body = api.encode_request(request)
        self._transport.writelines(
            request_frame(api.key, api.max_version, self._correlation_id, "simulated", body)
        )
        return answer

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        while len(self._arrived) >= _SIZE:
            end = _SIZE + int.from_bytes(self._arrived[:_SIZE], "big")
            if len(self._arrived) < end:
                return
            frame = bytes(self._arrived[_SIZE:end])
            del self._arrived[:end]
            self._answered(memoryview(frame))

    def _answered(self, frame: memoryview) -> None:
        api, expected, answer = self._expected.popleft()
        correlation_id, start = decode_response_header(api.key, api.max_version, frame)
        assert correlation_id == expected
        answer.set_result(api.decode_response(frame, start))

    def connection_lost(self, error: Exception | None) -> None:
        self.lose(repr(error))

    def lose(self, reason: str) -> None:
        """Whoever waits for an answer hears that there is none."""
        if self.lost is None:
            self.lost = Lost(reason)
            self._transport.close()
            while self._expected:
                self._expected.popleft()[2].set_result(self.lost)
