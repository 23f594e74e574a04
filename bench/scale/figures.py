"""What was measured, as values, and whether an aim was reached."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from bench.spark.figures import Spread


class Verdict(StrEnum):
    REACHED = "reached"
    MISSED = "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. Where it was measured more than once, the middle one counts."""

    section: str
    name: str
    unit: str
    rounds: tuple[float, ...]
    least: float | None = None
    """What it should reach."""
    most: float | None = None
    """What it should stay under."""
    exactly: float | None = None
    yardstick: tuple[float, ...] = ()
    """The same figure of what this one is compared with, round by round."""
    yardstick_name: str = ""
    least_ratio: float | None = None

    @property
    def spread(self) -> Spread:
        return Spread.of(self.rounds)

    @property
    def ratio(self) -> Spread | None:
        """To the yardstick, taken within each round."""
        if not self.yardstick:
            return None
        return Spread.of([own / other for own, other in zip(self.rounds, self.yardstick, strict=True)])

    def aims(self) -> list[tuple[str, Verdict]]:
        """Every aim in words, and what came of it."""
        told: list[tuple[str, Verdict]] = []
        if (least := self.least) is not None:
            told.append((f"≥ {least:g} {self.unit}", self._verdict(lambda middle: middle >= least)))
        if (most := self.most) is not None:
            told.append((f"< {most:g} {self.unit}", self._verdict(lambda middle: middle < most)))
        if (exactly := self.exactly) is not None:
            told.append((f"{exactly:g} {self.unit}", self._verdict(lambda middle: middle == exactly)))
        if (least_ratio := self.least_ratio) is not None and (ratio := self.ratio) is not None:
            is_met = ratio.middle >= least_ratio
            verdict = Verdict.REACHED if is_met else Verdict.MISSED
            told.append((f"≥ {least_ratio:g} × {self.yardstick_name}", verdict))
        return told

    def _verdict(self, is_met: Callable[[float], bool]) -> Verdict:
        return Verdict.REACHED if is_met(self.spread.middle) else Verdict.MISSED
