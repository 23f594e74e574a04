"""One, two and three brokers on one storage, with the same clients: what they reach together, and what it
costs."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from bench.cluster.clusters import cluster_of, records_in, spread_of
from bench.cluster.contenders import INLINE, OBJECT, Contender, Place, place_of
from bench.cluster.cpu import CpuSeconds, Kind, used
from bench.cluster.database_use import lock_waits, use_of
from bench.cluster.model import Measured, predicted
from bench.cluster.plan import Stage
from bench.cluster.spread_loads import CONNECTIONS, Worked, consuming, producing
from bench.scale.asking import NotDone, connected, make_topics
from bench.scale.brokers import Broker
from bench.scale.figures import Row

COUNTS = (1, 2, 3)
PARTITIONS = 24
MOST_OFF_PERCENT = 25.0
FORESEEN = ((4, 2), (8, 4), (16, 8))
"""Cores and brokers."""
NOTE = f"""The same clients, {CONNECTIONS} connections in all, produce to {PARTITIONS} partitions as fast as
they are acknowledged, and then read everything; each goes to the broker that leads its partitions. Brokers,
PostgreSQL, the object store and the clients share the {os.cpu_count()} cores of this machine, so more brokers
cannot bring more than idle cores. *Waiting for locks* is the share of running statements that were found
waiting for one, every 20 ms.

Where one broker keeps all cores busy, several are slower: the same load comes in more and smaller groups,
which *transactions per MB* show, and each costs a call, an upload and turns of an event loop. Three brokers
miss their aim with 1 MB batches by what their CPU time for a MB grows.

