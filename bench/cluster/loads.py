"""Loads of Kafka requests: as fast as possible, one at a time, at a pace, and reading everything."""

import itertools
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import wire
from bench.queues.pacing import Latencies
from bench.scale.asking import NotDone, connected, make_topics
from bench.scale.brokers import Broker
from posthouse.client.connection import BrokerConnection
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.records.batch import iter_headers, parse_header

PARTITIONS = 4
RECORD_BYTES = 1000
WINDOW_BYTES = 16 << 20
"""As of a few producers: a batch is on its way for longer than on a local disk."""
_PARTITION_BYTES = 2 << 20
_FETCH_BYTES = 8 << 20
_WAIT_MS = 500


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


def requests(target: Target, batch_bytes: int, record_bytes: int = RECORD_BYTES) -> Requests:
    batch = wire.batch(record_bytes, batch_bytes)
    frames = [wire.produce_frame(target.topic, each, batch) for each in range(PARTITIONS)]
    return Requests(frames=frames, records=parse_header(batch).count)


def new_target(broker: Broker, name: str, latency: str | None) -> Target:
    config = {} if latency is None else {"latency": latency}
    with connected(broker.kafka) as connection:
        [topic] = make_topics(connection, [name], partitions=PARTITIONS, config=config)
    return Target(port=broker.kafka, topic=topic)


def flood(target: Target, load: Requests, seconds: float) -> wire.Load:
    """As fast as the broker acknowledges. The generator does not read its answers, so what they acknowledged
    is counted in the log."""
    before = _records(target)
    window = WINDOW_BYTES // len(load.frames[0])
    done = wire.push(target.port, load.frames, math.inf, window, seconds=seconds)
    found, expected = _records(target) - before, len(done.latencies) * load.records
    if found != expected:
        raise NotDone(f"{found} of {expected} records were acknowledged")
    return done


def one_at_a_time(target: Target, seconds: float) -> Latencies:
    load = requests(target, 1, record_bytes=100)
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


def _records(target: Target) -> int:
    with connected(target.port) as connection:
        return sum(each.high_watermark for each in _fetch(connection, target, [0] * PARTITIONS))


def read_all(target: Target, seconds: float) -> float:
    """MB/s of one consumer that reads every partition from its beginning."""
    offsets = [0] * PARTITIONS
    size = 0
    begun = time.perf_counter()
    with connected(target.port) as connection:
        while True:
            answer = _fetch(connection, target, offsets)
            for each in answer:
                for _, header in iter_headers(each.records or b""):
                    offsets[each.partition_index] = header.next_offset
                size += len(each.records or b"")
            took = time.perf_counter() - begun
            if took > seconds or all(offsets[each.partition_index] == each.high_watermark for each in answer):
                return size / took / 1e6


def _fetch(connection: BrokerConnection, target: Target, offsets: Sequence[int]) -> list[PartitionData]:
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES)
        for number, offset in enumerate(offsets)
    ]
    request = FetchRequest(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        topics=[FetchTopic(topic_id=target.topic, partitions=wanted)],
    )
    answer = connection.ask(request, FetchResponse, wait=_WAIT_MS / 1000)
    found = list(answer.responses[0].partitions)
    for each in found:
        if each.error_code:
            raise NotDone(f"a fetch failed with code {each.error_code}")
    return found
