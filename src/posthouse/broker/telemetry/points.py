"""Metrics as clients measure them, in no protocol's terms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from sys import getsizeof

Attribute = str | int | float | bool
_POINT_BYTES = 250
"""Of a point with its numbers, without its texts and attributes."""


class MetricKind(StrEnum):
    GAUGE = "gauge"
    SUM = "sum"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    name: str
    kind: MetricKind
    value: int | float
    """Of a histogram: the sum of what was measured."""
    count: int | None = None
    """Of a histogram: how often it was measured."""
    unit: str = ""
    time_ms: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedMetrics:
    """What one client instance said at one time."""

    time_ms: int
    resource: Mapping[str, Attribute] = field(default_factory=dict)
    """What all points have in common."""
    points: tuple[MetricPoint, ...] = ()
    size: int = field(init=False, compare=False)
    """The bytes of memory that it takes, roughly."""

    def __post_init__(self) -> None:
        points = sum(
            _POINT_BYTES + getsizeof(each.name) + getsizeof(each.unit) + _size(each.attributes)
            for each in self.points
        )
        object.__setattr__(self, "size", getsizeof(self.points) + points + _size(self.resource))


def _size(attributes: Mapping[str, Attribute]) -> int:
    texts = sum(getsizeof(name) + getsizeof(value) for name, value in attributes.items())
    return getsizeof(attributes) + texts
