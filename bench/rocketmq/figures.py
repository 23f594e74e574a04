"""What was measured, as values: a figure for each peer and round, its aim, and whether that was reached.

Peers take turns, so a ratio is taken within each round; the middle one is reported with the smallest and the
largest.
"""

from dataclasses import dataclass, field

from bench.rocketmq.peers import POSTHOUSE, ROCKETMQ
from bench.spark.figures import Spread


@dataclass(slots=True, kw_only=True)
class Row:
    """One figure of both peers; rounds are added as they are measured."""

    section: str
    name: str
    unit: str
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """By peer."""
    is_less_better: bool = False
    least_ratio: float | None = None
    """How many times as good as upstream Posthouse should be."""
    most: float | None = None
    """What the figure of Posthouse should stay under."""

    def spread(self, peer: str) -> Spread | None:
        return Spread.of(self.rounds[peer]) if self.rounds.get(peer) else None

    @property
    def ratio(self) -> Spread | None:
        """How many times as good Posthouse is: above 1 is better, whatever is measured."""
        pairs = list(zip(self.rounds.get(POSTHOUSE, ()), self.rounds.get(ROCKETMQ, ()), strict=False))
        if not pairs or not all(own and theirs for own, theirs in pairs):
            return None
        return Spread.of([theirs / own if self.is_less_better else own / theirs for own, theirs in pairs])

    @property
    def aim(self) -> str:
        if self.least_ratio is not None:
            return f"≥ {self.least_ratio:g} × {ROCKETMQ}"
        return "" if self.most is None else f"≤ {self.most:g} {self.unit}"

    @property
    def is_reached(self) -> bool | None:
        """None: there is no aim, or it is not known."""
        own, ratio = self.spread(POSTHOUSE), self.ratio
        if self.least_ratio is not None:
            return None if ratio is None else ratio.middle >= self.least_ratio
        return None if self.most is None or own is None else own.middle <= self.most
