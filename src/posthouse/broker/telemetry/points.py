"""Metrics of clients, independent of the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from sys import getsizeof

Attribute = str | int | float | bool
_POINT_BYTES = 250
"""Estimated bytes of a point, without its texts and attributes."""


class MetricKind(StrEnum):
    GAUGE = "gauge"
    SUM = "sum"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    name: str
    kind: MetricKind
    value: int | float
    """For a histogram: the sum of the measurements."""
    count: int | None = None
    """For a histogram: the number of measurements."""
    unit: str = ""
    time_ms: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedMetrics:
    """One push of one client instance."""

    time_ms: int
    resource: Mapping[str, Attribute] = field(default_factory=dict)
    """Attributes common to all points."""
    points: tuple[MetricPoint, ...] = ()
    size: int = field(init=False, compare=False)
    """Estimated bytes of memory."""

    def __post_init__(self) -> None:
        points = sum(
            _POINT_BYTES + getsizeof(each.name) + getsizeof(each.unit) + _size(each.attributes)
            for each in self.points
        )
        object.__setattr__(self, "size", getsizeof(self.points) + points + _size(self.resource))


def _size(attributes: Mapping[str, Attribute]) -> int:
    texts = sum(getsizeof(name) + getsizeof(value) for name, value in attributes.items())
    return getsizeof(attributes) + texts
