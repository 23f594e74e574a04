"""What one member takes of the records that its subscription has ready: those that match its filter, and of
an ordered subscription none behind a record that somebody still holds.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from posthouse.broker.subscriptions.batches import Found
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.ids import PartitionId


class Selected(NamedTuple):
    offsets: list[int]
    """That the member takes now, in order."""
    unwanted: Sequence[int] = ()
    """That no member of the subscription wants. They are settled."""
    first_wanted: int | None = None
    """The first that the member takes now or may take later."""


class Selection(Protocol):
    """Of one fetch."""

    @property
    def name(self) -> Hashable:
        """Members whose selections have the same want the same records."""

    def begin(self) -> None:
        """Another pass over the partitions begins: others have leased what was selected in the one before."""

    def select(self, partition: PartitionId, subscribed: SubscribedPartition, found: Found) -> Selected:
        """Of the ready records of one batch. Raises CorruptBatch."""

    def confirm(
        self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]
    ) -> list[int]:
        """Those of the selected records that may still be leased. Called right before they are: others may
        have leased records since."""

    def leased(self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]) -> None:
        """These are leased to the member now; those that are to be dead letters are among them."""

    def size(self, partition: PartitionId, offsets: Sequence[int]) -> int:
        """How many bytes these selected records have."""
