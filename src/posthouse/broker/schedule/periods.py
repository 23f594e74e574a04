"""Periods of time: what is due in one of them waits in one log.

There are six levels, each 64 times as long as the one below: about a second, a minute, an hour, three days,
half a year, 35 years. Periods of a level lie side by side, so that the far future needs few logs and the near
one has short ones. Where much waits in a longer period, it is moved to periods of the next level below before
its time comes, and so on; so that what has to be looked at together is never much.
"""

from typing import NamedTuple

FAN_OUT_BITS = 6
FINEST_BITS = 10
"""2 to the power of so many milliseconds."""
COARSEST_BITS = FINEST_BITS + 5 * FAN_OUT_BITS
MOST_PARTS = (1 << FAN_OUT_BITS) + 1
"""More parts a period is never moved to."""

NEAR_PAST_MS = 60_000


class Period(NamedTuple):
    bits: int
    """Its length is 2 to the power of so many milliseconds."""
    start_ms: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + (1 << self.bits)

    @property
    def opens_ms(self) -> int:
        """When to begin with it: early enough to be ready at its start."""
        return self.start_ms - (1 << self.bits - 2)

    @property
    def is_finest(self) -> bool:
        return self.bits == FINEST_BITS

    def part(self, due_ms: int) -> "Period":
        """The period of the next level below that holds the time."""
        return _holding(due_ms, self.bits - FAN_OUT_BITS)


def period_for(due_ms: int, now_ms: int) -> Period:
    """Where something goes that comes in now: the shortest periods that reach so far.

    What was due long ago goes where the near past is, or it could need any number of periods. A longer
    period is not chosen once its time has come.
    """
    due_ms = max(due_ms, now_ms - NEAR_PAST_MS)
    bits = FINEST_BITS
    while bits < COARSEST_BITS and due_ms - now_ms >= 1 << bits + FAN_OUT_BITS:
        bits += FAN_OUT_BITS
    period = _holding(due_ms, bits)
    while not period.is_finest and period.opens_ms <= now_ms:
        period = period.part(due_ms)
    return period


def _holding(due_ms: int, bits: int) -> Period:
    return Period(bits, due_ms >> bits << bits)
