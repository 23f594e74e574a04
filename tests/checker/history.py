"""What the clients of a broker did and were told: the history that a workload records and `check` judges.

A history is a list of operations, in any order that keeps the operations of one process in theirs; `check`
sorts by time where it must. Times are integer nanoseconds of one monotonic clock, or of a simulated one.
Values are integers, each sent once to one partition, or published once to each queue.

On disk it is JSON lines. A line is an array: the name of the operation, then its fields in order. An outcome
is its number and a partition is a pair, so that a million operations are written and read in seconds.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Self, get_args

Partition = tuple[str, int]
"""A topic and the index of one of its partitions."""


class Outcome(IntEnum):
    OK = 0
    FAILED = 1
    """Surely not done."""
    UNKNOWN = 2
    """Timed out, or the connection was lost: it may have been done, or may yet be."""


@dataclass(slots=True)
class Send:
    """One record that a producer sent, with the offset that it was told if the outcome is OK."""

    process: int
    invoked: int
    completed: int
    partition: Partition
    value: int
    outcome: Outcome
    offset: int | None
    transaction: int | None = None


@dataclass(slots=True)
class End:
    """The end of a transaction. After an OK commit all of it must appear, after any abort nothing."""

    process: int
    invoked: int
    completed: int
    transaction: int
    commit: bool
    outcome: Outcome


@dataclass(slots=True)
class Assign:
    """From here on the process polls these partitions, from these positions; None is wherever it starts."""

    process: int
    at: int
    positions: dict[Partition, int | None]


@dataclass(slots=True)
class Poll:
    """What one poll returned, in the order in which it did: partition, offset, value."""

    process: int
    invoked: int
    completed: int
    committed_only: bool
    records: list[tuple[Partition, int, int]]


@dataclass(slots=True)
class CommitOffset:
    """A group's progress, stored at once or with the commit of a transaction."""

    process: int
    invoked: int
    completed: int
    group: str
    partition: Partition
    offset: int
    outcome: Outcome
    transaction: int | None = None


@dataclass(slots=True)
class CommittedOffset:
    """What the broker said is a group's progress; None is none yet."""

    process: int
    invoked: int
    completed: int
    group: str
    partition: Partition
    offset: int | None


@dataclass(slots=True)
class Watermarks:
    """Log start, last stable offset and high watermark as the broker said; `broker` is which of several."""

    process: int
    invoked: int
    completed: int
    partition: Partition
    start: int
    stable: int
    end: int
    broker: str = ""


@dataclass(slots=True)
class Fault:
    """Something that was done to the broker: a kill, a power cut, a pause."""

    at: int
    name: str


@dataclass(slots=True)
class Takeover:
    """Some time from `since` until `at` another broker took over. What only the one before had in its memory,
    such as deliveries of a share group that were not answered, is forgotten, though there may be no fault:
    the one before may have stopped in good order."""

    since: int
    at: int


@dataclass(slots=True)
class FinalRead:
    """All of a partition, as (offset, value), after all faults and all other operations are over.

    `start` is the log start; `end` is the high watermark, or the last stable offset if only what is committed
    was read. If there are several of one kind, the last counts.
    """

    partition: Partition
    committed_only: bool
    start: int
    end: int
    records: list[tuple[int, int]]


@dataclass(slots=True)
class Publish:
    """One message to one queue; OK is confirmed. A fan-out is one Publish for each queue."""

    process: int
    invoked: int
    completed: int
    queue: str
    value: int
    outcome: Outcome


@dataclass(slots=True)
class Subscribe:
    """A consumer begins on a new connection: what it is handed from here on was sent after this time."""

    process: int
    at: int
    queue: str


@dataclass(slots=True)
class Deliver:
    """A message that a consumer was handed."""

    process: int
    at: int
    queue: str
    value: int
    redelivered: bool


@dataclass(slots=True)
class Ack:
    """A message settled. OK: the broker said that this is durable. UNKNOWN: an acknowledgement was sent."""

    process: int
    invoked: int
    completed: int
    queue: str
    value: int
    outcome: Outcome


