"""The bounds of a partition, and the result of a read."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.storage.producers import AbortedTransaction


# Not frozen, though never changed: reads and scrapes make very many, and a frozen one takes twice as long.
@dataclass(slots=True, unsafe_hash=True)
class Bounds:
    """The readable part of a partition: start ≤ offset < end. All of it is durable.

    `stable` is the last stable offset: every transaction below it is decided. Without an open transaction it
    equals the end.
    """

    start: int
    end: int
    stable: int


@dataclass(slots=True)
class Slice:
    """The result of a read: whole batches, as stored, starting with the batch that holds the requested
    offset."""

    data: bytes | bytearray | memoryview
    bounds: Bounds
    aborted: Sequence[AbortedTransaction] = ()
    """Of a read with `stable_only`: the aborted transactions that have records in `data`, by the offset of
    their marker; others may be among them. They belong to these bytes: compaction may remove a transaction
    from the list as soon as its records are removed from the log."""


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    offset: int
    timestamp: int
