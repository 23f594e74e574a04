"""Very many connections that do nothing: what they take of memory and time, and what a newcomer notices."""

import asyncio
import resource
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from statistics import median

from bench import wire
from bench.queues import frames
from bench.queues.workers import Tally, Worker
from bench.scale.brokers import Broker, scratch, serving
from bench.scale.figures import Row
from bench.scale.plan import Stage
from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest
from posthouse.protocols.kafka.codec.generated.fetch import FetchPartition, FetchRequest, FetchTopic

NOTE = """The connections make one request (ApiVersions; for AMQP a login and a channel) and are then
idle. Those *waiting for records* are consumers at the end of a topic, each with a long poll. *A newcomer*
connects, requests the metadata of a topic, and gets the response."""

MOST_MEMORY = 300.0
TOPIC = "idle"
_AT_ONCE = 64
"""So many connections are made at the same time; more would wait in the kernel's queue."""
_SPARE = 1000
"""Descriptors that a process needs beside those of the connections."""
_NEWCOMERS = 50
_FOR_EVER = 2**31 - 1

Greeting = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


def idle(stage: Stage) -> Iterator[Row]:
    count = stage.plan.connections
    allow_descriptors(count + _SPARE)
    for protocol in _GREETINGS:
        with scratch() as directory, serving(directory, {"max_connections": count + _SPARE}) as broker:
            stage.display.stage = f"{protocol}, {count:,} connections"
            yield from _measured(stage, broker, protocol)


def allow_descriptors(count: int) -> None:
    """For this process and those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise RuntimeError(f"{count} descriptors are needed and the system allows {hard}; see ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _measured(stage: Stage, broker: Broker, protocol: str) -> Iterator[Row]:
    count = stage.plan.connections
    section = f"{count:,} idle connections"
    topic = wire.topic_id(broker.kafka, TOPIC)
    port = broker.amqp if protocol == AMQP else broker.kafka
    alone, newcomer_alone = broker.rss_mib(), _newcomer(broker)
    connected, is_over = Tally(), Tally()
    begun, cpu = time.perf_counter(), broker.cpu_seconds()
    holder = Worker(hold, protocol, port, topic, count, connected, is_over)
    try:
        with stage.display.counting("connecting", count, connected) as watch:
            while connected.value < count:
                if holder.has_ended():
                    holder.result()
                time.sleep(0.05)
                watch()
        took, used = time.perf_counter() - begun, broker.cpu_seconds() - cpu
        with stage.display.waiting("idle"):
            cpu, pause = broker.cpu_seconds(), stage.plan.seconds / 2
            time.sleep(pause)
            busy = (broker.cpu_seconds() - cpu) / pause * 100
        memory, newcomer = broker.rss_mib(), _newcomer(broker)
    finally:
        is_over.value = 1
        holder.end()
    yield Row(section=section, name=f"{protocol}: memory", unit="MiB", rounds=(memory,), most=MOST_MEMORY)
    each = (memory - alone) * 1024 / count
    yield Row(section=section, name=f"{protocol}: memory of each", unit="KiB", rounds=(each,))
    yield Row(section=section, name=f"{protocol}: connecting all", unit="s", rounds=(took,))
    yield Row(section=section, name=f"{protocol}: broker CPU, connecting all", unit="s", rounds=(used,))
    yield Row(section=section, name=f"{protocol}: broker CPU, idle", unit="% of a core", rounds=(busy,))
    yield Row(
        section=section, name=f"{protocol}: a newcomer is served, alone", unit="ms", rounds=(newcomer_alone,)
    )
    yield Row(section=section, name=f"{protocol}: a newcomer is served", unit="ms", rounds=(newcomer,))


def _newcomer(broker: Broker) -> float:
    """Milliseconds from connecting to the answer of a first request."""
    took = []
    for _ in range(_NEWCOMERS):
        begun = time.perf_counter()
        wire.topic_id(broker.kafka, TOPIC)
        took.append((time.perf_counter() - begun) * 1000)
    return median(took)


def hold(protocol: str, port: int, topic: bytes, count: int, connected: Tally, is_over: Tally) -> None:
    """Connect so often, count, and keep everything open until it is over. Runs in a process of its own."""
    asyncio.run(_hold(protocol, port, topic, count, connected, is_over))


async def _hold(protocol: str, port: int, topic: bytes, count: int, connected: Tally, is_over: Tally) -> None:
    greet = _GREETINGS[protocol]
    held: list[asyncio.StreamWriter] = []
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def connect() -> None:
        async with at_once:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await greet(reader, writer, topic)
            held.append(writer)
            connected.value = len(held)

    await asyncio.gather(*(connect() for _ in range(count)))
    while not is_over.value:
        await asyncio.sleep(0.05)
    for writer in held:
        writer.transport.abort()


async def _greet_kafka(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: bytes) -> None:
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    writer.write(wire.frame(request))
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def _greet_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: bytes) -> None:
    await _greet_kafka(reader, writer, topic)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=_FOR_EVER,
        min_bytes=1,
        topics=[FetchTopic(topic_id=topic, partitions=[partition])],
    )
    writer.write(wire.frame(request))


async def _greet_amqp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: bytes) -> None:
    """With a channel, and without heartbeats, which would not be idle."""

    async def receive() -> bytes:
        _, _, length = frames.HEAD.unpack(await reader.readexactly(frames.HEAD.size))
        return (await reader.readexactly(length + 1))[:-1]

    writer.write(frames.PREAMBLE)
    await receive()
    login = frames.short("PLAIN") + frames.long(b"\0guest\0guest") + frames.short("en_US")
    writer.write(frames.method(0, frames.START_OK, frames.NO_TABLE + login))
    channels, frame_max, _ = struct.unpack(">HIH", (await receive())[4:])
    writer.write(frames.method(0, frames.TUNE_OK, struct.pack(">HIH", channels, frame_max, 0)))
    writer.write(frames.method(0, frames.OPEN, frames.short("/") + bytes(2)))
    await receive()
    writer.write(frames.method(frames.CHANNEL, frames.CHANNEL_OPEN, frames.short("")))
    await receive()


KAFKA, WAITING, AMQP = "Kafka", "Kafka, waiting for records", "AMQP"
_GREETINGS: dict[str, Greeting] = {KAFKA: _greet_kafka, WAITING: _greet_waiting, AMQP: _greet_amqp}
