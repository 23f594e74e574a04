"""The bounds of a partition, and the result of a read."""

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    offset: int
    timestamp: int
