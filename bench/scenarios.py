"""What is measured. Each scenario yields rows: a name, a figure, its unit, and what it is compared with."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from bench import groups, librdkafka, transactions, wire
from bench.processes import Served, broker, copier

MIB = 1024 * 1024
GIB = 1024 * MIB
BATCH = 16 * 1024
WINDOW_BYTES = 4 * MIB
"""So much is sent before an answer is awaited, but never less than eight requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    section: str
    name: str
    value: float
    unit: str
    ratio: float | None = None
    ratio_to: str = ""
    aim: str = ""


def floor(scale: float) -> Iterator[Row]:
    """The same frames to a copier and to the broker, back to back, three times; the medians are compared."""
    section = "Against the floor: raw produce requests, acknowledged when synced"
    for label, size in (("16 KiB batches", BATCH), ("1 MB batches", 1_000_000)):
        total = int(scale * GIB)
        floors, brokers, cpu = [], [], []
        for _ in range(3):
            with copier() as served:
                floors.append(_push(served, _frames(bytes(16), 4, size), total).mb_per_second)
            with broker() as served:
                librdkafka.create_topic(served.address, "bench", 4)
                frames = _frames(wire.topic_id(served.port, "bench"), 4, size)
                before = served.cpu_seconds()
                load = _push(served, frames, total)
                cpu.append((served.cpu_seconds() - before) / (load.bytes / GIB))
                brokers.append(load.mb_per_second)
        lowest = statistics.median(floors)
        reached = statistics.median(brokers)
        yield Row(section=section, name=f"copier, {label}", value=lowest, unit="MB/s")
        yield Row(
            section=section,
            name=f"Posthouse, {label}",
            value=reached,
            unit="MB/s",
            ratio=reached / lowest,
            ratio_to="copier",
            aim="≥ 0.60",
        )
        yield Row(section=section, name=f"broker CPU, {label}", value=statistics.median(cpu), unit="s/GiB")


def clients(scale: float) -> Iterator[Row]:
    """librdkafka as it is; the client takes more CPU than the broker, so the broker's CPU tells more."""
    section = "With librdkafka: one producer, then one consumer"
    for record_bytes, count in ((100, 3_000_000), (1024, 600_000)):
        records = max(int(count * scale), 1) // librdkafka.CHUNK * librdkafka.CHUNK or librdkafka.CHUNK
        with broker() as served:
            topic = f"bench-{record_bytes}"
            librdkafka.create_topic(served.address, topic, librdkafka.PARTITIONS)
            before = served.cpu_seconds()
            produced = librdkafka.produce(served.address, topic, record_bytes, records)
            consumed = librdkafka.consume(served.address, topic, record_bytes, records)
            cpu = (served.cpu_seconds() - before) / (produced.bytes / GIB)
        for verb, rate in (("produce", produced), ("consume", consumed)):
            name = f"{verb} {record_bytes} B"
            yield Row(section=section, name=name, value=rate.mb_per_second, unit="MB/s")
            yield Row(section=section, name=name, value=rate.records_per_second, unit="records/s")
        yield Row(
            section=section,
            name=f"broker CPU, {record_bytes} B, produced and consumed",
            value=cpu,
            unit="s/GiB",
            aim="≤ 2",
        )


def latency(scale: float) -> Iterator[Row]:
    section = "Latency of one record at a time, acks=all"
    medians: dict[str, float] = {}
    with broker() as served:
        for durability in ("fsync", "os"):
            librdkafka.create_topic(served.address, durability, 1, durability=durability)
            topic = wire.topic_id(served.port, durability)
            frame = wire.produce_frame(topic, 0, wire.batch(100, 1))
            wire.push(served.port, [frame], 200 * len(frame), 1)
            load = wire.push(served.port, [frame], int(5000 * scale) * len(frame), 1)
            medians[durability] = load.percentile(0.5)
            for label, share in (("p50", 0.5), ("p99", 0.99)):
                ratio = medians["os"] / medians["fsync"] if durability == "os" and share == 0.5 else None
                yield Row(
                    section=section,
                    name=f"durability={durability}, {label}",
                    value=load.percentile(share) * 1000,
                    unit="ms",
                    ratio=ratio,
                    ratio_to="fsync" if ratio else "",
                )


