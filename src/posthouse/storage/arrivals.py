"""Notification that committed batches have become readable."""

from collections.abc import Callable, Collection

from posthouse.model.ids import PartitionId

Arrived = Callable[[PartitionId, int], None]
"""Callback for one readable batch: its partition and its size in bytes. A size of 0 says that other
bounds of the partition moved. It must not raise."""

Awaited = Callable[[], Collection[PartitionId]]
"""The partitions that readers wait for now."""


def nothing_awaited() -> Collection[PartitionId]:
    return ()