**What more cores bring** is a prediction, and not measured. It takes the CPU time that a MB costs each kind
of process with one broker. If nothing waited, throughput would end where all cores are busy, or where each
broker keeps one core busy, because its event loop is one thread. One broker reaches a share of that, and the
prediction is that more brokers on more cores reach the same share. To check it, the same is predicted for two
and three brokers on this machine, and compared with what they reached. It knows nothing of disks, networks
and locks: PostgreSQL and the object store need disks that keep up."""
_WARM_UP_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    name: str
    batch_bytes: int
    contender: Contender


LOADS = (
    Load(name="1 MB batches, object", batch_bytes=1_000_000, contender=OBJECT),
    Load(name="16 KB batches, inline", batch_bytes=16_000, contender=INLINE),
)
_PRODUCE, _CONSUME = "Produce", "Consume"


@dataclass(frozen=True, slots=True)
class _Round:
    worked: Worked
    cpu: CpuSeconds

    @property
    def costs(self) -> dict[Kind, float]:
        return self.cpu.per(self.worked.bytes / 1e6)

    @property
    def busy_cores(self) -> float:
        return self.cpu.total / self.worked.seconds


class Brokers:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rounds: dict[tuple[str, str, int], list[_Round]] = defaultdict(list)
        """By what was done, load and number of brokers."""
        self._database: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        """By unit, load and number of brokers."""

    def rows(self) -> Iterator[Row]:
        for number in range(self._stage.plan.rounds):
            for load in LOADS:
                for at in range(len(COUNTS)):
                    count = COUNTS[(at + number) % len(COUNTS)]  # in turn, each of them first
                    self._stage.display.say(f"  round {number + 1}: {load.name}, {count} brokers")
                    os.sync()  # the disk of the object store does not write what others have left
                    with (
                        place_of(load.contender, self._stage.servers) as place,
                        cluster_of(place, count) as brokers,
                    ):
                        self._measure(load, place, brokers)
        for load in LOADS:
            for doing in (_PRODUCE, _CONSUME):
                yield from self._throughput(doing, load)
                yield from self._cpu(doing, load)
            yield from self._database_load(load)
            yield from self._predictions(load)

    def _measure(self, load: Load, place: Place, brokers: list[Broker]) -> None:
        seconds = self._stage.plan.seconds
        config = {"latency": load.contender.latency or ""}
        with connected(brokers[0].kafka) as connection:
            make_topics(connection, ["spread"], partitions=PARTITIONS, config=config)
        spread = spread_of(brokers[0], "spread")
        assert place.database is not None
        with producing(spread, load.batch_bytes, seconds, seconds * _WARM_UP_SHARE) as clients:
            before = use_of(place.database)
            with lock_waits(place.database) as waits:
                cpu = used(self._stage.servers, brokers)
                worked = clients.run()
                self._note(_PRODUCE, load, brokers, worked, cpu)
            use, megabytes = use_of(place.database).since(before), worked.bytes / 1e6
        if (found := records_in(brokers[0], spread)) != worked.records:
            words = "\n".join(each.last_words() for each in brokers)
            raise NotDone(f"{found} of {worked.records} records were acknowledged; brokers said:\n{words}")
        for unit, value in (
            ("transactions per MB", use.transactions / megabytes),
            ("bytes of WAL per MB", use.wal_bytes / megabytes),
            ("% waiting for locks", waits.percent),
        ):
            self._database[unit, load.name, len(brokers)].append(value)
        with consuming(spread, seconds) as clients:
            cpu = used(self._stage.servers, brokers)
            worked = clients.run()
            self._note(_CONSUME, load, brokers, worked, cpu)

    def _note(
        self, doing: str, load: Load, brokers: list[Broker], worked: Worked, before: CpuSeconds
    ) -> None:
        cpu = used(self._stage.servers, brokers, clients=worked.cpu_seconds).since(before)
        found = _Round(worked, cpu)
        costs = ", ".join(f"{kind} {each:.2f}" for kind, each in found.costs.items())
        self._stage.display.say(
            f"    {doing}: {worked.mb_per_second:,.0f} MB/s, {found.busy_cores:.2f} cores; ms/MB: {costs}"
        )
        self._rounds[doing, load.name, len(brokers)].append(found)

    def _throughput(self, doing: str, load: Load) -> Iterator[Row]:
        one = self._rates(doing, load, 1)
        for count in COUNTS:
            yield Row(
                section=f"{doing} with several brokers, {load.name}",
                name=_name(count),
                unit="MB/s",
                rounds=self._rates(doing, load, count),
                yardstick=() if count == 1 else one,
                yardstick_name=_name(1),
                least_ratio=1.0 if count == COUNTS[-1] else None,
            )

    def _rates(self, doing: str, load: Load, count: int) -> tuple[float, ...]:
        return tuple(each.worked.mb_per_second for each in self._rounds[doing, load.name, count])

    def _cpu(self, doing: str, load: Load) -> Iterator[Row]:
        section = f"{doing} with several brokers, CPU, {load.name}"
        for count in COUNTS:
            rounds = self._rounds[doing, load.name, count]
            for kind in Kind:
                costs = tuple(each.costs[kind] for each in rounds)
                yield Row(section=section, name=f"{_name(count)}: {kind}", unit="ms per MB", rounds=costs)
            busy = tuple(each.busy_cores for each in rounds)
            yield Row(section=section, name=f"{_name(count)}: all together", unit="cores busy", rounds=busy)

    def _database_load(self, load: Load) -> Iterator[Row]:
        for (unit, name, count), rounds in self._database.items():
            if name == load.name:
                yield Row(
                    section=f"Database load of producers, {load.name}",
                    name=_name(count),
                    unit=unit,
                    rounds=tuple(rounds),
                )

    def _predictions(self, load: Load) -> Iterator[Row]:
        section = f"What more cores bring to producers, {load.name}"
        cores = os.cpu_count() or 1
        ones = [
            Measured(mb_per_second=each.worked.mb_per_second, costs=each.costs, brokers=1, cores=cores)
            for each in self._rounds[_PRODUCE, load.name, 1]
        ]
        for count in COUNTS[1:]:
            expected = [predicted(one, brokers=count, cores=cores) for one in ones]
            found = self._rates(_PRODUCE, load, count)
            off = tuple(abs(each - real) / real * 100 for each, real in zip(expected, found, strict=True))
            name = f"{_name(count)} on {cores} cores"
            yield Row(section=section, name=f"{name}, predicted", unit="MB/s", rounds=tuple(expected))
            yield Row(
                section=section,
                name=f"{name}, off what was measured",
                unit="%",
                rounds=off,
                most=MOST_OFF_PERCENT,
            )
        for more_cores, count in FORESEEN:
            rates = tuple(predicted(one, brokers=count, cores=more_cores) for one in ones)
            name = f"{count} brokers on {more_cores} cores, predicted"
            yield Row(section=section, name=name, unit="MB/s", rounds=rates)
        for kind in Kind:
            rates = tuple(1000 / one.costs[kind] for one in ones if one.costs[kind])
            if rates:
                yield Row(
                    section=section, name=f"one core of {kind} is enough for", unit="MB/s", rounds=rates
                )


def _name(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"


def brokers(stage: Stage) -> Iterator[Row]:
    return Brokers(stage).rows()