def partitions(scale: float) -> Iterator[Row]:
    """The same requests, one 16 KiB batch each, over ever more partitions that have records already."""
    section = "Many partitions: 16 KiB batches, one per request"
    rates: dict[int, list[float]] = {1: [], 100: [], 10_000: []}
    for _ in range(3):
        for count, measured in rates.items():
            with broker() as served:
                librdkafka.create_topic(served.address, "bench", count)
                topic = wire.topic_id(served.port, "bench")
                first = [wire.produce_frame(topic, each, wire.batch(100, 1)) for each in range(count)]
                wire.push(served.port, first, sum(map(len, first)), 100)
                frames = _frames(topic, count, BATCH)
                measured.append(_push(served, frames, int(scale * GIB / 2)).mb_per_second)
    single = statistics.median(rates[1])
    for count, measured in rates.items():
        value = statistics.median(measured)
        yield Row(
            section=section,
            name=f"{count:,} partition{'s' if count > 1 else ''}",
            value=value,
            unit="MB/s",
            ratio=value / single,
            ratio_to="1 partition",
            aim="≥ 0.80" if count == 10_000 else "",
        )


def consumer_groups(scale: float) -> Iterator[Row]:
    """All members rejoin at once and answer as fast as they can: what is left is the broker's part."""
    section = "Consumer groups"
    with broker() as served:
        librdkafka.create_topic(served.address, "bench", 4)
        topic = wire.topic_id(served.port, "bench")
        for members in (2, 20, 200):
            seconds = groups.rebalance_seconds(served.port, members)
            yield Row(section=section, name=f"rebalance, {members} members", value=seconds * 1000, unit="ms")
        rate = groups.offset_commits(served.port, topic, int(20_000 * scale))
        yield Row(section=section, name="offset commits, one each, durable", value=rate, unit="requests/s")


def exactly_once(scale: float) -> Iterator[Row]:
    section = "Transactions: confluent-kafka, 1 KiB records"
    records = int(100_000 * scale)
    with broker() as served:
        librdkafka.create_topic(served.address, "bench", 4)
        plain = transactions.plain_rate(served.address, "bench", records)
        yield Row(section=section, name="without transactions", value=plain, unit="records/s")
        for size in (10_000, 1000, 100):
            count = max(min(records, size * 200) // size, 1) * size
            rate = transactions.transactional_rate(served.address, "bench", count, size)
            yield Row(
                section=section,
                name=f"{size:,} records per transaction",
                value=rate,
                unit="records/s",
                ratio=rate / plain,
                ratio_to="without",
            )
        rate = transactions.transactional_rate(served.address, "bench", int(500 * scale), 1)
        yield Row(section=section, name="transactions of one record", value=rate, unit="transactions/s")


def start(scale: float) -> Iterator[Row]:
    section = "Start"
    times, sizes = [], []
    for _ in range(5):
        with broker() as served:
            times.append(served.seconds_to_ready)
            sizes.append(served.rss_mib())
    yield Row(
        section=section,
        name="from start to ready, empty directory",
        value=statistics.median(times),
        unit="s",
        aim="< 0.5",
    )
    yield Row(
        section=section, name="memory when idle", value=statistics.median(sizes), unit="MiB", aim="< 80"
    )


SCENARIOS = {
    "floor": floor,
    "clients": clients,
    "latency": latency,
    "partitions": partitions,
    "groups": consumer_groups,
    "transactions": exactly_once,
    "start": start,
}


def _frames(topic: bytes, partitions: int, size: int) -> list[bytes]:
    records = wire.batch(1000, size)
    return [wire.produce_frame(topic, partition, records) for partition in range(partitions)]


def _push(served: Served, frames: list[bytes], total: int) -> wire.Load:
    return wire.push(served.port, frames, total, max(WINDOW_BYTES // len(frames[0]), 8))
