"""A load on all brokers of a cluster, from a process of its own: clients go to the leaders of partitions."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from bench.cluster import loads
from bench.cluster.clusters import Spread
from bench.cluster.fetching import Consumer, read_all
from bench.cluster.pushing import Producer, push
from bench.queues.workers import Tally, Worker

CONNECTIONS = 6
"""In all, however many brokers there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What the clients did, and what they needed for it."""

    bytes: int
    seconds: float
    cpu_seconds: float
    records: int = 0
    """Acknowledged, of producers."""

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6


@contextmanager
def producing(spread: Spread, batch_bytes: int, seconds: float, warm_up: float) -> Iterator["Clients"]:
    with _clients(partial(_produce, spread, batch_bytes, seconds, warm_up)) as made:
        yield made


@contextmanager
def consuming(spread: Spread, seconds: float) -> Iterator["Clients"]:
    with _clients(partial(_consume, spread, seconds)) as made:
        yield made


class Clients:
    """Ready to begin: connected, with their requests built."""

    def __init__(self, worker: Worker[Worked], begins: Tally) -> None:
        self._worker = worker
        self._begins = begins

    def run(self) -> Worked:
        self._begins.value = 1
        return self._worker.result()


@contextmanager
def _clients(work: Callable[[Tally, Tally], Worked]) -> Iterator[Clients]:
    is_ready, begins = Tally(), Tally()
    worker = Worker(work, is_ready, begins)
    try:
        worker.wait_for(is_ready)
        yield Clients(worker, begins)
    finally:
        worker.end()


def _produce(
    spread: Spread, batch_bytes: int, seconds: float, warm_up: float, is_ready: Tally, begins: Tally
) -> Worked:
    producers, records = [], 0
    for port, partitions in spread.led.items():
        load = loads.requests(spread.topic, partitions, batch_bytes)
        records = load.records
        for number in range(_connections(spread)):
            frames = loads.rotated(load.frames, number)
            producers.append(Producer(port=port, frames=frames, window=load.window))
    warmed = push(producers, warm_up)
    _wait(is_ready, begins)
    cpu = time.process_time()
    done = push(producers, seconds)
    return Worked(
        bytes=done.bytes,
        seconds=done.seconds,
        cpu_seconds=time.process_time() - cpu,
        records=(len(warmed.latencies) + len(done.latencies)) * records,
    )


def _consume(spread: Spread, seconds: float, is_ready: Tally, begins: Tally) -> Worked:
    consumers = [
        Consumer(port=port, topic=spread.topic, partitions=part)
        for port, partitions in spread.led.items()
        for part in _parts(partitions, _connections(spread))
    ]
    _wait(is_ready, begins)
    cpu = time.process_time()
    done = read_all(consumers, seconds)
    return Worked(bytes=done.bytes, seconds=done.seconds, cpu_seconds=time.process_time() - cpu)


def _connections(spread: Spread) -> int:
    """To each broker."""
    return max(CONNECTIONS // len(spread.led), 1)


def _parts(partitions: Sequence[int], count: int) -> list[Sequence[int]]:
    return [part for number in range(count) if (part := partitions[number::count])]


def _wait(is_ready: Tally, begins: Tally) -> None:
    is_ready.value = 1
    while not begins.value:
        time.sleep(0.001)
