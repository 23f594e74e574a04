"""Counts of measured values by size, in fixed buckets, as Prometheus shows them."""

from bisect import bisect_left

SECONDS: tuple[float, ...] = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds for times: from half a millisecond to half a minute."""
COUNTS: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds for numbers of things."""


class Histogram:
    """Written by one thread. Others may read: they see each number as it is or as it was a moment before."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        """`bounds` ascend; a value that equals a bound is in the bucket below it."""
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        """Not cumulative. The last one has the values above all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_many(self, value: float, times: int) -> None:
        """The same value, several times."""
        self.buckets[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def quantile(self, share: float) -> float | None:
        """About the value that this share of all values does not exceed; None if there are no values.

        Values are taken to be spread evenly in their bucket. Above all bounds the highest bound is returned.
        """
        wanted = share * self.count
        below, lower = 0, 0.0
        for bound, count in zip(self.bounds, self.buckets, strict=False):
            if count and below + count >= wanted:
                return lower + (bound - lower) * max(wanted - below, 0) / count
            below += count
            lower = bound
        return lower if self.buckets[-1] else None

    def cumulative(self) -> list[int]:
        """For each bound, and for infinity: how many values were not above it."""
        total, counts = 0, []
        for count in self.buckets:
            total += count
            counts.append(total)
        return counts
