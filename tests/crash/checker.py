"""What must be true of a log after a crash, checked against what its clients were told before it."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Place:
    partition: int
    offset: int


@dataclass(slots=True)
class History:
    """What producers and consumers saw. Values are unique: '<producer>:<number>', numbers rising."""

    sent: set[str] = field(default_factory=set)
    acknowledged: dict[str, Place] = field(default_factory=dict)
    seen: dict[Place, str] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)

    def acknowledge(self, value: str, place: Place) -> None:
        if value in self.acknowledged:
            self.anomalies.append(f"{value} was acknowledged twice")
        self.acknowledged[value] = place

    def see(self, place: Place, value: str) -> None:
        before = self.seen.setdefault(place, value)
        if before != value:
            self.anomalies.append(f"{place} was {before} and then {value}")


def check(history: History, final: Iterable[tuple[Place, str]]) -> list[str]:
    """Every way in which the final log breaks a promise; none is the only good answer."""
    log = dict(final)
    found = list(history.anomalies)
    found += _acknowledged_and_lost(history, log)
    found += _seen_and_gone(history, log)
    found += _duplicates(log)
    found += _out_of_order(log)
    found += [
        f"{value} at {place} was never sent" for place, value in log.items() if value not in history.sent
    ]
    return found


def _acknowledged_and_lost(history: History, log: dict[Place, str]) -> list[str]:
    return [
        f"{value} was acknowledged at {place}, where there is {log.get(place, 'nothing')}"
        for value, place in history.acknowledged.items()
        if log.get(place) != value
    ]


def _seen_and_gone(history: History, log: dict[Place, str]) -> list[str]:
    return [
        f"{value} was seen at {place}, where there is {log.get(place, 'nothing')}"
        for place, value in history.seen.items()
        if log.get(place) != value
    ]


def _duplicates(log: dict[Place, str]) -> list[str]:
    return [f"{value} is there {count} times" for value, count in Counter(log.values()).items() if count > 1]


def _out_of_order(log: dict[Place, str]) -> list[str]:
    """Within a partition, what one producer sent earlier comes earlier."""
    found = []
    latest: defaultdict[tuple[int, str], int] = defaultdict(lambda: -1)
    for place, value in sorted(log.items()):
        producer, _, number = value.partition(":")
        key = (place.partition, producer)
        if int(number) <= latest[key]:
            found.append(f"{value} at {place} comes after {producer}:{latest[key]}")
        latest[key] = max(latest[key], int(number))
    return found
