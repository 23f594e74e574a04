"""The same loads for the local engine and the shared storage, in turn."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.cluster import loads, machine_limits
from bench.cluster.contenders import (
    CONTENDERS,
    DIRECTORY,
    INLINE_STANDBY,
    LOCAL,
    OBJECT,
    OBJECT_STANDBY,
    Contender,
    Place,
    place_of,
)
from bench.cluster.cpu import CpuSeconds, used
from bench.cluster.database_use import use_of
from bench.cluster.machine_limits import CONSUME, PRODUCE, MachineLimits
from bench.cluster.plan import Stage
from bench.queues.pacing import Latencies
from bench.scale.brokers import Broker
from bench.scale.figures import Row

NOTE = f"""Contenders take turns, each with a new broker on an empty storage; ratios are taken within a round.
Four producers send requests of one batch, built beforehand, to 4 partitions, each with 4 MiB in flight.
*Consume* is one connection that reads all of it from the beginning, 2 MiB of each partition per request; the
broker has the newest 64 MiB in memory. *Half load* sends at half of the rate that this contender has just
reached, to a new broker on an empty storage, where no flood is being consolidated, and counts from the moment
at which a request was due. Transactions, write-ahead log and objects are counted while the broker is flooded;
they include housekeeping. Topics with `latency=inline` have objects,
too: batches of more than 512 KiB go there, and a backlog of more than four groups, so most of a flood.

