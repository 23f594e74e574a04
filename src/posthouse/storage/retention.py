"""What retention asks the broker before it removes records."""

from collections.abc import Callable

from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Bounds

KeptElsewhere = Callable[[PartitionId], int]
"""Below which offset everything of a partition is also kept outside of the broker."""


def nothing_elsewhere(partition: PartitionId) -> int:
    return 0


Needed = Callable[[PartitionId], int | None]
"""The lowest offset of a partition that somebody still needs, None where nobody needs anything of it."""


def nothing_needed(partition: PartitionId) -> int | None:
    return None


def checked_archived(archived: int, bounds: Bounds) -> int:
    """`archived`, or 0 where it cannot be true: nobody can have kept what is undecided or yet to come."""
    return archived if archived <= bounds.stable else 0
