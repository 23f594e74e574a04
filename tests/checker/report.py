"""What a check found: anomalies by kind, and a table of them for people."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """Every way in which a history can break a broker's promises; the check that finds it says how."""

    LOST_WRITE = "lost write"
    UNSEEN = "unseen after drain"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSET = "inconsistent offset"
    PHANTOM = "phantom record"
    DIRTY_VISIBILITY = "dirty visibility"
    ABORTED_READ = "aborted read"
    PRECOMMITTED_READ = "precommitted read"
    TORN_TRANSACTION = "torn transaction"
    POLL_SKIP = "poll skip"
    NON_MONOTONIC_POLL = "non-monotonic poll"
    NON_MONOTONIC_SEND = "non-monotonic send"
    REAL_TIME_ORDER = "real-time order"
    COMMITTED_OFFSET = "committed offset went back"
    HIGH_WATERMARK = "high watermark went back"
    STABLE_OFFSET = "last stable offset went back"
    LOG_START = "log start went back"
    LOST_MESSAGE = "lost message"
    ACK_CAME_BACK = "ack came back"
    QUEUE_ORDER = "queue order"
    UNMARKED_REDELIVERY = "unmarked redelivery"
    PHANTOM_MESSAGE = "phantom message"
    REFUSED_MESSAGE = "refused message"
    SHARED_LEASE = "shared lease"
    LANE_ORDER = "lane order"
    TOO_MANY_DELIVERIES = "too many deliveries"
    EARLY_DEATH = "early death"
    LOST_DEAD_LETTER = "lost dead letter"


WITHOUT_DURABILITY = frozenset(
    {
        Kind.DUPLICATE,
        Kind.PHANTOM,
        Kind.ABORTED_READ,
        Kind.PRECOMMITTED_READ,
        Kind.QUEUE_ORDER,
        Kind.UNMARKED_REDELIVERY,
        Kind.PHANTOM_MESSAGE,
        Kind.REFUSED_MESSAGE,
        Kind.SHARED_LEASE,
        Kind.LANE_ORDER,
        Kind.TOO_MANY_DELIVERIES,
        Kind.EARLY_DEATH,
    }
)
"""What stays forbidden where a crash may lose what was acknowledged: a loss can cause all the others."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    text: str
    values: tuple[int, ...] = ()
    """The values of the records or messages that it is about, if it is about any."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(slots=True)
class Report:
    anomalies: list[Anomaly]
    counts: Counter[str]
    """How many operations of each class the history has."""
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        return not self.anomalies

    @property
    def kinds(self) -> set[Kind]:
        return {each.kind for each in self.anomalies}

    def __str__(self) -> str:
        lines = [f"{self.counts.total():,} operations: {_listed(self.counts)}"]
        if self.faults:
            lines.append(f"{self.faults.total():,} faults: {_listed(self.faults)}")
        lines += self._table() if self.anomalies else ["no anomalies"]
        return "\n".join(lines)

    def _table(self, examples: int = 3) -> Iterable[str]:
        for kind in Kind:
            found = [each for each in self.anomalies if each.kind is kind]
            if found:
                yield f"{kind:<28} {len(found):>7,}  {found[0].text}"
                yield from (f"{'':<37} {each.text}" for each in found[1:examples])


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
