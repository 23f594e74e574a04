"""A queue filled and emptied over AMQP as fast as the broker goes.

The sender has its messages encoded beforehand and sends a hundred with one call; the receiver counts bytes.
"""

import os
from collections.abc import Sequence

from bench.queues import frames
from bench.queues.connection import Connection
from bench.queues.scanning import Confirms, Deliveries, OutOfStep
from bench.queues.workers import Load, Tally, now

WINDOW = 2000
"""Messages that may wait for their confirms."""
CHUNK = 100
"""Messages sent with one call."""
PREFETCH = 1000
ACK_EVERY = 100
"""One ack, for all up to there, after so many messages."""


class Publisher:
    """Messages of one size to one exchange, confirmed, never with more than a window unconfirmed."""

    def __init__(self, connection: Connection, exchange: str, key: str, size: int) -> None:
        self._socket = connection.socket
        self._confirms = Confirms()
        bodies = (os.urandom(size) for _ in range(CHUNK))
        messages = [frames.publish(exchange, key, body, connection.frame_max) for body in bodies]
        self._chunk = memoryview(b"".join(messages))
        self._message = len(messages[0])
        self.sent = 0
        connection.confirm()

    @property
    def confirmed(self) -> int:
        return self._confirms.count

    def send(self, count: int = CHUNK) -> None:
        """Some messages, at most a chunk of them, as soon as the window allows."""
        while self.sent + count - self._confirms.count > WINDOW:
            self.hear()
        self._socket.sendall(self._chunk[: count * self._message])
        self.sent += count

    def hear(self) -> None:
        """Wait for confirms."""
        received = self._socket.recv(65536)
        if not received:
            raise ConnectionError("the broker has closed the connection")
        self._confirms.feed(received)


def publish(port: int, exchange: str, key: str, size: int, count: int, done: Tally) -> Load:
    with Connection(port) as connection:
        publisher = Publisher(connection, exchange, key, size)
        begun = now()
        while publisher.sent < count:
            publisher.send(min(CHUNK, count - publisher.sent))
            done.value = publisher.confirmed
        while publisher.confirmed < count:
            publisher.hear()
            done.value = publisher.confirmed
        return Load(count, now() - begun)


def consume(port: int, queues: Sequence[str], count: int, done: Tally) -> Load:
    """All messages of these queues, over one channel, until the broker has taken note of the last ack."""
    with Connection(port) as connection:
        connection.prefetch(PREFETCH)
        begun = now()
        for number, queue in enumerate(queues):
            connection.consume(queue, f"c{number:04}")
        deliveries = Deliveries(connection.take_rest())
        acked = 0
        while acked < count:
            deliveries.receive(connection.socket)
            deliveries.drop(deliveries.take())
            if deliveries.count > count:
                raise OutOfStep(f"{deliveries.count} deliveries of {count} messages")
            due = count if deliveries.count == count else deliveries.count - deliveries.count % ACK_EVERY
            if due > acked:
                connection.socket.sendall(acks(acked, due))
                acked = done.value = due
        for queue in queues:
            if left := connection.waiting(queue):
                raise OutOfStep(f"{left} messages are left in {queue}")
        return Load(count, now() - begun)


def acks(acked: int, due: int) -> bytes:
    """One for every `ACK_EVERY` messages, as a client sends them that takes messages one by one."""
    tags = [*range(acked + ACK_EVERY, due, ACK_EVERY), due]
    return b"".join(frames.ack(tag, multiple=True) for tag in tags)
