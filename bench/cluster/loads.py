"""Loads of Kafka requests on one broker: as fast as possible, one at a time, at a pace, and reading all."""

import itertools
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import wire
from bench.cluster.fetching import WAIT_MS, Consumer, Read, fetch_request, read_all
from bench.cluster.pushing import Producer, push
from bench.queues.pacing import Latencies
from bench.scale.asking import NotDone, connected, make_topics
from bench.scale.brokers import Broker
from posthouse.protocols.kafka.codec.generated.fetch import FetchResponse
from posthouse.records.batch import parse_header

PARTITIONS = 4
RECORD_BYTES = 1000
PRODUCERS = 4
WINDOW_BYTES = 4 << 20
"""Of each producer, as a client has that sends 5 requests before it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A topic that a load goes to."""

    port: int
    topic: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Of one batch each, to the partitions of a topic in turn."""

    frames: Sequence[bytes]
    records: int
    """In each of them."""

    @property
    def window(self) -> int:
        """How many of them a producer sends before it waits."""
        return max(WINDOW_BYTES // len(self.frames[0]), 1)


def requests(
    topic: bytes, partitions: Sequence[int], batch_bytes: int, record_bytes: int = RECORD_BYTES
) -> Requests:
    batch = wire.batch(record_bytes, batch_bytes)
    frames = [wire.produce_frame(topic, each, batch) for each in partitions]
    return Requests(frames=frames, records=parse_header(batch).count)


def requests_to(target: Target, batch_bytes: int, record_bytes: int = RECORD_BYTES) -> Requests:
    return requests(target.topic, range(PARTITIONS), batch_bytes, record_bytes)


def new_target(broker: Broker, name: str, latency: str | None) -> Target:
    config = {} if latency is None else {"latency": latency}
    with connected(broker.kafka) as connection:
        [topic] = make_topics(connection, [name], partitions=PARTITIONS, config=config)
    return Target(port=broker.kafka, topic=topic)


def flood(target: Target, load: Requests, seconds: float) -> wire.Load:
    """As fast as the broker acknowledges. The generator does not read its answers, so what they acknowledged
    is counted in the log."""
    before = _records(target)
    producers = [
        Producer(port=target.port, frames=rotated(load.frames, number), window=load.window)
        for number in range(PRODUCERS)
    ]
    done = push(producers, seconds)
    found, expected = _records(target) - before, len(done.latencies) * load.records
    if found != expected:
        raise NotDone(f"{found} of {expected} records were acknowledged")
    return done


def rotated(frames: Sequence[bytes], by: int) -> Sequence[bytes]:
    at = by % len(frames)
    return [*frames[at:], *frames[:at]]


def one_at_a_time(target: Target, seconds: float) -> Latencies:
    load = requests_to(target, 1, record_bytes=100)
    done = wire.push(target.port, load.frames, math.inf, 1, seconds=seconds)
    return Latencies.of([int(each * 1e9) for each in done.latencies])


def paced(target: Target, load: Requests, rate: float, seconds: float) -> Latencies:
    """`rate` requests per second, whatever the answers do. A latency begins when the request was due, so a
    sender that has to wait counts, too."""
    count = max(int(rate * seconds), 1)
    due: list[float] = []
    answered: list[float] = []
    with wire.connected(target.port) as connection:
        answers = wire.Answers(connection)

        def receive() -> None:
            while len(answered) < count:
                found = answers.wait()
                answered.extend([time.perf_counter()] * found)

        receiver = threading.Thread(target=receive, daemon=True)
        receiver.start()
        begun = time.perf_counter()
        for number, frame in zip(range(count), itertools.cycle(load.frames), strict=False):
            due.append(begun + number / rate)
            if (early := due[-1] - time.perf_counter()) > 0:
                time.sleep(early)
            connection.sendall(frame)
        receiver.join(60)
        if len(answered) < count:
            raise NotDone(f"{len(answered)} of {count} requests were answered")
    return Latencies.of([int((at - when) * 1e9) for at, when in zip(answered, due, strict=True)])


def consume(target: Target, seconds: float) -> Read:
    """One consumer reads every partition from its beginning."""
    consumer = Consumer(port=target.port, topic=target.topic, partitions=range(PARTITIONS))
    return read_all([consumer], seconds)


def _records(target: Target) -> int:
    with connected(target.port) as connection:
        request = fetch_request(target.topic, dict.fromkeys(range(PARTITIONS), 0))
        answer = connection.ask(request, FetchResponse, wait=WAIT_MS / 1000)
    found = answer.responses[0].partitions
    if failed := [each.error_code for each in found if each.error_code]:
        raise NotDone(f"a fetch failed with code {failed[0]}")
    return sum(each.high_watermark for each in found)
