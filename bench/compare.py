"""`make bench-compare BASE=REV`: this tree beside another commit of itself, in turn on one machine.

    python -m bench.compare REV [--rounds 5] [--scale 1.0]

Both brokers get the same load from the generators of this tree, one after the other, and change places in
every round. A ratio is taken within a round; the median of the rounds counts, and the lowest and highest are
shown. Noise that lasts longer than a round touches both.
"""

import argparse
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import librdkafka, wire
from bench.queues import loads, pacing
from bench.queues.connection import Connection
from bench.queues.pacing import Pace
from bench.queues.workers import Load, Tally, Worker
from bench.scale.brokers import Broker, scratch

ROOT = Path(__file__).parent.parent
MIB = 1024 * 1024
BATCH = 16 * 1024
_QUEUE = "compared"
_BODY = 1024


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    less_is_better: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.partition("\n")[0])
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="how much load, 1.0 is a full round")
    given = parser.parse_args()
    console = Console()
    found: dict[str, list[tuple[Figure, Figure]]] = {}
    with _source_of(given.base) as base:
        for number in range(given.rounds):
            order = (base, None) if number % 2 == 0 else (None, base)
            with console.status(f"round {number + 1} of {given.rounds} …"):
                figures = {source: list(_measured(source, given.scale)) for source in order}
            for before, after in zip(figures[base], figures[None], strict=True):
                found.setdefault(before.name, []).append((before, after))
    console.print(table(given.base, "this tree", found))


@contextmanager
def _source_of(revision: str) -> Iterator[Path]:
    """The sources of that commit, with the compiled columns of this one."""
    place = ROOT / "build" / "compared"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "remove", "--force", str(place)], check=False, capture_output=True)
    subprocess.run([*git, "add", "--detach", str(place), revision], check=True, capture_output=True)
    try:
        for compiled in (ROOT / "src" / "posthouse" / "records").glob("*.so"):
            shutil.copy(compiled, place / "src" / "posthouse" / "records")
        yield place / "src"
    finally:
        subprocess.run([*git, "remove", "--force", str(place)], check=True, capture_output=True)


def _measured(source: Path | None, scale: float) -> Iterator[Figure]:
    with scratch() as directory:
        broker = Broker(directory, source=source)
        try:
            yield from figures_of(broker, scale)
        finally:
            broker.kill()


def figures_of(broker: Broker, scale: float) -> Iterator[Figure]:
    """What a broker does under the loads that are compared."""
    yield from _kafka(broker, scale)
    yield from _amqp(broker, scale)


def _kafka(broker: Broker, scale: float) -> Iterator[Figure]:
    librdkafka.create_topic(broker.address, "compared", 4)
    topic = wire.topic_id(broker.kafka, "compared")
    frames = [wire.produce_frame(topic, partition, wire.batch(100, BATCH)) for partition in range(4)]
    wire.push(broker.kafka, frames, 4 * MIB, 64)
    before = broker.cpu_seconds()
    load = wire.push(broker.kafka, frames, int(scale * 256 * MIB), 256)
    cpu = (broker.cpu_seconds() - before) / (load.bytes / BATCH) * 1e6
    yield Figure("Kafka produce, 16 KiB batches", load.mb_per_second, "MB/s")
    yield Figure("Kafka produce, broker CPU", cpu, "µs/batch", less_is_better=True)
    single = wire.produce_frame(topic, 0, wire.batch(100, 1))
    alone = wire.push(broker.kafka, [single], int(scale * 2000) * len(single), 1)
    yield Figure("Kafka produce, one record at a time, p50", alone.percentile(0.5) * 1e3, "ms", True)
    records = int(scale * 200_000) // librdkafka.CHUNK * librdkafka.CHUNK or librdkafka.CHUNK
    librdkafka.create_topic(broker.address, "read", librdkafka.PARTITIONS)
    librdkafka.produce(broker.address, "read", 1024, records)
    before = broker.cpu_seconds()
    read = librdkafka.consume(broker.address, "read", 1024, records)
    cpu = (broker.cpu_seconds() - before) / records * 1e6
    yield Figure("Kafka consume, 1 KiB records", read.mb_per_second, "MB/s")
    yield Figure("Kafka consume, broker CPU", cpu, "µs/record", less_is_better=True)


def _amqp(broker: Broker, scale: float) -> Iterator[Figure]:
    count = int(scale * 60_000)
    port = broker.amqp
    with Connection(port) as connection:
        connection.declare_queue(_QUEUE)
        connection.declare_queue("paced")
    works: tuple[tuple[str, Callable[[], Worker[Load]]], ...] = (
        ("AMQP publish, confirmed", partial(Worker, loads.publish, port, "", _QUEUE, _BODY, count, Tally())),
        ("AMQP consume and ack", partial(Worker, loads.consume, port, [_QUEUE], count, Tally())),
    )
    for name, start in works:
        before = broker.cpu_seconds()
        load = start().result()
        cpu = (broker.cpu_seconds() - before) / count * 1e6
        yield Figure(name, load.rate, "messages/s")
        yield Figure(f"{name}, broker CPU", cpu, "µs/message", less_is_better=True)
    pace = Pace(queue="paced", size=100, rate=500.0, warm_up=0.5, seconds=max(4 * scale, 0.2))
    delays = pacing.run(port, pace, Tally(), lambda: None)
    yield Figure("AMQP publish to delivery, 500/s, p50", delays.delivered.p50, "ms", less_is_better=True)


def table(base: str, other: str, found: dict[str, list[tuple[Figure, Figure]]]) -> Table:
    table = Table("", base, other, "unit", "times as good", "lowest – highest")
    for name, pairs in found.items():
        ratios = sorted(ratio(before, after) for before, after in pairs)
        before = statistics.median(each.value for each, _ in pairs)
        after = statistics.median(each.value for _, each in pairs)
        table.add_row(
            name,
            f"{before:,.2f}",
            f"{after:,.2f}",
            pairs[0][0].unit,
            f"{statistics.median(ratios):.3f}",
            f"{ratios[0]:.2f} – {ratios[-1]:.2f}",
        )
    return table


def ratio(before: Figure, after: Figure) -> float:
    """How many times as good the second one is."""
    return before.value / after.value if before.less_is_better else after.value / before.value


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