@dataclass(slots=True)
class Lease:
    """A message that a group's consumer was handed by a call of its own, and that is its alone for `lasts`
    nanoseconds from some moment of the call on. `queue` is what the group has of a topic. The messages of one
    `lane` come in the order of their offsets; without lanes it is None. `attempt` counts deliveries."""

    process: int
    invoked: int
    completed: int
    queue: str
    value: int
    partition: Partition
    offset: int
    lane: str | None
    attempt: int
    lasts: int


@dataclass(slots=True)
class ChangeLease:
    """The consumer asked for the message to be its alone for `lasts` nanoseconds from now on; with 0 it gave
    it back."""

    process: int
    invoked: int
    completed: int
    queue: str
    value: int
    lasts: int
    outcome: Outcome


@dataclass(slots=True)
class Bury:
    """A consumer settled a message by making it a dead letter."""

    process: int
    invoked: int
    completed: int
    queue: str
    value: int
    outcome: Outcome


@dataclass(slots=True)
class DeadLetters:
    """All that was among a group's dead letters when everything was over. A message becomes one of them
    instead of being delivered more often than that."""

    queue: str
    most_deliveries: int
    values: list[int]


@dataclass(slots=True)
class Drained:
    """All that a last consumer found in a queue when everything was over, in order."""

    queue: str
    values: list[int]


Operation = (
    Send
    | End
    | Assign
    | Poll
    | CommitOffset
    | CommittedOffset
    | Watermarks
    | Fault
    | Takeover
    | FinalRead
    | Publish
    | Subscribe
    | Deliver
    | Ack
    | Lease
    | ChangeLease
    | Bury
    | DeadLetters
    | Drained
)


class History(list[Operation]):
    """Operations in the order in which they completed."""

    def save(self, path: Path) -> None:
        with path.open("w", encoding="ascii") as file:
            file.writelines(map(to_line, self))

    @classmethod
    def load(cls, path: Path) -> Self:
        with path.open(encoding="ascii") as file:
            return cls.read(file)

    @classmethod
    def read(cls, lines: Iterable[str]) -> Self:
        return cls(map(from_line, lines))


def to_line(operation: Operation) -> str:
    """One line of a saved history, with its end; a process that may be killed can write as it goes."""
    kind = type(operation)
    fields = [getattr(operation, name) for name in kind.__slots__]
    if kind is Assign:
        fields[-1] = list(fields[-1].items())
    return _encode([kind.__name__, *fields]) + "\n"


def from_line(line: str) -> Operation:
    name, *fields = _decode(line)
    kind, conversions = _KINDS[name]
    for index, convert in conversions:
        fields[index] = convert(fields[index])
    return kind(*fields)


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().decode


def _polled(records: list[list[Any]]) -> list[tuple[Partition, int, int]]:
    return [((topic, index), offset, value) for (topic, index), offset, value in records]


def _positions(pairs: list[list[Any]]) -> dict[Partition, int | None]:
    return {(topic, index): offset for (topic, index), offset in pairs}


_CONVERSIONS: dict[tuple[type[Operation] | None, str], Callable[[Any], Any]] = {
    (None, "partition"): tuple,
    (None, "outcome"): tuple(Outcome).__getitem__,
    (Assign, "positions"): _positions,
    (Poll, "records"): _polled,
    (FinalRead, "records"): lambda records: list(map(tuple, records)),
}
"""What JSON does not keep, by the name of the field, in one class or in all."""


def _conversions(kind: type[Operation]) -> list[tuple[int, Callable[[Any], Any]]]:
    found = (
        (index, _CONVERSIONS.get((kind, name)) or _CONVERSIONS.get((None, name)))
        for index, name in enumerate(kind.__slots__)
    )
    return [(index, convert) for index, convert in found if convert is not None]


_KINDS: dict[str, tuple[Callable[..., Operation], list[tuple[int, Callable[[Any], Any]]]]] = {
    kind.__name__: (kind, _conversions(kind)) for kind in get_args(Operation)
}
