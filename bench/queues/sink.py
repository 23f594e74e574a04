"""A broker that does nothing: it confirms what it has counted, and delivers what it has ready.

What the load generator reaches against it is the most that it could measure of any broker. Confirms go out
one by one, which is the most work for the generator.
"""

import select
import socket
import struct
from dataclasses import dataclass

from bench.queues import frames
from bench.queues.connection import TIMEOUT
from bench.queues.loads import CHUNK
from bench.queues.scanning import OutOfStep
from bench.queues.workers import Tally

_FRAME_MAX = 131_072
_NUMBER = struct.Struct(">Q")
_ANSWERS = {
    frames.START_OK: (0, frames.TUNE, struct.pack(">HIH", 2047, _FRAME_MAX, 0)),
    frames.OPEN: (0, frames.OPEN_OK, frames.short("")),
    frames.CHANNEL_OPEN: (frames.CHANNEL, frames.CHANNEL_OPEN_OK, frames.long(b"")),
    frames.QOS: (frames.CHANNEL, frames.QOS_OK, b""),
    frames.QUEUE_DECLARE: (frames.CHANNEL, frames.QUEUE_DECLARE_OK, frames.short("sink") + bytes(8)),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What the one client will do: so many messages of this size."""

    size: int
    count: int


def serve(port: Tally, expected: Expected) -> None:
    """One connection, on a port that is told as soon as there is one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        port.value = listener.getsockname()[1]
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(TIMEOUT)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _converse(connection, expected)


def _converse(connection: socket.socket, expected: Expected) -> None:
    stream = _Stream(connection)
    if stream.read(len(frames.PREAMBLE)) != frames.PREAMBLE:
        raise OutOfStep("not AMQP")
    version = b"\x00\x09" + frames.NO_TABLE + frames.long(b"PLAIN") + frames.long(b"en_US")
    connection.sendall(frames.method(0, frames.START, version))
    while (number := stream.method()) != frames.CLOSE:
        if number == frames.CONFIRM_SELECT:
            connection.sendall(frames.method(frames.CHANNEL, frames.CONFIRM_SELECT_OK))
            _confirm(connection, expected)
        elif number == frames.CONSUME:
            stream.read(_deliver(connection, expected))
        elif answer := _ANSWERS.get(number):
            connection.sendall(frames.method(*answer))


def _confirm(connection: socket.socket, expected: Expected) -> None:
    size = len(frames.publish("", "bench", bytes(expected.size), _FRAME_MAX))
    room = bytearray(1 << 20)
    received = confirmed = 0
    while confirmed < expected.count:
        received += connection.recv_into(room)
        counted = received // size
        confirms = [frames.ack(tag, multiple=False) for tag in range(confirmed + 1, counted + 1)]
        connection.sendall(b"".join(confirms))
        confirmed = counted


def _deliver(connection: socket.socket, expected: Expected) -> int:
    """Gives the number of bytes that are still to come of an ack that was read in part."""
    one = frames.deliver("c0000", 0, "", "bench", bytes(expected.size), _FRAME_MAX)
    number_at = frames.HEAD.size + 4 + len(frames.short("c0000"))
    chunk = bytearray(one * CHUNK)
    sent = acks = 0
    while sent < expected.count:
        # Before the last messages are out, the client sends nothing but acks.
        if select.select([connection], [], [], 0)[0]:
            acks += len(connection.recv(65536))
        batch = min(CHUNK, expected.count - sent)
        for each in range(batch):
            _NUMBER.pack_into(chunk, each * len(one) + number_at, sent + each + 1)
        connection.sendall(memoryview(chunk)[: batch * len(one)])
        sent += batch
    return -acks % frames.SETTLEMENT.size


class _Stream:
    """Frames as they come, with nothing left over behind the one that was read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            received = self._connection.recv(count - len(data))
            if not received:
                raise ConnectionError("the client has gone")
            data += received
        return data

    def method(self) -> frames.Method:
        _, _, length = frames.HEAD.unpack(self.read(frames.HEAD.size))
        payload = self.read(length + 1)
        return int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
