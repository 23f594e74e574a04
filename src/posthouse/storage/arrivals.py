"""How storage tells that batches have become readable, whoever committed them."""

from collections.abc import Callable

from posthouse.model.ids import PartitionId

Arrived = Callable[[PartitionId, int], None]
"""Told of one batch: its partition and its size in bytes. It must not raise."""
