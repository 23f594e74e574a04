"""How long messages take from a publisher to a consumer on another connection, at a pace that is given.

The publisher sends what is due at every tick of a millisecond. A body starts with the time at which it should
have been sent, not at which it was: where a broker makes the publisher wait, the wait counts.
"""

import math
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.queues import frames
from bench.queues.connection import Connection
from bench.queues.loads import ACK_EVERY, PREFETCH, acks
from bench.queues.scanning import Confirms, Deliveries
from bench.queues.workers import Tally, Worker

TICK = 1_000_000
"""Nanoseconds."""
_NUMBER = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What is to be sent."""

    queue: str
    size: int
    rate: float
    """Messages per second."""
    warm_up: float
    seconds: float

    @property
    def count(self) -> int:
        return max(int(self.rate * (self.warm_up + self.seconds)), 1)

    @property
    def ignored(self) -> int:
        """The first of them do not count."""
        return min(int(self.rate * self.warm_up), self.count - 1)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds."""

    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> "Latencies":
        ordered = sorted(nanoseconds)
        return cls(percentile(ordered, 0.5) / 1e6, percentile(ordered, 0.99) / 1e6, ordered[-1] / 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """From when messages were due."""

    delivered: Latencies
    confirmed: Latencies


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest of them that at least this share does not exceed."""
    return ordered[max(math.ceil(len(ordered) * share), 1) - 1]


def run(port: int, pace: Pace, taken: Tally, watch: Callable[[], object]) -> Delays:
    is_ready = Tally()
    consumer = Worker(consume, port, pace, is_ready, taken)
    publisher = Worker(publish, port, pace, is_ready)
    try:
        delivered = consumer.result(watch)
        return Delays(delivered=delivered, confirmed=publisher.result())
    finally:
        consumer.end()
        publisher.end()


def publish(port: int, pace: Pace, is_ready: Tally) -> Latencies:
    """Until they were confirmed."""
    with Connection(port) as connection:
        connection.confirm()
        message = frames.publish("", pace.queue, bytes(pace.size), connection.frame_max)
        body_at = len(message) - 1 - pace.size
        per_tick = int(pace.rate * TICK / 1e9) + 1
        chunk = bytearray(message * per_tick)
        due_at: list[int] = []
        answers = _Answers(connection.socket, due_at)
        while not is_ready.value:
            time.sleep(0.01)
        begun = time.monotonic_ns()
        tick = 0
        while len(due_at) < pace.count:
            at = begun + tick * TICK
            answers.hear_until(at)
            tick += 1
            due = min(int(pace.rate * tick * TICK / 1e9), pace.count) - len(due_at)
            for each in range(due):
                _NUMBER.pack_into(chunk, each * len(message) + body_at, at)
            connection.socket.sendall(memoryview(chunk)[: due * len(message)])
            due_at += [at] * due
        while len(answers.took) < pace.count:
            answers.hear()
        return Latencies.of(answers.took[pace.ignored :])


class _Answers:
    """Confirms, and how long they took. Brokers confirm in order, or nearly so: the n-th is for the n-th."""

    def __init__(self, connection: socket.socket, due_at: Sequence[int]) -> None:
        self._connection = connection
        self._due_at = due_at
        self._confirms = Confirms()
        self.took: list[int] = []

    def hear_until(self, at: int) -> None:
        """What comes before that time, at least what is there already."""
        while True:
            wait = max(at - time.monotonic_ns(), 0)
            if select.select([self._connection], [], [], wait / 1e9)[0]:
                self.hear()
            if wait == 0:
                return

    def hear(self) -> None:
        received = self._connection.recv(65536)
        if not received:
            raise ConnectionError("the broker has closed the connection")
        self._confirms.feed(received)
        now = time.monotonic_ns()
        self.took += [now - due for due in self._due_at[len(self.took) : self._confirms.count]]


def consume(port: int, pace: Pace, is_ready: Tally, taken: Tally) -> Latencies:
    """Until they were delivered."""
    with Connection(port) as connection:
        connection.prefetch(PREFETCH)
        connection.consume(pace.queue, "c0000")
        is_ready.value = 1
        deliveries = Deliveries(connection.take_rest())
        took: list[int] = []
        acked = 0
        while acked < pace.count:
            deliveries.receive(connection.socket)
            arrived = time.monotonic_ns()
            whole = deliveries.take()
            took += [arrived - sent for sent in deliveries.bodies_start_with(whole)]
            deliveries.drop(whole)
            taken.value = deliveries.count
            is_last = deliveries.count == pace.count
            due = pace.count if is_last else deliveries.count - deliveries.count % ACK_EVERY
            if due > acked:
                connection.socket.sendall(acks(acked, due))
                acked = due
        connection.waiting(pace.queue)
        return Latencies.of(took[pace.ignored :])
