"""One AMQP connection with one channel over a blocking socket: what has to be said before the load."""

import socket
import struct
from types import TracebackType

from bench.queues import frames
from bench.queues.scanning import described

TIMEOUT = 60.0
"""Seconds without a byte after which a broker counts as stuck."""
_PASSIVE, _DURABLE = 1, 2
_NO_WAIT = 8


class Refused(Exception):
    """The broker answered something else than was asked for."""


class Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.frame_max = 0
        try:
            self._greet()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            reason = struct.pack(">H", 200) + frames.short("done") + bytes(4)
            self.socket.sendall(frames.method(0, frames.CLOSE, reason))
        self.socket.close()

    def declare_queue(self, name: str) -> None:
        self._declare(name, _DURABLE)

    def waiting(self, name: str) -> int:
        """How many messages are ready in a queue. Whatever was sent before on this channel is done then."""
        return self._declare(name, _PASSIVE)

    def delete_queue(self, name: str) -> None:
        arguments = b"\0\0" + frames.short(name) + b"\0"
        self._call(frames.QUEUE_DELETE, arguments, frames.QUEUE_DELETE_OK)

    def publish(self, queue: str, body: bytes) -> None:
        """One message, which is confirmed when this returns: call `confirm` before."""
        self.socket.sendall(frames.publish("", queue, body, self.frame_max))
        self._receive(frames.ACK)

    def get(self, queue: str) -> bytes:
        """The body of the next message, which needs no acknowledgement."""
        self._call(frames.GET, b"\0\0" + frames.short(queue) + b"\1", frames.GET_OK)
        _, head = self.frame()
        size = int.from_bytes(head[4:12], "big")
        return self.frame()[1] if size else b""

    def purge(self, name: str) -> None:
        arguments = b"\0\0" + frames.short(name) + b"\0"
        self._call(frames.QUEUE_PURGE, arguments, frames.QUEUE_PURGE_OK)

    def declare_fanout(self, name: str) -> None:
        names = frames.short(name) + frames.short("fanout")
        arguments = b"\0\0" + names + bytes((_DURABLE,)) + frames.NO_TABLE
        self._call(frames.EXCHANGE_DECLARE, arguments, frames.EXCHANGE_DECLARE_OK)

    def bind(self, queue: str, exchange: str) -> None:
        names = frames.short(queue) + frames.short(exchange) + frames.short("")
        self._call(frames.QUEUE_BIND, b"\0\0" + names + b"\0" + frames.NO_TABLE, frames.QUEUE_BIND_OK)

    def confirm(self) -> None:
        self._call(frames.CONFIRM_SELECT, b"\0", frames.CONFIRM_SELECT_OK)

    def prefetch(self, count: int) -> None:
        self._call(frames.QOS, struct.pack(">IHB", 0, count, 0), frames.QOS_OK)

    def consume(self, queue: str, tag: str) -> None:
        """Without an answer: from now on the broker sends nothing but deliveries."""
        names = frames.short(queue) + frames.short(tag)
        arguments = b"\0\0" + names + bytes((_NO_WAIT,)) + frames.NO_TABLE
        self.socket.sendall(frames.method(frames.CHANNEL, frames.CONSUME, arguments))

    def take_rest(self) -> bytes:
        """What came after the last answer."""
        rest, self._buffer = self._buffer, b""
        return rest

    def _greet(self) -> None:
        self.socket.sendall(frames.PREAMBLE)
        self._receive(frames.START)
        login = frames.short("PLAIN") + frames.long(b"\0guest\0guest") + frames.short("en_US")
        self.socket.sendall(frames.method(0, frames.START_OK, frames.NO_TABLE + login))
        channels, self.frame_max, _ = struct.unpack(">HIH", self._receive(frames.TUNE))
        # No heartbeats: they would come between frames that are counted by their length.
        tuned = struct.pack(">HIH", channels, self.frame_max, 0)
        self.socket.sendall(frames.method(0, frames.TUNE_OK, tuned))
        self.socket.sendall(frames.method(0, frames.OPEN, frames.short("/") + bytes(2)))
        self._receive(frames.OPEN_OK)
        self._call(frames.CHANNEL_OPEN, frames.short(""), frames.CHANNEL_OPEN_OK)

    def _declare(self, name: str, flags: int) -> int:
        arguments = b"\0\0" + frames.short(name) + bytes((flags,)) + frames.NO_TABLE
        answer = self._call(frames.QUEUE_DECLARE, arguments, frames.QUEUE_DECLARE_OK)
        return int.from_bytes(answer[1 + answer[0] :][:4], "big")

    def _call(self, number: frames.Method, arguments: bytes, answer: frames.Method) -> bytes:
        self.socket.sendall(frames.method(frames.CHANNEL, number, arguments))
        return self._receive(answer)

    def _receive(self, number: frames.Method) -> bytes:
        """The arguments of the next method, which has to be this one."""
        kind, payload = self.frame()
        if kind != frames.METHOD or struct.unpack_from(">HH", payload) != number:
            raise Refused(described(frames.frame(kind, 0, payload)))
        return payload[4:]

    def frame(self) -> tuple[int, bytes]:
        """The kind and the payload of the next one."""
        head = self._read(frames.HEAD.size)
        kind, _, length = frames.HEAD.unpack(head)
        return kind, self._read(length + 1)[:-1]

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            received = self.socket.recv(65536)
            if not received:
                raise ConnectionError("the broker has closed the connection")
            self._buffer += received
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data
