"""Notification that committed batches have become readable."""

from collections.abc import Callable

from posthouse.model.ids import PartitionId

Arrived = Callable[[PartitionId, int], None]
"""Callback for one readable batch: its partition and its size in bytes. It must not raise."""
