"""Exponential back-off with jitter.

The n-th delay is drawn between half and the whole of `first * 2 ** (n - 1)`, which is `longest` at most. So
messages that failed together do not come back together.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

_MOST_DOUBLINGS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    first: float
    longest: float

    def longest_after(self, attempts: int) -> float:
        """Without jitter, after so many failures."""
        return min(self.first * 2.0 ** min(attempts - 1, _MOST_DOUBLINGS), self.longest)

    def after(self, attempts: int, random: Random) -> float:
        return self.longest_after(attempts) * random.uniform(0.5, 1.0)
