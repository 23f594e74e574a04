"""What the broker knows of logs, brought up to date before a decision."""

from collections.abc import Sequence
from typing import Protocol

from posthouse.model.ids import PartitionId
from posthouse.storage.partition_view import PartitionView


class FreshView(PartitionView, Protocol):
    """Other brokers write to the logs, too: what is known of them may be old."""

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        """See `Storage.refresh`."""

    async def refresh_definitions(self) -> None:
        """See `Storage.refresh_definitions`. Settings of topics decide what is removed."""
