"""What was measured, as values: times of several rounds, and the lines of the report made of them.

Contenders take turns, so the rounds of two of them were measured side by side: a ratio is taken within each
round, and the middle one is reported with the smallest and the largest.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of several measurements, and how far they lie apart."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    spread: Spread
    to: str
    aim: float | None = None
    """What the middle should reach."""

    @property
    def is_met(self) -> bool | None:
        """None: there is no aim."""
        return None if self.aim is None else self.spread.middle >= self.aim


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One contender in one table."""

    section: str
    name: str
    value: Spread
    unit: str
    megabytes: float | None = None
    """MB/s at the middle, where bytes are what it is about."""
    ratios: tuple[Ratio, ...] = ()
    is_yardstick: bool = False
    """Not ours: what we are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A contender that could not take part, and why."""

    section: str
    name: str
    reason: str
    open_aims: tuple[str, ...] = ()
    """What others should have reached against it, which nobody knows now."""


Entry = Line | Missing


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one contender, round by round."""

    seconds: tuple[float, ...]

    def rate(self, amount: float) -> Spread:
        return Spread.of([amount / each for each in self.seconds])

    def faster_than(self, other: "Times") -> Spread:
        """How many times as fast, round by round."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        return Spread.of([theirs / own for own, theirs in pairs])
