"""A publisher and a consumer at one queue at the same time, neither of them running away from the other.

The queue keeps its length: the publisher stays less than `SLACK` messages ahead of the acks, and the consumer
less than `SLACK` acks ahead of the confirms. So an empty queue stays almost empty, a long one stays long, and
the work is the same at both.
"""

import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.queues.connection import TIMEOUT, Connection
from bench.queues.loads import ACK_EVERY, CHUNK, PREFETCH, WINDOW, Publisher, acks
from bench.queues.scanning import Deliveries
from bench.queues.workers import Load, LoadFailed, Tally, Worker, now

SLACK = 2 * (WINDOW + PREFETCH)
_PAUSE = 0.0002
"""Seconds to wait where the other one is behind."""
_PATIENCE = 0.05


@dataclass(frozen=True, slots=True)
class Flow:
    """What publisher and consumer know of each other."""

    confirmed: Tally = field(default_factory=Tally)
    acked: Tally = field(default_factory=Tally)
    is_over: Tally = field(default_factory=Tally)


def run(
    port: int,
    queue: str,
    size: int,
    warm_up: float,
    seconds: float,
    watch: Callable[[], object] = lambda: None,
) -> Load:
    """How many messages go in and out in so many seconds. `watch` is called ten times a second."""
    flow = Flow()
    workers = [
        Worker(keep_publishing, port, queue, size, flow),
        Worker(keep_consuming, port, queue, flow),
    ]
    try:
        _wait(lambda: flow.acked.value > 0, workers, watch)
        warm = now() + warm_up
        _wait(lambda: now() >= warm, workers, watch)
        begun, before = now(), flow.acked.value
        _wait(lambda: now() >= begun + seconds, workers, watch)
        load = Load(flow.acked.value - before, now() - begun)
    finally:
        flow.is_over.value = 1
        for each in workers:
            each.end()
    return load


def _wait(is_reached: Callable[[], bool], workers: list[Worker[None]], watch: Callable[[], object]) -> None:
    stuck_at = now() + TIMEOUT
    while not is_reached():
        if now() > stuck_at:
            raise LoadFailed(f"nothing came through in {TIMEOUT:.0f} s")
        for each in workers:
            if each.has_ended():
                each.result()
        time.sleep(0.1)
        watch()


def keep_publishing(port: int, queue: str, size: int, flow: Flow) -> None:
    with Connection(port) as connection:
        publisher = Publisher(connection, "", queue, size)
        while not flow.is_over.value:
            if publisher.sent + CHUNK <= flow.acked.value + SLACK:
                publisher.send()
            elif publisher.confirmed < publisher.sent:
                publisher.hear()
            else:
                time.sleep(_PAUSE)
            flow.confirmed.value = publisher.confirmed
        while publisher.confirmed < publisher.sent:
            publisher.hear()


def keep_consuming(port: int, queue: str, flow: Flow) -> None:
    with Connection(port) as connection:
        connection.prefetch(PREFETCH)
        connection.consume(queue, "c0000")
        deliveries = Deliveries(connection.take_rest())
        acked = 0
        while not flow.is_over.value:
            # Acks that are held back stop the broker, and then nothing arrives to wake us.
            patience = _PAUSE if deliveries.count - acked >= ACK_EVERY else _PATIENCE
            if select.select([connection.socket], [], [], patience)[0]:
                deliveries.receive(connection.socket)
                deliveries.drop(deliveries.take())
            due = min(deliveries.count, flow.confirmed.value + SLACK)
            due -= due % ACK_EVERY
            if due > acked:
                connection.socket.sendall(acks(acked, due))
                acked = flow.acked.value = due
