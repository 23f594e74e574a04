"""Synchronous access to the bounds and producer state of partitions."""

from collections.abc import Mapping
from typing import Protocol

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.bounds import Bounds
from posthouse.storage.producers import AbortedTransaction, Producer


class PartitionView(Protocol):
    """The only synchronous reads of storage: state of partitions, without their records.

    A storage on local files is exact. A storage that several brokers share may answer from a cached tail of
    its logs: the answer was true at some time, and includes this broker's own commits once their futures are
    done. Every method raises UnknownPartition if the partition does not exist.
    """

    @property
    def topics(self) -> Mapping[TopicId, Topic]: ...

    def bounds(self, partition: PartitionId) -> Bounds: ...

    def size(self, partition: PartitionId) -> int:
        """Bytes stored for the partition."""

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with a record at an offset from `start` to before `end`."""

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        """The producer state of the partition, by producer id."""
