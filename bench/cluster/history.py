"""Spark reads the history of a topic: from objects, by itself, and from a broker."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from bench.cluster.contenders import OBJECT, place_of
from bench.cluster.plan import Stage
from bench.processes import Served
from bench.scale.brokers import Broker
from bench.scale.figures import Row
from bench.spark import queries
from bench.spark.queries import Source
from bench.spark.sessions import Session, Setup, running
from bench.spark.workload import Filled, Shape, fill
from tests.consolidated import consolidate

NOTE = """One broker with its objects in the S3 server, a topic of four partitions whose records are all in
segments (*consolidated*), and Spark on `local[2]`, which reads all of it into `noop`. *Signed addresses* come
with the manifest of the broker; *own credentials* is the option `objectStore`; *broker* is
`readObjects=false`. They take turns, after a round that does not count, in which rows are counted. CPU is
that of the broker process while a query runs, without what an idle broker uses in the same time. The topic is
larger than the caches of the broker, which has to get history from the object store, too."""

BROKER, SIGNED, OWN = "broker", "signed addresses", "own credentials"
MOST_CPU = 0.1
_IDLE_SECONDS = 5.0
_BATCH_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class _Measured:
    seconds: float
    cpu: float


def history(stage: Stage) -> Iterator[Row]:
    if stage.servers.store is None:
        stage.display.say("  left out: there is no S3 server")
        return
    with place_of(OBJECT, stage.servers) as place:
        assert place.database is not None
        broker = place.broker()
        setup = Setup(name="history", environment={"AWS_EC2_METADATA_DISABLED": "true"})
        try:
            with running(setup, place.directory) as session:
                for value_bytes in (1024, 100):
                    rows = stage.plan.history_bytes // value_bytes
                    shape = Shape(value_bytes=value_bytes, rows=rows, batch_bytes=_BATCH_BYTES)
                    served = Served(os.getpid(), broker.address, 0.0)
                    filled = fill(served, shape, place.directory)
                    consolidate(place.database, place.objects)
                    yield from _measured(stage, broker, session, filled, place.objects)
        finally:
            broker.kill()


def _measured(stage: Stage, broker: Broker, session: Session, filled: Filled, objects: str) -> Iterator[Row]:
    sources = _sources(broker.address, filled.shape.topic, objects)
    for name, source in sources.items():
        count = session.call(queries.count, source)
        if count != filled.rows:
            raise RuntimeError(f"{name}: {count:,} rows were read, and there are {filled.rows:,}")
    idle = _idle_share(broker)
    found: dict[str, list[_Measured]] = defaultdict(list)
    for _ in range(stage.plan.rounds):
        for name, source in sources.items():
            before = broker.cpu_seconds()
            seconds = session.call(queries.read, source)
            used = broker.cpu_seconds() - before - idle * seconds
            found[name].append(_Measured(seconds, max(used, 0.0)))
    megabytes = filled.megabytes()
    section = f"Spark reads history, {filled.shape.name}"
    rates = {name: tuple(megabytes / each.seconds for each in rounds) for name, rounds in found.items()}
    for name, rounds in rates.items():
        is_ours = name != BROKER
        yield Row(
            section=section,
            name=name,
            unit="MB/s",
            rounds=rounds,
            yardstick=rates[BROKER] if is_ours else (),
            yardstick_name=BROKER,
            least_ratio=1.0 if name == SIGNED else None,
        )
    for name, measured in found.items():
        yield Row(
            section=f"CPU of the broker, {filled.shape.name}",
            name=name,
            unit="s/GB",
            rounds=tuple(each.cpu / megabytes * 1000 for each in measured),
            most=MOST_CPU if name != BROKER else None,
        )


def _sources(address: str, topic: str, objects: str) -> dict[str, Source]:
    options = {"kafka.bootstrap.servers": address, "subscribe": topic}
    given = {
        SIGNED: options,
        OWN: options | {"objectStore": own_address(objects)},
        BROKER: options | {"readObjects": "false"},
    }
    return {name: Source(format="posthouse", options=each) for name, each in given.items()}


def own_address(objects: str) -> str:
    """The address of a broker's objects as pyarrow writes it."""
    parts = urlsplit(objects)
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    endpoint = urlsplit(given["endpoint"])
    return (
        f"s3://{parts.netloc}{parts.path}?region={given['region']}&scheme={endpoint.scheme}"
        f"&endpoint_override={endpoint.netloc}"
    )


def _idle_share(broker: Broker) -> float:
    """Seconds of CPU that a broker uses in each second in which it has nothing to do."""
    before = broker.cpu_seconds()
    time.sleep(_IDLE_SECONDS)
    return (broker.cpu_seconds() - before) / _IDLE_SECONDS
