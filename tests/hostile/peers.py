"""Clients on plain sockets: one that behaves, and one that sends whatever it is told to."""

import socket
import time
from types import TracebackType
from typing import Self

from posthouse.protocols.kafka.codec.generated.create_topics import CreateTopicsResponse
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.records.builder import BatchBuilder
from tests.protocols.kafka.wire import create_topic_request, produce_request
from tests.wire.kafka import SIZE, RequestEncoder, ResponseT

_SECONDS = 30


class Peer:
    """Any bytes, to either listener."""

    def __init__(self, address: tuple[str, int], host: str = "") -> None:
        """From the address `host` of this machine: 127.0.0.1 and its neighbours are all its own."""
        self.socket = socket.create_connection(address, timeout=_SECONDS, source_address=(host, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Whether the broker took all of it."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def receive(self, size: int) -> bytes:
        """That many bytes, or fewer at the end of the connection."""
        received = b""
        while len(received) < size:
            try:
                piece = self.socket.recv(size - len(received))
            except ConnectionResetError:
                break
            if not piece:
                break
            received += piece
        return received

    def is_closed(self, seconds: float = _SECONDS) -> bool:
        """Whether the broker ends the connection, whatever it says before."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass
        return True


class KafkaPeer(Peer):
    def __init__(self, address: tuple[str, int], host: str = "") -> None:
        super().__init__(address, host)
        self._requests = RequestEncoder("peer")

    def ask(self, request: Message, response: type[ResponseT]) -> ResponseT:
        chunks, pending = self._requests.encode(request)
        self.socket.sendall(b"".join(chunks))
        (size,) = SIZE.unpack(self.receive(SIZE.size))
        return pending.response(memoryview(self.receive(size)), response)

    def create_topic(self, name: str, **configs: str) -> bytes:
        """Its id. Settings are given with underscores."""
        [created] = self.ask(create_topic_request(name, 1, configs), CreateTopicsResponse).topics
        assert created.error_code == 0, created.error_message
        return created.topic_id

    def produce(self, topic_id: bytes, batch: bytes) -> int:
        """The error code."""
        answer = self.ask(produce_request(topic_id, batch), ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code


class GoodClient(KafkaPeer):
    """Produces one small record after the other, and notes how long each took."""

    def __init__(self, address: tuple[str, int], topic: str = "good") -> None:
        super().__init__(address)
        self._topic_id = self.create_topic(topic)
        builder = BatchBuilder()
        builder.add(b"key", bytes(100), timestamp=int(time.time() * 1000))
        self.batch = bytes(builder.build())

    def produce_one(self) -> float:
        """Seconds."""
        begun = time.perf_counter()
        assert self.produce(self._topic_id, self.batch) == 0
        return time.perf_counter() - begun

    def produce_for(self, seconds: float) -> list[float]:
        end = time.monotonic() + seconds
        times = []
        while time.monotonic() < end:
            times.append(self.produce_one())
        return times
