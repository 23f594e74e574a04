"""The same load for Redis, as lists and as streams, with as many commands under way as AMQP has messages.

A list has no acks: what RPOP returned is gone, and lost with the consumer. A stream has them, but keeps what
was acknowledged until it is trimmed, which is not measured here.
"""

import os
import re
import socket
from enum import StrEnum

from bench.queues.connection import TIMEOUT
from bench.queues.loads import ACK_EVERY, CHUNK, PREFETCH, WINDOW
from bench.queues.scanning import OutOfStep
from bench.queues.workers import Load, Tally, now

_KEY, _GROUP, _FIELD = b"bench", b"group", b"b"
_ROOM = 1 << 18


class Kind(StrEnum):
    LIST = "list"
    STREAM = "stream"


def publish(port: int, kind: Kind, size: int, count: int, done: Tally) -> Load:
    bodies = [os.urandom(size) for _ in range(CHUNK)]
    if kind is Kind.LIST:
        commands = [command(b"LPUSH", _KEY, body) for body in bodies]
    else:
        commands = [command(b"XADD", _KEY, b"*", _FIELD, body) for body in bodies]
    # A length is one line; an id is two, its own length and itself.
    lines_each = 1 if kind is Kind.LIST else 2
    chunk, each = memoryview(b"".join(commands)), len(commands[0])
    with _connected(port) as connection:
        sent = lines = 0
        begun = now()
        while lines < count * lines_each:
            batch = min(CHUNK, count - sent)
            if batch and sent + batch - lines // lines_each <= WINDOW:
                connection.sendall(chunk[: batch * each])
                sent += batch
                continue
            received = _received(connection)
            if received.startswith(b"-") or b"\n-" in received:
                raise OutOfStep(received[:200].decode(errors="replace"))
            lines += received.count(b"\n")
            done.value = lines // lines_each
        return Load(count, now() - begun)


def consume(port: int, kind: Kind, size: int, count: int, done: Tally) -> Load:
    with _connected(port) as connection:
        if kind is Kind.LIST:
            return _pop(connection, size, count, done)
        return _read_group(connection, size, count, done)


def prepare(port: int, kind: Kind) -> None:
    if kind is Kind.STREAM:
        with _connected(port) as connection:
            connection.sendall(command(b"XGROUP", b"CREATE", _KEY, _GROUP, b"0", b"MKSTREAM"))
            if (answer := _received(connection)) != b"+OK\r\n":
                raise OutOfStep(answer.decode(errors="replace"))


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _pop(connection: socket.socket, size: int, count: int, done: Tally) -> Load:
    one = command(b"RPOP", _KEY)
    answer = len(b"$%d\r\n" % size) + size + 2
    asked = received = 0
    begun = now()
    while received < count * answer:
        under_way = asked - received // answer
        if asked < count and under_way <= PREFETCH - CHUNK:
            batch = min(CHUNK, count - asked)
            connection.sendall(one * batch)
            asked += batch
            continue
        data = _received(connection)
        if received == 0 and not data.startswith(b"$%d\r\n" % size):
            raise OutOfStep(data[:60].decode(errors="replace"))
        received += len(data)
        done.value = received // answer
    if received != count * answer:
        raise OutOfStep(f"{received} bytes where {count * answer} were due")
    return Load(count, now() - begun)


def _read_group(connection: socket.socket, size: int, count: int, done: Tally) -> Load:
    entries = Entries(size)
    ask = command(b"XREADGROUP", b"GROUP", _GROUP, b"me", b"COUNT", b"%d" % ACK_EVERY, b"STREAMS", _KEY, b">")
    begun = now()
    asked = min(PREFETCH, count)
    connection.sendall(ask * -(-asked // ACK_EVERY))
    acked = 0
    while acked < count:
        entries.feed(_received(connection))
        while len(entries.ids) >= ACK_EVERY or (entries.ids and acked + len(entries.ids) == count):
            ids, entries.ids = entries.ids[:ACK_EVERY], entries.ids[ACK_EVERY:]
            answer = command(b"XACK", _KEY, _GROUP, *ids)
            if asked < count:
                answer += ask
                asked += ACK_EVERY
            connection.sendall(answer)
            acked += len(ids)
            done.value = acked
    connection.sendall(command(b"PING"))
    tail = b""
    while not tail.endswith(b"+PONG\r\n"):
        tail = (tail + _received(connection))[-64:]
    return Load(count, now() - begun)


class Entries:
    """Ids of stream entries in the answers to XREADGROUP; answers to XACK between them are passed over."""

    def __init__(self, size: int) -> None:
        pattern = rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$%d\r\n%b\r\n\$%d\r\n" % (len(_FIELD), _FIELD, size)
        self._entry = re.compile(pattern + rb"(?s:.{%d})\r\n" % size)
        self._rest = b""
        self.ids: list[bytes] = []

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        end = 0
        for match in self._entry.finditer(data):
            self.ids.append(match[1])
            end = match.end()
        self._rest = data[end:]


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _received(connection: socket.socket) -> bytes:
    received = connection.recv(_ROOM)
    if not received:
        raise ConnectionError("Redis has closed the connection")
    return received
