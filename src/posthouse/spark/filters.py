"""What a WHERE clause says about topics, partitions, offsets and times, so that less has to be read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from posthouse.spark.offsets import Place
from posthouse.spark.planning import OffsetRange

_COMPARISONS: dict[type[Filter], Callable[[Any], tuple[int | None, int | None]]] = {
    EqualTo: lambda value: (value, value + 1),
    GreaterThan: lambda value: (value + 1, None),
    GreaterThanOrEqual: lambda value: (value, None),
    LessThan: lambda value: (None, value),
    LessThanOrEqual: lambda value: (None, value + 1),
}
"""From a comparison with a whole number to the first number that fits and the one behind the last."""


@dataclass(slots=True)
class Restriction:
    """Everything that fits lies within. A filter is only `take`n if nothing else does."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    first: int = 0
    end: int | None = None
    first_ms: int | None = None
    """No record before the first one of this time is wanted."""
    end_ms: int | None = None
    """No record of this time or later is wanted."""
    _untaken: list[Filter] = field(default_factory=list)

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> "tuple[Restriction, list[Filter]]":
        """The second are those that Spark still has to apply."""
        restriction = cls()
        left = [each for each in filters if not restriction.take(each)]
        return restriction, left

    def take(self, each: Filter) -> bool:
        """Whether nothing is left for Spark to check."""
        column = getattr(each, "attribute", ("",))
        value = getattr(each, "value", None)
        if value is None or len(column) != 1:
            return False
        match column[0]:
            case "topic" if isinstance(each, EqualTo | In):
                self.topics = _narrowed(self.topics, each)
                return True
            case "partition" if isinstance(each, EqualTo | In):
                self.partitions = _narrowed(self.partitions, each)
                return True
            case "offset" if type(each) in _COMPARISONS:
                self._offsets(*_COMPARISONS[type(each)](value))
                return True
            case "timestamp" if type(each) in _COMPARISONS and isinstance(value, datetime):
                self._times(type(each), value)
        return False

    def applied(self, each: OffsetRange) -> OffsetRange:
        """What is left of a range; perhaps nothing."""
        if not self.wants(each.place):
            return OffsetRange(each.place, each.first, each.first)
        first = max(each.first, self.first)
        end = each.end if self.end is None else min(each.end, self.end)
        return OffsetRange(each.place, first, max(first, end))

    def wants(self, place: Place) -> bool:
        return (self.topics is None or place.topic in self.topics) and (
            self.partitions is None or place.partition in self.partitions
        )

    def _offsets(self, first: int | None, end: int | None) -> None:
        if first is not None:
            self.first = max(self.first, first)
        if end is not None:
            self.end = end if self.end is None else min(self.end, end)

    def _times(self, kind: type[Filter], value: datetime) -> None:
        """Whole milliseconds around the time, because the log has no finer ones."""
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        ms = int(moment.timestamp() * 1000)
        first, end = _COMPARISONS[kind](ms)
        if first is not None:
            first = min(first, ms)
            self.first_ms = first if self.first_ms is None else max(self.first_ms, first)
        if end is not None:
            self.end_ms = ms + 1 if self.end_ms is None else min(self.end_ms, ms + 1)


def _narrowed(known: set[Any] | None, each: EqualTo | In) -> set[Any]:
    values = set(each.value) if isinstance(each, In) else {each.value}
    return values if known is None else known & values
