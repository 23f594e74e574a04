"""Overload over Kafka: producers, consumers that take nothing, and a client that behaves well."""

import select
import socket
import time
from itertools import count

from bench import wire
from bench.queues.pacing import Latencies
from bench.queues.workers import Tally, Worker, wait_for_all
from bench.scale.asking import NotDone, connected, fetch, fetch_request, make_topics
from bench.scale.brokers import Broker
from bench.scale.flooding import Demand, Flooded, flood
from bench.scale.polite import PRODUCE, Answers, behave_well, check_produced
from posthouse.records.batch import HEADER_SIZE, iter_headers
from posthouse.records.builder import BatchBuilder

RECORD_BYTES = 1024
BATCH_BYTES = 16 * 1024
DIFFERENT = 16
"""Batches that a producer sends in turn, so that one that is missing shows."""
ASKED_FOR = 50_000_000
"""Bytes that a stalled consumer asks for each time, as clients do by default."""
_FETCHES = 20
_SMALL_BUFFER = 4096
_ERRORS = select.POLLERR | select.POLLHUP


class KafkaScene:
    """See `overload.Scene`."""

    section = "Overload over Kafka"
    unit = "batches"
    piece_bytes = BATCH_BYTES

    def __init__(self, producers: int, consumers: int) -> None:
        self._producers = producers
        self._consumers = consumers
        self._at_capacity: list[bytes] = []
        self._at_overload: list[bytes] = []

    def leases(self, budget: int) -> int:
        return 0

    def prepare(self, broker: Broker) -> None:
        with connected(broker.kafka) as connection:
            names = range(self._producers)
            self._at_capacity = make_topics(connection, [f"capacity-{name}" for name in names])
            self._at_overload = make_topics(connection, [f"overload-{name}" for name in names])

    def behave_well(self, broker: Broker, when: str, seconds: float) -> dict[str, Latencies]:
        return Worker(behave_well, broker.kafka, f"polite-{when}", seconds).result()

    def fill(self, broker: Broker, demand: Demand, is_over: Tally) -> list[Worker[Flooded]]:
        return self._flood(broker, self._at_capacity, demand, is_over)

    def flood(self, broker: Broker, demand: Demand, is_over: Tally) -> list[Worker[Flooded]]:
        return self._flood(broker, self._at_overload, demand, is_over)

    def _flood(
        self, broker: Broker, topics: list[bytes], demand: Demand, is_over: Tally
    ) -> list[Worker[Flooded]]:
        ready = [Tally() for _ in topics]
        producers = [
            Worker(produce, broker.kafka, topic, number, demand, ready[number], is_over)
            for number, topic in enumerate(topics)
        ]
        wait_for_all(producers, ready)
        return producers

    def offend(self, broker: Broker, is_over: Tally) -> list[Worker[int]]:
        """They read what was written at capacity."""
        is_ready = Tally()
        consumers = [Worker(stall, broker.kafka, self._at_capacity[0], self._consumers, is_ready, is_over)]
        wait_for_all(consumers, [is_ready])
        return consumers

    def lost(self, broker: Broker, producer: int, acknowledged: int) -> int:
        return lost(broker.kafka, self._at_overload[producer], producer, acknowledged)


def batches(producer: int) -> list[bytearray]:
    """The same records for the same number: whoever reads them back makes them again."""
    return [_batch(producer * DIFFERENT + number) for number in range(DIFFERENT)]


def _batch(number: int) -> bytearray:
    builder = BatchBuilder()
    now = time.time_ns() // 1_000_000  # or it would be too old to be kept
    for record in range(BATCH_BYTES // RECORD_BYTES - 1):
        builder.add(None, f"{number}/{record}/".encode().ljust(RECORD_BYTES, b"."), (), now)
    return builder.build()


def produce(
    port: int, topic: bytes, producer: int, demand: Demand, is_ready: Tally, is_over: Tally
) -> Flooded:
    """Runs in a process of its own."""
    frames = [memoryview(wire.produce_frame(topic, 0, batch)) for batch in batches(producer)]
    numbers = count()
    answers = Answers(PRODUCE, check_produced)
    sent = answered = 0

    def piece() -> memoryview:
        nonlocal sent
        sent += 1
        return frames[next(numbers) % DIFFERENT]

    def hear(received: bytes) -> int:
        nonlocal answered
        found = answers.feed(received)
        answered += found
        return found

    with socket.create_connection(("127.0.0.1", port)) as connection:
        is_ready.value = 1
        return flood(connection, demand, piece, hear, lambda: sent - answered, is_over)


def stall(port: int, topic: bytes, consumers: int, is_ready: Tally, is_over: Tally) -> int:
    """Consumers that ask for much and take nothing. How many connections were lost; each was made anew."""
    request = wire.frame(fetch_request(topic, 0, wait_ms=500, max_bytes=ASKED_FOR))
    poll = select.poll()
    open_ones: dict[int, socket.socket] = {}
    lost = 0

    def connect() -> None:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        connection.connect(("127.0.0.1", port))
        connection.sendall(request * _FETCHES)
        open_ones[connection.fileno()] = connection
        poll.register(connection, 0)

    try:
        for _ in range(consumers):
            connect()
        is_ready.value = 1
        while not is_over.value:
            for handle, event in poll.poll(50):
                if event & _ERRORS:
                    poll.unregister(handle)
                    open_ones.pop(handle).close()
                    lost += 1
                    connect()
    except ConnectionError:
        pass  # the broker is killed in the middle of it
    for connection in open_ones.values():
        connection.close()
    return lost


def lost(port: int, topic: bytes, producer: int, acknowledged: int) -> int:
    """How many of a producer's batches are not there although they were acknowledged."""
    expected = [bytes(batch[HEADER_SIZE:]) for batch in batches(producer)]
    found = offset = 0
    with connected(port) as connection:
        while True:
            answer = fetch(connection, topic, offset, wait_ms=0)
            records = memoryview(answer.records or b"")
            for position, header in iter_headers(records):
                if records[position + HEADER_SIZE : position + header.length] != expected[found % DIFFERENT]:
                    raise NotDone(f"batch {found} of producer {producer} is another one")
                found += 1
                offset = header.next_offset
            if offset >= answer.high_watermark:
                return max(acknowledged - found, 0)
