"""What was measured, by contender and round. Relays take turns, so ratios are taken within each round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.spark.figures import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    """In the figures of a round."""
    title: str
    unit: str
    is_less_better: bool = True


FIGURES: Final = (
    Figure(name="rows/s", title="rows that wait", unit="rows/s", is_less_better=False),
    Figure(name="p50", title="commit to consumer, p50", unit="ms"),
    Figure(name="p99", title="commit to consumer, p99", unit="ms"),
    Figure(name="relay CPU, waiting", title="relay, rows that wait", unit="µs/row"),
    Figure(name="relay CPU, single", title="relay, single rows", unit="µs/row"),
    Figure(name="database CPU, waiting", title="PostgreSQL, rows that wait", unit="µs/row"),
    Figure(name="database CPU, single", title="PostgreSQL, single rows", unit="µs/row"),
    Figure(name="broker CPU, waiting", title="broker, rows that wait", unit="µs/row"),
    Figure(name="broker CPU, single", title="broker, single rows", unit="µs/row"),
)
UNWANTED: Final = ("repeated", "out of order")


@dataclass(slots=True)
class Results:
    rounds: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    """By contender."""
    missing: dict[str, str] = field(default_factory=dict)
    """By contender: why there is nothing, or not of all rounds."""

    def spread(self, contender: str, figure: Figure) -> Spread | None:
        rounds = self.rounds.get(contender)
        return Spread.of([each[figure.name] for each in rounds]) if rounds else None

    def ratio(self, contender: str, other: str, figure: Figure) -> Spread | None:
        """How many times as good `contender` is: above 1 is better, whatever is measured."""
        pairs = zip(self._values(contender, figure), self._values(other, figure), strict=False)
        ratios = [
            (theirs / own if figure.is_less_better else own / theirs)
            for own, theirs in pairs
            if own and theirs
        ]
        return Spread.of(ratios) if ratios else None

    def unwanted(self, contender: str, name: str) -> int:
        """Messages in all rounds."""
        return int(sum(each[name] for each in self.rounds.get(contender, ())))

    def _values(self, contender: str, figure: Figure) -> Sequence[float]:
        return [each[figure.name] for each in self.rounds.get(contender, ())]
