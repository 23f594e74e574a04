"""What the broker may know of partitions without waiting."""

from collections.abc import Mapping
from typing import Protocol

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.bounds import Bounds
from posthouse.storage.producers import AbortedTransaction, Producer


class PartitionView(Protocol):
    """The only synchronous reads of storage: what is known of partitions, without their records.

    A storage on local files is exact. One that is shared by several brokers may serve this from the cached
    tail of its logs: what it says was true, and this broker's own commits are in it when their futures are
    done. Every method raises UnknownPartition where the partition is not there.
    """

    @property
    def topics(self) -> Mapping[TopicId, Topic]: ...

    def bounds(self, partition: PartitionId) -> Bounds: ...

    def size(self, partition: PartitionId) -> int:
        """Bytes stored for the partition."""

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with a record from `start` to before `end`."""

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        """What the partition remembers of its producers, by their ids."""
