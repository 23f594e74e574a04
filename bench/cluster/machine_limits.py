"""How near a contender comes to what this machine allows: CPU by kind, and the object store alone."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from bench.cluster import ceilings
from bench.cluster.contenders import DIRECTORY, LOCAL, OBJECT, OBJECT_STANDBY, Contender
from bench.cluster.cpu import CpuSeconds, Kind
from bench.cluster.plan import Stage
from bench.scale.figures import Row

PRODUCE, CONSUME = "Produce", "Consume"
NOTE = f"""{ceilings.NOTE} *Busy cores* is the rate at which all cores would always be busy, with the CPU time
that this contender needs for a MB: brokers, PostgreSQL, the object store and clients together. On this
machine nothing can be faster than either."""
_MEASURED = (LOCAL, OBJECT, DIRECTORY, OBJECT_STANDBY)
_CEILINGS = {PRODUCE: "put", CONSUME: "read"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    mb_per_second: float
    costs: dict[Kind, float]
    """Milliseconds of CPU for each MB."""

    @property
    def with_busy_cores(self) -> float:
        """MB/s."""
        return (os.cpu_count() or 1) * 1000 / sum(self.costs.values())


class MachineLimits:
    def __init__(self, stage: Stage) -> None:
        self._ceilings = ceilings.Ceilings(stage)
        self._reached: dict[tuple[str, Contender], list[Reached]] = defaultdict(list)

    def measure_ceilings(self) -> None:
        self._ceilings.measure()

    def note(self, doing: str, contender: Contender, bytes: int, seconds: float, cpu: CpuSeconds) -> None:
        megabytes = bytes / 1e6
        reached = Reached(mb_per_second=megabytes / seconds, costs=cpu.per(megabytes))
        self._reached[doing, contender].append(reached)

    def rows(self, size: str) -> Iterator[Row]:
        yield from self._ceilings.rows()
        for doing in (PRODUCE, CONSUME):
            section = f"{doing}, {size}, beside what this machine allows"
            for contender in _MEASURED:
                if rounds := self._reached.get((doing, contender)):
                    yield from self._of(section, doing, contender, rounds)

    def _of(self, section: str, doing: str, contender: Contender, rounds: list[Reached]) -> Iterator[Row]:
        rates = tuple(each.mb_per_second for each in rounds)
        if contender is not LOCAL:
            yield Row(
                section=section,
                name=f"{contender.name}, beside the object store alone",
                unit="MB/s",
                rounds=rates,
                yardstick=self._ceilings.of_objects(_CEILINGS[doing], in_directory=contender.in_directory),
                yardstick_name="the object store alone",
            )
        yield Row(
            section=section,
            name=f"{contender.name}, beside busy cores",
            unit="MB/s",
            rounds=rates,
            yardstick=tuple(each.with_busy_cores for each in rounds),
            yardstick_name="busy cores",
        )
        for kind in Kind:
            costs = tuple(each.costs[kind] for each in rounds)
            if any(costs):
                yield Row(section=section, name=f"{contender.name}: {kind}", unit="ms per MB", rounds=costs)
