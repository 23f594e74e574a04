"""One topic, read by Spark from objects and from brokers in turn: throughput, and CPU of the brokers."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from bench.scale.figures import Row
from bench.spark import queries
from bench.spark.queries import Source
from bench.spark.sessions import Session
from bench.spark.workload import Filled

BROKER, SIGNED, OWN = "broker", "signed addresses", "own credentials"
MOST_CPU = 0.1
_IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A topic whose records are all in segments, and who serves it."""

    filled: Filled
    bootstrap: str
    objects: str
    cpu_seconds: Callable[[], float]
    """Of all brokers."""


@dataclass(frozen=True, slots=True)
class _Read:
    seconds: float
    cpu: float


def reads(history: History, session: Session, where: str, rounds: int) -> Iterator[Row]:
    """Raises RuntimeError if not all rows are read."""
    filled = history.filled
    sources = _sources(history)
    for name, source in sources.items():
        count = session.call(queries.count, source)
        if count != filled.rows:
            raise RuntimeError(f"{where}, {name}: {count:,} rows were read, and there are {filled.rows:,}")
    idle = _idle_share(history.cpu_seconds)
    found: dict[str, list[_Read]] = defaultdict(list)
    for _ in range(rounds):
        for name, source in sources.items():
            before = history.cpu_seconds()
            seconds = session.call(queries.read, source)
            used = history.cpu_seconds() - before - idle * seconds
            found[name].append(_Read(seconds, max(used, 0.0)))
    megabytes = filled.megabytes()
    section = f"Spark reads history on {where}, {filled.shape.name}"
    rates = {name: tuple(megabytes / each.seconds for each in rounds) for name, rounds in found.items()}
    for name, of_rounds in rates.items():
        is_ours = name != BROKER
        yield Row(
            section=section,
            name=name,
            unit="MB/s",
            rounds=of_rounds,
            yardstick=rates[BROKER] if is_ours else (),
            yardstick_name=BROKER,
            least_ratio=1.0 if name == SIGNED else None,
        )
    for name, measured in found.items():
        yield Row(
            section=f"CPU of brokers while Spark reads on {where}, {filled.shape.name}",
            name=name,
            unit="s/GB",
            rounds=tuple(each.cpu / megabytes * 1000 for each in measured),
            most=MOST_CPU if name != BROKER else None,
        )


def _sources(history: History) -> dict[str, Source]:
    options = {"kafka.bootstrap.servers": history.bootstrap, "subscribe": history.filled.shape.topic}
    given = {
        SIGNED: options,
        OWN: options | {"objectStore": own_address(history.objects)},
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


def _idle_share(cpu_seconds: Callable[[], float]) -> float:
    """Seconds of CPU that brokers use in each second in which they have nothing to do."""
    before = cpu_seconds()
    time.sleep(_IDLE_SECONDS)
    return (cpu_seconds() - before) / _IDLE_SECONDS
