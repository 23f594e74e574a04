"""Where a partition begins and ends, and what a read returns of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The readable part of a partition: start ≤ offset < end. All of it is durable.

    Below `stable` every transaction is decided; it is the end where none is open.
    """

    start: int
    end: int
    stable: int


@dataclass(slots=True)
class Slice:
    """Whole batches, as stored, from the one that holds the offset asked for."""

    data: bytes | bytearray | memoryview
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    offset: int
    timestamp: int
