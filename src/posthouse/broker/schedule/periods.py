"""Periods of time: the entries that are due in one period wait in one log.

There are six levels, each 64 times as long as the one below: about a second, a minute, an hour, three days,
half a year, 35 years. Periods of a level are adjacent: the far future needs few logs, and the near future has
short ones. If many entries wait in a longer period, they are moved to periods of the next level below before
their time, and so on. So the number of entries to load together stays small.
"""

from typing import NamedTuple

FAN_OUT_BITS = 6
FINEST_BITS = 10
"""The length is 2 to this power, in milliseconds."""
COARSEST_BITS = FINEST_BITS + 5 * FAN_OUT_BITS
MOST_PARTS = (1 << FAN_OUT_BITS) + 1
"""The maximum number of parts that a period is moved to."""

NEAR_PAST_MS = 60_000


class Period(NamedTuple):
    bits: int
    """Its length is 2 to this power, in milliseconds."""
    start_ms: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + (1 << self.bits)

    @property
    def opens_ms(self) -> int:
        """When to start loading it: early enough to be ready at its start."""
        return self.start_ms - (1 << self.bits - 2)

    @property
    def is_finest(self) -> bool:
        return self.bits == FINEST_BITS

    def part(self, due_ms: int) -> "Period":
        """The period of the next level below that holds the time."""
        return _holding(due_ms, self.bits - FAN_OUT_BITS)


def period_for(due_ms: int, now_ms: int) -> Period:
    """The period of a new entry: the shortest one that reaches its due time.

    An entry that was due long ago goes to a recent period, to bound the number of periods. A longer period is
    not chosen once it has begun.
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
