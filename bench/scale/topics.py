"""Very many topics: making them, starting with them, and asking for a few or for all of them."""

import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench import wire
from bench.queues.pacing import Latencies
from bench.queues.workers import Tally, Worker
from bench.scale.asking import NotDone, connected, make_topics, metadata
from bench.scale.brokers import Broker, scratch
from bench.scale.figures import Row
from bench.scale.plan import Stage
from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest

MOST_START = 15.0
MOST_METADATA = 50.0
PER_REQUEST = 500
ASKED_FOR = 10
WITH_RECORDS = 10
"""One in so many topics has a few records."""
RETENTION_SECONDS = 5.0
"""Instead of a minute, so that it comes round while somebody looks."""
NOTE = f"""Each topic has one partition; requests of {PER_REQUEST} create them. One topic in
{WITH_RECORDS} has a few records. A start is timed from the command to the ready line, with the files out
of the page cache. A client requests the metadata of {ASKED_FOR} topics by name, 200 times a second.
Meanwhile the broker runs retention over all partitions every {RETENTION_SECONDS:g} s (by default every
minute). Then the same, with another client that requests the metadata of all topics again and again."""

_RECORD_BYTES, _BATCH_BYTES = 100, 1000
_WINDOW = 200
_PAUSE = 0.005
_ALL_ROUNDS = 5
_SETTINGS = {"retention_check_seconds": RETENTION_SECONDS}


def topics(stage: Stage) -> Iterator[Row]:
    section = f"{stage.plan.topics:,} topics"
    stage.display.stage = section
    with scratch() as directory:
        broker = Broker(directory, _SETTINGS)
        try:
            yield from _made(stage, broker, section)
            yield from _asked(stage, broker, section)
            broker.stop()
            broker = _started(stage, directory)
            yield _start(section, "a stop", broker)
            _write_some(stage, broker)
            broker.kill()
            broker = _started(stage, directory)
            yield _start(section, "kill -9", broker)
        finally:
            broker.kill()


def _made(stage: Stage, broker: Broker, section: str) -> Iterator[Row]:
    count = stage.plan.topics
    done = Tally()
    begun, cpu = time.perf_counter(), broker.cpu_seconds()
    with (
        connected(broker.kafka) as connection,
        stage.display.counting("making topics", count, done) as watch,
    ):
        for first in range(0, count, PER_REQUEST):
            names = [_name(number) for number in range(first, min(first + PER_REQUEST, count))]
            make_topics(connection, names)
            done.value += len(names)
            watch()
    took, used = time.perf_counter() - begun, broker.cpu_seconds() - cpu
    yield Row(section=section, name="made", unit="topics/s", rounds=(count / took,))
    yield Row(section=section, name="made, broker CPU", unit="µs/topic", rounds=(used / count * 1e6,))
    _write_some(stage, broker)
    yield Row(section=section, name="memory", unit="MiB", rounds=(broker.rss_mib(),))


def _asked(stage: Stage, broker: Broker, section: str) -> Iterator[Row]:
    count, seconds = stage.plan.topics, stage.plan.seconds
    with stage.display.waiting("asking for a few topics"):
        alone = _few(broker.kafka, count, seconds)
    yield from _latencies(section, f"metadata of {ASKED_FOR} topics", alone)
    with stage.display.waiting("asking for all topics"):
        is_over = Tally()
        is_over.value = 1
        took, size = ask_for_all(broker.kafka, _ALL_ROUNDS, is_over)
    yield Row(section=section, name="metadata of all topics", unit="ms", rounds=tuple(took))
    yield Row(section=section, name="metadata of all topics, size", unit="MB", rounds=(size / 1e6,))
    with stage.display.waiting("asking for a few topics while somebody asks for all"):
        is_over = Tally()
        other = Worker(ask_for_all, broker.kafka, 1, is_over)
        try:
            disturbed = _few(broker.kafka, count, seconds)
            is_over.value = 1
            took, _ = other.result()
        finally:
            other.end()
    name = f"metadata of {ASKED_FOR} topics, while somebody asks for all"
    yield from _latencies(section, name, disturbed)
    yield Row(section=section, name="metadata of all topics meanwhile", unit="ms", rounds=(median(took),))


def _latencies(section: str, name: str, found: Latencies) -> Iterator[Row]:
    yield Row(section=section, name=f"{name}, p50", unit="ms", rounds=(found.p50,))
    yield Row(section=section, name=f"{name}, p99", unit="ms", rounds=(found.p99,), most=MOST_METADATA)
    yield Row(section=section, name=f"{name}, the slowest", unit="ms", rounds=(found.most,))


def _few(port: int, count: int, seconds: float) -> Latencies:
    took: list[int] = []
    chance = random.Random(count)
    until = time.monotonic() + seconds
    with connected(port) as connection:
        while time.monotonic() < until or not took:
            names = [_name(chance.randrange(count)) for _ in range(ASKED_FOR)]
            begun = time.perf_counter_ns()
            answer = metadata(connection, names)
            took.append(time.perf_counter_ns() - begun)
            if any(topic.error_code for topic in answer.topics):
                raise NotDone("a topic that was made is not there")
            time.sleep(_PAUSE)
    return Latencies.of(took)


def ask_for_all(port: int, least: int, is_over: Tally) -> tuple[list[float], int]:
    """Milliseconds of each answer until it is over, at least so many, and the bytes of one."""
    request = wire.frame(MetadataRequest(topics=None))
    took: list[float] = []
    size = 0
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as stream:
        while len(took) < least or not is_over.value:
            begun = time.perf_counter()
            connection.sendall(request)
            size = int.from_bytes(stream.read(4), "big")
            if len(stream.read(size)) < size:
                raise ConnectionError("the broker has closed the connection")
            took.append((time.perf_counter() - begun) * 1000)
    return took, size


def _write_some(stage: Stage, broker: Broker) -> None:
    names = [_name(number) for number in range(0, stage.plan.topics, WITH_RECORDS)]
    with connected(broker.kafka) as connection:
        ids = [topic.topic_id for topic in metadata(connection, names).topics]
    batch = wire.batch(_RECORD_BYTES, _BATCH_BYTES)
    with stage.display.waiting("writing records"):
        frames = [wire.produce_frame(topic, 0, batch) for topic in ids]
        wire.push(broker.kafka, frames, sum(map(len, frames)), _WINDOW)


def _started(stage: Stage, directory: Path) -> Broker:
    _drop_from_cache(directory)
    broker = Broker(directory, _SETTINGS)
    with connected(broker.kafka) as connection:
        found = len(metadata(connection, None).topics)
    if found != stage.plan.topics:
        broker.kill()
        raise NotDone(f"{found} of {stage.plan.topics} topics are there after a start")
    return broker


def _drop_from_cache(directory: Path) -> None:
    """What is on the disk already has to be read again; what is not, the kernel keeps."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def _start(section: str, after: str, broker: Broker) -> Row:
    took = broker.seconds_to_ready
    return Row(section=section, name=f"start after {after}", unit="s", rounds=(took,), most=MOST_START)


def _name(number: int) -> str:
    return f"topic-{number:06d}"
