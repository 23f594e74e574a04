"""What was measured, as values: a figure for each peer and round, and whether an aim was reached.

Peers take turns, so a ratio is taken within each round; the middle one is reported with the smallest and the
largest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bench.queues.peers import POSTHOUSE, RABBITMQ
from bench.spark.figures import Spread

AHEAD = 1.0
"""What the ratio to RabbitMQ should exceed."""


class Verdict(StrEnum):
    REACHED = "reached"
    MISSED = "missed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of all peers."""

    section: str
    name: str
    unit: str
    rounds: Mapping[str, tuple[float, ...]]
    """By peer."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """By peer: why there is no figure."""
    is_less_better: bool = False
    is_ahead_the_aim: bool = False
    """Posthouse should be ahead of RabbitMQ here."""
    least: float | None = None
    """What the figure of Posthouse should reach."""
    most: float | None = None
    """What it should stay under."""

    def spread(self, peer: str) -> Spread | None:
        return Spread.of(self.rounds[peer]) if self.rounds.get(peer) else None

    def ratio(self, other: str) -> Spread | None:
        """How many times as good Posthouse is, round by round: above 1 is better, whatever is measured."""
        own, theirs = self.rounds.get(POSTHOUSE), self.rounds.get(other)
        if not own or not theirs:
            return None
        pairs = [(a, b) if not self.is_less_better else (b, a) for a, b in zip(own, theirs, strict=False)]
        return Spread.of([better / other for better, other in pairs])

    def aims(self) -> list[tuple[str, Verdict]]:
        """Every aim in words, and what came of it."""
        told: list[tuple[str, Verdict]] = []
        own = self.spread(POSTHOUSE)
        if self.is_ahead_the_aim:
            ratio = self.ratio(RABBITMQ)
            told.append((f"> {AHEAD:.2f} × {RABBITMQ}", _verdict(ratio, lambda middle: middle > AHEAD)))
        if (least := self.least) is not None:
            told.append((f"≥ {least:g} {self.unit}", _verdict(own, lambda middle: middle >= least)))
        if (most := self.most) is not None:
            told.append((f"< {most:g} {self.unit}", _verdict(own, lambda middle: middle < most)))
        return told


def _verdict(spread: Spread | None, is_met: Callable[[float], bool]) -> Verdict:
    if spread is None:
        return Verdict.OPEN
    return Verdict.REACHED if is_met(spread.middle) else Verdict.MISSED
