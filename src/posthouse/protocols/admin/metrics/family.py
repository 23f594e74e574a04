"""One metric: what it is called and what it means. Its values are `samples`."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """Compared by identity: each is declared once."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


def counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(name=name, kind=MetricKind.COUNTER, meaning=meaning, labels=labels)


def gauge(name: str, meaning: str, *labels: str) -> Family:
    return Family(name=name, kind=MetricKind.GAUGE, meaning=meaning, labels=labels)


def histogram(name: str, meaning: str, *labels: str) -> Family:
    return Family(name=name, kind=MetricKind.HISTOGRAM, meaning=meaning, labels=labels)