{machine_limits.NOTE}"""

_LARGE, _SMALL = "1 MB batches", "16 KB batches"
_SIZES = {_LARGE: 1_000_000, _SMALL: 16_000}
_WARM_UP_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    section: str
    unit: str
    is_compared: bool = True
    """With the local engine."""
    most: dict[Contender, float] = field(default_factory=dict)
    least_ratio: dict[Contender, float] = field(default_factory=dict)


_LOW = "Acknowledgement at low load: one record at a time"
_INLINE_P50, _INLINE_P99, _OBJECT_P99 = {INLINE_STANDBY: 10.0}, {INLINE_STANDBY: 50.0}, 600.0
_BY_OBJECT = (OBJECT, DIRECTORY, OBJECT_STANDBY)
_OBJECT_MOST = dict.fromkeys(_BY_OBJECT, _OBJECT_P99)
_OBJECT_SHARE = dict.fromkeys(_BY_OBJECT, 0.6)


def _figures() -> Iterator[Figure]:
    for size in _SIZES:
        is_large = size == _LARGE
        share = _OBJECT_SHARE if is_large else {}
        yield Figure(section=f"{PRODUCE}, {size}", unit="MB/s", least_ratio=share)
        yield Figure(section=f"{CONSUME}, {size}", unit="MB/s", least_ratio=share)
    yield Figure(section=f"{_LOW}, p50", unit="ms", most=_INLINE_P50)
    yield Figure(section=f"{_LOW}, p99", unit="ms", most=_INLINE_P99 | _OBJECT_MOST)
    for size in _SIZES:
        yield Figure(section=_half(size, "p50"), unit="ms", most={} if size == _LARGE else _INLINE_P50)
        yield Figure(
            section=_half(size, "p99"), unit="ms", most=_OBJECT_MOST if size == _LARGE else _INLINE_P99
        )
    for size in _SIZES:
        yield Figure(section=f"Database transactions, {size}", unit="per MB", is_compared=False)
        yield Figure(section=f"Write-ahead log, {size}", unit="bytes per MB", is_compared=False)
        yield Figure(section=f"Objects, {size}", unit="per GB", is_compared=False)


def _half(size: str, share: str) -> str:
    return f"Acknowledgement at half load, {size}, {share}"


class Contest:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._found: dict[tuple[str, Contender], list[float]] = defaultdict(list)
        self._limits = MachineLimits(stage)

    def rows(self) -> Iterator[Row]:
        for number in range(self._stage.plan.rounds):
            self._stage.display.say(f"  round {number + 1}: the servers alone")
            self._limits.measure_ceilings()
            first = number % len(CONTENDERS)
            for contender in CONTENDERS[first:] + CONTENDERS[:first]:
                self._stage.display.say(f"  round {number + 1}: {contender.name}")
                with self._serving(contender) as (place, broker):
                    reached = self._measure(contender, place, broker)
                for size, rate in reached.items():
                    os.sync()  # what the flood has left is not written while others wait
                    with self._serving(contender) as (_, broker):
                        self._measure_half(contender, broker, size, rate / 2)
        for figure in _figures():
            for contender in CONTENDERS:
                if rounds := self._found.get((figure.section, contender)):
                    is_compared = figure.is_compared and contender is not LOCAL
                    yardstick = self._found[figure.section, LOCAL] if is_compared else ()
                    yield Row(
                        section=figure.section,
                        name=contender.name,
                        unit=figure.unit,
                        rounds=tuple(rounds),
                        most=figure.most.get(contender),
                        yardstick=tuple(yardstick),
                        yardstick_name=LOCAL.name,
                        least_ratio=figure.least_ratio.get(contender),
                    )
        yield from self._limits.rows(_LARGE)

    @contextmanager
    def _serving(self, contender: Contender) -> Iterator[tuple[Place, Broker]]:
        """A new broker on an empty storage."""
        with place_of(contender, self._stage.servers) as place:
            broker = place.broker()
            try:
                yield place, broker
            finally:
                broker.kill()

    def _measure(self, contender: Contender, place: Place, broker: Broker) -> dict[str, float]:
        """Requests per second that it has reached, by the size of batches."""
        reached: dict[str, float] = {}
        seconds = self._stage.plan.seconds
        low = loads.new_target(broker, "low", contender.latency)
        loads.one_at_a_time(low, seconds * _WARM_UP_SHARE)
        self._note_latencies(_LOW, contender, loads.one_at_a_time(low, seconds))
        for number, (size, batch_bytes) in enumerate(_SIZES.items()):
            target = loads.new_target(broker, f"flooded-{number}", contender.latency)
            requests = loads.requests_to(target, batch_bytes)
            loads.flood(target, requests, seconds * _WARM_UP_SHARE)
            before = None if place.database is None else use_of(place.database)
            cpu = self._cpu(broker)
            done = loads.flood(target, requests, seconds)
            self._note_rate(PRODUCE, size, contender, done.bytes, done.seconds, self._cpu(broker).since(cpu))
            if before is not None and place.database is not None:
                use, megabytes = use_of(place.database).since(before), done.bytes / 1e6
                self._note(f"Database transactions, {size}", contender, use.transactions / megabytes)
                self._note(f"Write-ahead log, {size}", contender, use.wal_bytes / megabytes)
                self._note(f"Objects, {size}", contender, use.objects / megabytes * 1000)
            cpu = self._cpu(broker)
            read = loads.consume(target, seconds)
            self._note_rate(CONSUME, size, contender, read.bytes, read.seconds, self._cpu(broker).since(cpu))
            reached[size] = len(done.latencies) / done.seconds
        return reached

    def _measure_half(self, contender: Contender, broker: Broker, size: str, rate: float) -> None:
        seconds = self._stage.plan.seconds
        target = loads.new_target(broker, "half", contender.latency)
        requests = loads.requests_to(target, _SIZES[size])
        loads.paced(target, requests, rate, seconds * _WARM_UP_SHARE)
        latencies = loads.paced(target, requests, rate, seconds)
        self._note_latencies(f"Acknowledgement at half load, {size}", contender, latencies)

    def _cpu(self, broker: Broker) -> CpuSeconds:
        return used(self._stage.servers, [broker], clients=time.process_time())

    def _note_rate(
        self, doing: str, size: str, contender: Contender, bytes: int, seconds: float, cpu: CpuSeconds
    ) -> None:
        self._note(f"{doing}, {size}", contender, bytes / seconds / 1e6)
        if size == _LARGE:
            self._limits.note(doing, contender, bytes, seconds, cpu)

    def _note_latencies(self, name: str, contender: Contender, found: Latencies) -> None:
        self._note(f"{name}, p50", contender, found.p50)
        self._note(f"{name}, p99", contender, found.p99)

    def _note(self, section: str, contender: Contender, value: float) -> None:
        self._stage.display.say(f"    {section}: {value:,.2f}")
        self._found[section, contender].append(value)


def contest(stage: Stage) -> Iterator[Row]:
    return Contest(stage).rows()
