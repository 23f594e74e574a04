"""What the broker asks of any storage: local files, memory, and later an object store.

Nothing here says file. Offsets are known only when a commit returns, because a storage shared by
several brokers can assign them no earlier.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.arrivals import Arrived
from posthouse.storage.bounds import Slice, TimestampedOffset
from posthouse.storage.condition import StorageCondition
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.partition_view import PartitionView
from posthouse.storage.retention import KeptElsewhere, Needed, nothing_elsewhere, nothing_needed
from posthouse.storage.spaces import Space


class Storage(PartitionView, Protocol):
    async def open(self) -> None:
        """Recover what is stored. Must be called once, before anything else."""

    async def close(self) -> None:
        """Finish what was committed and let go. Later calls raise StorageClosed."""

    @property
    def cluster_id(self) -> str:
        """A name that this storage keeps for life."""

    @property
    def has_lost_commits(self) -> bool:
        """Whether commits before the last start were lost to damage.

        Starts report it until one of them calls `forget_lost_commits`.

        Their batches may be there all the same; what was put with them is not.
        """

    async def forget_lost_commits(self) -> None:
        """The broker has acted on the loss, durably: the next start need not do it again."""

    async def condition(self) -> StorageCondition:
        """Whether writes are taken now, and the room that is left for them."""

    @property
    def metrics(self) -> StorageMetrics:
        """What it counts of its own work, since it was made."""

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of batches that were committed and are not durable yet."""

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        """Durably and all or none. The caller has checked names and ids.

        `state` is stored with them, where damage to later commits does not reach. It has to be committed as
        well: an earlier commit may have put something else under the same key.
        """

    def adopt_topics(self, topics: Sequence[Topic]) -> None:
        """The same topics with other effective settings, because defaults have changed: nothing to store."""

    async def update_topic(self, topic: Topic) -> None:
        """Replace the definition with the same id: new settings, more partitions."""

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        """The records are gone for readers at once and their space is freed."""

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        """Make the operations durable together, or none of them. The only durable write of records.

        Commits take effect in the order of the calls. The result has one outcome per operation, in their
        order. A batch that its partition refuses has the refusal in its outcome, and the other operations
        count. If the batch is `required`, nothing counts and the future fails with OperationRefused. It fails
        with Unavailable when storage cannot keep the commit.

        Raises at once, and does nothing, where the call itself is wrong: UnknownPartition if an operation
        names a partition that is not there, StorageClosed before `open` and after `close`, StorageFenced
        after a failure that only a restart can mend.
        """

    def subscribe(self, arrived: Arrived) -> None:
        """Tell `arrived` of every batch that becomes readable from now on, in the order of commits.

        It is told after the futures of the commits are resolved, so that acknowledgements go out first.
        """

    async def barrier(self) -> None:
        """Return when everything that was committed before this call can be read.

        Raises Unavailable when storage cannot keep what waits to be written.
        """

    def take_state(self, space: Space, owner: bytes | None = None) -> dict[bytes, bytes]:
        """What was put into a space before this storage was opened, of one owner or of all of them.

        `owner_of` says whose a key is. Every value is given out once: there may be very many.
        """

    async def read(
        self,
        partition: PartitionId,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        stable_only: bool = False,
    ) -> Slice:
        """Batches from the one containing `offset` on, up to `max_bytes`.

        The first batch is returned whole even when it is larger, unless `at_least_one` is false. With
        `stable_only` nothing from the first undecided transaction on is returned.
        Raises OffsetOutOfRange outside the bounds; at the end the slice is empty. Damaged batches are passed
        over. Where only damage is left, a batch without records that `is_damage` stands for it, so that below
        the end there is always something. Raises DataDamaged where the records may come back: the file cannot
        be read, or another is in its place.
        """

    async def find_timestamp(self, partition: PartitionId, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is at or after `timestamp`."""

    async def find_max_timestamp(self, partition: PartitionId) -> TimestampedOffset | None:
        """The first record that carries the highest timestamp of the partition."""

    async def enforce_retention(
        self, archived: KeptElsewhere = nothing_elsewhere, needed: Needed = nothing_needed
    ) -> dict[PartitionId, int]:
        """Let go of what the topics' retention settings no longer keep, and that lies below `needed`.

        By their `retention.local.*` only whole closed segments below `archived` go, and nothing else.
        Returns the partitions that were held back by `needed`, with the start that they would have now.
        """

    async def compact(self, needed: Needed = nothing_needed) -> None:
        """Remove what compacted topics need not keep: records whose key has a later one. May take long.

        Nothing from `needed` on is touched.
        """
