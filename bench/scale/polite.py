"""A Kafka client that behaves well: it asks at a steady pace, little each time, and takes its answers.

It does not wait for one answer before it asks again, as busy programs do not: where the broker is late once,
that counts for all requests that were due meanwhile.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Callable

from bench import wire
from bench.queues.pacing import Latencies
from bench.scale.asking import TIMEOUT, NotDone, connected, fetch_request, make_topics
from posthouse.protocols.kafka.codec.generated.fetch import decode_fetch_response
from posthouse.protocols.kafka.codec.generated.produce import decode_produce_response
from posthouse.protocols.kafka.codec.headers import decode_response_header
from posthouse.protocols.kafka.codec.registry import APIS

TICK = 10_000_000
"""Nanoseconds between two requests."""
PRODUCE, FETCH = 0, 1
_RECORD_BYTES = 100
_WAIT_MS = 60_000


class Answers:
    """Cuts what a broker sends into the answers to one kind of request."""

    def __init__(self, api: int, check: Callable[[memoryview, int], None]) -> None:
        self._api = api
        self._check = check
        self._rest = b""

    def feed(self, data: bytes) -> int:
        """How many came to their end. Raises where one of them is a refusal."""
        view = memoryview(self._rest + data)
        position = found = 0
        while len(view) - position >= 4:
            end = position + 4 + int.from_bytes(view[position : position + 4], "big")
            if end > len(view):
                break
            frame = view[position + 4 : end]
            _, start = decode_response_header(self._api, APIS[self._api].max_version, frame)
            self._check(frame, start)
            position = end
            found += 1
        self._rest = bytes(view[position:])
        return found


def check_produced(frame: memoryview, start: int) -> None:
    code = decode_produce_response(frame, start).responses[0].partition_responses[0].error_code
    if code:
        raise NotDone(f"a batch was refused with code {code}")


def check_fetched(frame: memoryview, start: int) -> None:
    [found] = decode_fetch_response(frame, start).responses[0].partitions
    if found.error_code or not found.records:
        raise NotDone(f"a record cannot be read, code {found.error_code}")


class _Asking:
    """One connection, and what was asked for on it."""

    def __init__(self, port: int, api: int, check: Callable[[memoryview, int], None]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self._answers = Answers(api, check)
        self._due: deque[int] = deque()
        self.took: list[int] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self._due)

    def ask(self, request: bytes, due: int) -> None:
        self.socket.sendall(request)
        self._due.append(due)

    def hear(self) -> None:
        received = self.socket.recv(1 << 16)
        if not received:
            raise ConnectionError("the broker has closed the connection")
        for _ in range(self._answers.feed(received)):
            self.took.append(time.monotonic_ns() - self._due.popleft())


def behave_well(port: int, name: str, seconds: float) -> dict[str, Latencies]:
    """Produce a record and read it, in turn. A request counts from the moment it was due."""
    with connected(port) as connection:
        [topic] = make_topics(connection, [name])
    record = wire.produce_frame(topic, 0, wire.batch(_RECORD_BYTES, 1))
    producing = _Asking(port, PRODUCE, check_produced)
    fetching = _Asking(port, FETCH, check_fetched)
    both = (producing, fetching)
    begun = time.monotonic_ns()
    for number in range(max(int(seconds * 1e9 / TICK), 2)):
        due = begun + number * TICK
        _hear_until(due, both)
        if number % 2 == 0:
            producing.ask(record, due)
        else:
            wanted = fetch_request(topic, number // 2, wait_ms=_WAIT_MS)
            fetching.ask(wire.frame(wanted), due)
    while any(each.is_waiting for each in both):
        _hear_until(time.monotonic_ns() + TICK, both)
    for each in both:
        each.socket.close()
    return {"produce": Latencies.of(producing.took), "fetch": Latencies.of(fetching.took)}


def _hear_until(at: int, both: tuple[_Asking, _Asking]) -> None:
    """What comes before that time, at least what is there already."""
    by_socket = {each.socket: each for each in both}
    while True:
        wait = max(at - time.monotonic_ns(), 0)
        for readable in select.select(list(by_socket), [], [], wait / 1e9)[0]:
            by_socket[readable].hear()
        if wait == 0:
            return
