"""What a GB of records costs in requests and bytes, at the database and at the object store."""

import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from bench import wire
from bench.cluster import loads
from bench.cluster.contenders import INLINE, OBJECT, Contender, Place, place_of
from bench.cluster.database_use import Use, use_of
from bench.cluster.plan import Stage
from bench.scale.brokers import Broker
from bench.scale.figures import Row
from posthouse.storage.shared.objects.measured import ObjectStoreMetrics
from tests.consolidated import consolidate

NOTE = """One broker. Its records are produced, then all of them are *consolidated*, and then another broker,
which has nothing in its caches, reads them for one consumer. *One at a time* is a client that waits for every
acknowledgement; the others send as fast as the broker takes it. Requests and bytes of the object store are
those of brokers and of consolidation, whether they succeeded or not. *MB of WAL* is what PostgreSQL writes
into its log, *transactions* those of the database. Storing is all that is needed until the records are in
segments; what was uploaded before then is deleted later. What is sent one at a time is so little that each
partition gets one segment, smaller than the usual 32 MiB, and that heartbeats and the search for work make
up a part of the transactions. A GB is 10⁹ bytes of batches."""
_BATCH_BYTES = 16_000
_LARGE_BYTES = 1_000_000
_STORING, _READING = "stored", "read as history"
_PUT, _READ = "put", "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    name: str
    contender: Contender
    batch_bytes: int
    one_at_a_time: bool = False


LOADS = (
    Load(
        name="latency=inline, 16 KB batches, one at a time",
        contender=INLINE,
        batch_bytes=_BATCH_BYTES,
        one_at_a_time=True,
    ),
    Load(name="latency=inline, 16 KB batches, at full load", contender=INLINE, batch_bytes=_BATCH_BYTES),
    Load(name="latency=object, 1 MB batches, at full load", contender=OBJECT, batch_bytes=_LARGE_BYTES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """To the object store."""

    puts: float
    put_bytes: float
    gets: float
    got_bytes: float

    def plus(self, other: "Requests", by: int = 1) -> "Requests":
        return Requests(
            puts=self.puts + by * other.puts,
            put_bytes=self.put_bytes + by * other.put_bytes,
            gets=self.gets + by * other.gets,
            got_bytes=self.got_bytes + by * other.got_bytes,
        )


def costs(stage: Stage) -> Iterator[Row]:
    for load in LOADS:
        stage.display.say(f"  {load.name}")
        with place_of(load.contender, stage.servers) as place:
            yield from _measured(stage, load, place)


def _measured(stage: Stage, load: Load, place: Place) -> Iterator[Row]:
    assert place.database is not None
    writer = place.broker("writer", {"admin": "127.0.0.1:0"})
    try:
        target = loads.new_target(writer, "costs", load.contender.latency)
        requests, before = requests_of(writer), use_of(place.database)
        bytes_sent = _send(load, target, stage.plan.seconds)
        metrics = ObjectStoreMetrics()
        consolidate(place.database, place.objects, metrics=metrics)
        requests = requests_of(writer).plus(requests, -1).plus(_of_calls(metrics))
        use = use_of(place.database).since(before)
        yield from _rows(load, _STORING, bytes_sent / 1e9, requests, use)
    finally:
        writer.stop()
    reader = place.broker("reader", {"admin": "127.0.0.1:0"})
    try:
        requests, before = requests_of(reader), use_of(place.database)
        read = loads.consume(loads.Target(port=reader.kafka, topic=target.topic), stage.plan.seconds)
        requests = requests_of(reader).plus(requests, -1)
        yield from _rows(load, _READING, read.bytes / 1e9, requests, use_of(place.database).since(before))
    finally:
        reader.kill()


def _send(load: Load, target: loads.Target, seconds: float) -> int:
    made = loads.requests_to(target, load.batch_bytes)
    if not load.one_at_a_time:
        return loads.flood(target, made, seconds).bytes
    return wire.push(target.port, made.frames, float("inf"), 1, seconds=seconds).bytes


def _rows(load: Load, doing: str, gigabytes: float, requests: Requests, use: Use) -> Iterator[Row]:
    figures = {
        ("PUT requests", ""): requests.puts,
        ("uploaded", "MB"): requests.put_bytes / 1e6,
        ("GET requests", ""): requests.gets,
        ("downloaded", "MB"): requests.got_bytes / 1e6,
        ("transactions of the database", ""): use.transactions,
        ("written into PostgreSQL's log", "MB"): use.wal_bytes / 1e6,
    }
    for (name, unit), value in figures.items():
        yield Row(
            section=f"Costs of a GB, {load.name}",
            name=f"{doing}: {name}",
            unit=f"{unit} per GB".strip(),
            rounds=(value / gigabytes,),
        )


def requests_of(broker: Broker) -> Requests:
    """Since it started."""
    with urllib.request.urlopen(f"http://{broker.admin}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return requests_in(lines)


def requests_in(lines: list[str]) -> Requests:
    """Of a broker's metrics, in Prometheus' format."""
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("posthouse_object_"))

    def of(metric: str, operation: str) -> float:
        return float(values[f'posthouse_object_{metric}{{operation="{operation}"}}'])

    return Requests(
        puts=of("call_duration_seconds_count", _PUT),
        put_bytes=of("bytes_total", _PUT),
        gets=of("call_duration_seconds_count", _READ),
        got_bytes=of("bytes_total", _READ),
    )


def _of_calls(metrics: ObjectStoreMetrics) -> Requests:
    return Requests(
        puts=metrics.put.seconds.count,
        put_bytes=metrics.put.bytes,
        gets=metrics.read.seconds.count,
        got_bytes=metrics.read.bytes,
    )
