"""A light load that goes on while brokers change.

Each client repeats a request until it is done, as real ones do, and notes how long that took from the moment
at which the request was due.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial

from bench import wire
from bench.cluster.coordinators import NotNow, OffsetCommitter, until_done
from bench.cluster.queue_users import QueueUser
from bench.cluster.transactions import Transactor
from bench.queues.pacing import Latencies
from bench.queues.workers import Tally, Worker, now
from posthouse.client.addresses import Node
from posthouse.client.connection import BrokerConnection
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

GROUPS = 12
PRODUCERS = 3
QUEUES = 2
TRANSACTORS = 2
_PAUSE_SECONDS = 0.05
_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Of all brokers, in the same order."""

    kafka: Sequence[int]
    amqp: Sequence[int]


@dataclass(frozen=True, slots=True)
class Sample:
    due: float
    seconds: float
    failures: int
    """Tries before the one that succeeded."""


@dataclass(frozen=True, slots=True)
class Steady:
    """What the clients found."""

    produced: list[Sample] = field(default_factory=list)
    committed: list[Sample] = field(default_factory=list)
    exchanged: list[Sample] = field(default_factory=list)
    """Messages that were published to a queue, confirmed, and delivered."""
    transacted: list[Sample] = field(default_factory=list)


def within(samples: Sequence[Sample], begun: float, ended: float) -> list[Sample]:
    """Those that were due, or under way, in that time."""
    return [each for each in samples if each.due < ended and each.due + each.seconds > begun]


def latencies(samples: Sequence[Sample]) -> Latencies:
    return Latencies.of([int(each.seconds * 1e9) for each in samples])


def group_names() -> list[str]:
    return [f"steady-{number:02}" for number in range(GROUPS)]


def transactional_ids() -> list[str]:
    """Of one job, so that one broker coordinates all of them."""
    return [f"steady/{number}" for number in range(TRANSACTORS)]


class SteadyLoad:
    def __init__(self, worker: Worker[Steady], is_over: Tally) -> None:
        self._worker = worker
        self._is_over = is_over

    def end(self) -> Steady:
        self._is_over.value = 1
        return self._worker.result()


@contextmanager
def steady_load(ports: Ports, topic: bytes) -> Iterator[SteadyLoad]:
    is_ready, is_over = Tally(), Tally()
    worker = Worker(_run, ports, topic, is_ready, is_over)
    try:
        worker.wait_for(is_ready)
        yield SteadyLoad(worker, is_over)
    finally:
        is_over.value = 1
        worker.end()


def _run(ports: Ports, topic: bytes, is_ready: Tally, is_over: Tally) -> Steady:
    found = Steady()
    # Each begins at another broker, and goes to the next one when that is gone.
    producers = [_Producer(_turned(ports.kafka, number), topic) for number in range(PRODUCERS)]
    committers = [OffsetCommitter(ports.kafka, name, topic) for name in group_names()]
    users = [QueueUser(_turned(ports.amqp, number), f"steady-{number}") for number in range(QUEUES)]
    transactors = [Transactor(ports.kafka, id, topic) for id in transactional_ids()]
    work: list[tuple[Callable[[int], None], list[Sample]]] = [
        *((each.produce, found.produced) for each in producers),
        *((each.commit, found.committed) for each in committers),
        *((each.exchange, found.exchanged) for each in users),
        *((each.commit, found.transacted) for each in transactors),
    ]
    for do, _ in work:
        until_done(partial(do, 0))
    is_ready.value = 1
    threads = [threading.Thread(target=_repeat, args=(*each, is_over), daemon=True) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _turned(ports: Sequence[int], number: int) -> list[int]:
    return [*ports[number:], *ports[:number]]


def _repeat(do: Callable[[int], None], samples: list[Sample], is_over: Tally) -> None:
    begun = now()
    number = 0
    while not is_over.value:
        number += 1
        due = begun + number * _PAUSE_SECONDS
        time.sleep(max(due - now(), 0))
        failures = until_done(partial(do, number))
        samples.append(Sample(due, now() - due, failures))


class _Producer:
    def __init__(self, ports: Sequence[int], topic: bytes) -> None:
        self._ports = list(ports)
        data = PartitionProduceData(index=0, records=memoryview(wire.batch(100, 1)))
        topics = [TopicProduceData(topic_id=topic, partition_data=[data])]
        self._request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
        self._connection: BrokerConnection | None = None

    def produce(self, number: int) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            self._ports.append(self._ports.pop(0))
            connection = BrokerConnection(Node("127.0.0.1", self._ports[-1]), timeout=_TIMEOUT)
        with _closing_unless_done(connection):
            answer = connection.ask(self._request, ProduceResponse)
            if code := answer.responses[0].partition_responses[0].error_code:
                raise NotNow(f"a batch was not acknowledged: error {code}")
        self._connection = connection


@contextmanager
def _closing_unless_done(connection: BrokerConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with closing(connection):
            raise
