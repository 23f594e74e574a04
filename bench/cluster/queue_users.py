"""A client of a queue, which publishes to it and consumes from it, wherever its virtual host is served."""

import struct
from collections.abc import Sequence
from itertools import count

from bench.cluster.coordinators import NotNow
from bench.queues import frames
from bench.queues.connection import Connection, Refused
from bench.queues.scanning import described

_TIMEOUT = 5.0
_BODY = struct.Struct(">Q")


class QueueUser:
    def __init__(self, ports: Sequence[int], queue: str) -> None:
        """It begins at the first of these brokers, and goes to the next one when its connection is lost."""
        self._ports = list(ports)
        self._queue = queue
        self._connection: Connection | None = None
        self._bodies = map(_BODY.pack, count())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def exchange(self, number: int) -> None:
        """Publish a message; it is confirmed, and was delivered here, when this returns. Raises NotNow,
        OSError, and then connects anew before the next one."""
        try:
            self._exchange()
        except Refused as error:
            self.close()
            raise NotNow(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _exchange(self) -> None:
        connection = self._connection = self._connection or self._connected()
        body = next(self._bodies)
        connection.socket.sendall(frames.publish("", self._queue, body, connection.frame_max))
        is_confirmed = is_delivered = False
        while not (is_confirmed and is_delivered):
            kind, payload = connection.frame()
            method = struct.unpack_from(">HH", payload) if kind == frames.METHOD else None
            if method == frames.ACK:
                is_confirmed = True
            elif method == frames.DELIVER:
                connection.socket.sendall(frames.ack(_tag(payload), multiple=False))
            elif kind == frames.METHOD:
                raise Refused(described(frames.frame(kind, 0, payload)))
            elif kind == frames.BODY:
                is_delivered |= payload == body  # others were left when a connection was lost

    def _connected(self) -> Connection:
        self._ports.append(self._ports.pop(0))
        connection = Connection(self._ports[-1])
        try:
            connection.socket.settimeout(_TIMEOUT)
            connection.declare_queue(self._queue)
            connection.confirm()
            connection.consume(self._queue, "steady")
        except BaseException:
            connection.socket.close()
            raise
        return connection


def _tag(delivery: bytes) -> int:
    """Of the arguments of basic.deliver: a consumer's name, and then the number."""
    start = 4 + 1 + delivery[4]
    return int.from_bytes(delivery[start : start + 8], "big")
