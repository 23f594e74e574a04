"""Callbacks that retention uses before it removes records."""

from collections.abc import Callable

from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Bounds

KeptElsewhere = Callable[[PartitionId], int]
"""The offset below which all records of a partition also have a copy outside of the broker."""


def nothing_elsewhere(partition: PartitionId) -> int:
    return 0


Needed = Callable[[PartitionId], int | None]
"""The lowest offset of a partition that is still needed, None if no offset is."""


def nothing_needed(partition: PartitionId) -> int | None:
    return None


def checked_archived(archived: int, bounds: Bounds) -> int:
    """`archived`, or 0 if it cannot be true: undecided or future records cannot have been archived."""
    return archived if archived <= bounds.stable else 0
