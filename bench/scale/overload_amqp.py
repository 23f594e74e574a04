"""Overload over AMQP: publishers that do not wait, consumers that do not read, and a pair that behaves."""

import select
import socket
import struct

from bench.queues import frames, pacing
from bench.queues.connection import Connection
from bench.queues.loads import ACK_EVERY, PREFETCH, acks
from bench.queues.pacing import Latencies, Pace
from bench.queues.scanning import Confirms, Deliveries
from bench.queues.workers import Tally, Worker, wait_for_all
from bench.scale.brokers import Broker
from bench.scale.flooding import Demand, Flooded, flood

BODY_BYTES = 1024
CHUNK = 20
"""Messages that are sent with one call."""
POLITE_RATE = 100.0
_NUMBER = struct.Struct(">Q")
_SMALL_BUFFER = 4096
_ERRORS = select.POLLERR | select.POLLHUP


class AmqpScene:
    """See `overload.Scene`."""

    section = "Overload over AMQP"
    unit = "messages"
    piece_bytes = BODY_BYTES

    def __init__(self, publishers: int, stalled: int, forgetful: int, max_unacked: int) -> None:
        self._publishers = publishers
        self._stalled = stalled
        self._forgetful = forgetful
        self._max_unacked = max_unacked

    def leases(self, budget: int) -> int:
        return min(self._stalled * self._max_unacked, budget // BODY_BYTES) + (
            self._forgetful * self._max_unacked
        )

    def prepare(self, broker: Broker) -> None:
        with Connection(broker.amqp) as connection:
            for number in range(self._publishers):
                connection.declare_queue(f"capacity-{number}")
                connection.declare_queue(f"overload-{number}")

    def behave_well(self, broker: Broker, when: str, seconds: float) -> dict[str, Latencies]:
        queue = f"polite-{when}"
        with Connection(broker.amqp) as connection:
            connection.declare_queue(queue)
        warm_up = min(seconds / 10, 1.0)
        pace = Pace(
            queue=queue, size=100, rate=POLITE_RATE, warm_up=warm_up, seconds=max(seconds - warm_up, 0.1)
        )
        delays = pacing.run(broker.amqp, pace, Tally(), lambda: None)
        return {"publish, confirmed": delays.confirmed, "publish, delivered": delays.delivered}

    def fill(self, broker: Broker, demand: Demand, is_over: Tally) -> list[Worker[Flooded]]:
        return self._flood(broker, "capacity", demand, is_over)

    def flood(self, broker: Broker, demand: Demand, is_over: Tally) -> list[Worker[Flooded]]:
        return self._flood(broker, "overload", demand, is_over)

    def _flood(self, broker: Broker, name: str, demand: Demand, is_over: Tally) -> list[Worker[Flooded]]:
        ready = [Tally() for _ in range(self._publishers)]
        publishers = [
            Worker(publish, broker.amqp, f"{name}-{number}", demand, is_ready, is_over)
            for number, is_ready in enumerate(ready)
        ]
        wait_for_all(publishers, ready)
        return publishers

    def offend(self, broker: Broker, is_over: Tally) -> list[Worker[int]]:
        """They consume what was published at capacity."""
        ready = [Tally(), Tally()]
        consumers = [
            Worker(stall, broker.amqp, "capacity-0", self._stalled, ready[0], is_over),
            Worker(forget_acks, broker.amqp, "capacity-1", self._forgetful, ready[1], is_over),
        ]
        wait_for_all(consumers, ready)
        return consumers

    def lost(self, broker: Broker, producer: int, acknowledged: int) -> int:
        return lost(broker.amqp, f"overload-{producer}", acknowledged)


def publish(port: int, queue: str, demand: Demand, is_ready: Tally, is_over: Tally) -> Flooded:
    """Messages that say their number. Runs in a process of its own."""
    connection = Connection(port)
    try:
        connection.confirm()
        message = frames.publish("", queue, bytes(BODY_BYTES), connection.frame_max)
        body_at = len(message) - 1 - BODY_BYTES
        confirms = Confirms()
        sent = 0

        def piece() -> memoryview:
            nonlocal sent
            chunk = bytearray(message * CHUNK)
            for each in range(CHUNK):
                _NUMBER.pack_into(chunk, each * len(message) + body_at, sent + each)
            sent += CHUNK
            return memoryview(chunk)

        def hear(received: bytes) -> int:
            before = confirms.count
            confirms.feed(received)
            return confirms.count - before

        is_ready.value = 1
        return flood(connection.socket, demand, piece, hear, lambda: sent - confirms.count, is_over)
    finally:
        connection.socket.close()


def stall(port: int, queue: str, consumers: int, is_ready: Tally, is_over: Tally) -> int:
    """Consumers that take nothing. How many connections were lost; each was made anew."""
    poll = select.poll()
    open_ones: dict[int, socket.socket] = {}
    gone = 0

    def consume() -> None:
        connection = consuming(port, queue)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        open_ones[connection.fileno()] = connection
        poll.register(connection, 0)

    try:
        for _ in range(consumers):
            consume()
        is_ready.value = 1
        while not is_over.value:
            for handle, event in poll.poll(50):
                if event & _ERRORS:
                    poll.unregister(handle)
                    open_ones.pop(handle).close()
                    gone += 1
                    consume()
    except ConnectionError:
        pass  # the broker is killed in the middle of it
    for connection in open_ones.values():
        connection.close()
    return gone


def forget_acks(port: int, queue: str, consumers: int, is_ready: Tally, is_over: Tally) -> int:
    """Consumers that take everything and acknowledge nothing. How many connections were lost."""
    open_ones = [consuming(port, queue) for _ in range(consumers)]
    is_ready.value = 1
    gone = 0
    while open_ones and not is_over.value:
        for connection in select.select(open_ones, [], [], 0.05)[0]:
            try:
                received = connection.recv(1 << 20)
            except ConnectionError:
                received = b""
            if not received:
                open_ones.remove(connection)
                gone += 1
    for connection in open_ones:
        connection.close()
    return gone


def consuming(port: int, queue: str) -> socket.socket:
    """Without a limit of what it may hold."""
    connection = Connection(port)
    connection.consume(queue, "c0000")
    return connection.socket


def lost(port: int, queue: str, acknowledged: int) -> int:
    """How many messages are not in the queue although they were confirmed."""
    missing = set(range(acknowledged))
    with Connection(port) as connection:
        count = connection.waiting(queue)
        connection.prefetch(PREFETCH)
        connection.consume(queue, "c0000")
        deliveries = Deliveries(connection.take_rest())
        acked = 0
        while acked < count:
            deliveries.receive(connection.socket)
            whole = deliveries.take()
            missing.difference_update(deliveries.bodies_start_with(whole))
            deliveries.drop(whole)
            due = count if deliveries.count == count else deliveries.count - deliveries.count % ACK_EVERY
            if due > acked:
                connection.socket.sendall(acks(acked, due))
                acked = due
    return len(missing)
