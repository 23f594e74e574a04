"""The storage interface that the broker needs: local files, memory, or PostgreSQL and an object store.

The interface mentions no files. Offsets are known only when a commit returns, because a storage that several
brokers share cannot assign them earlier.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import Scope
from posthouse.model.topics import Topic
from posthouse.storage.arrivals import Arrived, Awaited, nothing_awaited
from posthouse.storage.bounds import Slice, TimestampedOffset
from posthouse.storage.condition import StorageCondition
from posthouse.storage.definition_changes import DefinitionsChanged
from posthouse.storage.log_scopes import LogScopes
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.partition_view import PartitionView
from posthouse.storage.retention import KeptElsewhere, Needed, nothing_elsewhere, nothing_needed
from posthouse.storage.segment_objects import SegmentObjects
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space


class Storage(PartitionView, Protocol):
    async def open(self) -> None:
        """Recover the stored data. Must be called once, before any other method."""

    async def close(self) -> None:
        """Finish pending commits and release all resources. Later calls raise StorageClosed."""

    @property
    def cluster_id(self) -> str:
        """The id of this storage. It never changes."""

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may write to the same logs. To topics with a `scope` only the broker does
        that has taken it (`take_namespaces`)."""

    @property
    def shared_state(self) -> SharedState | None:
        """None unless other brokers may change state: see `shared_state`."""

    @property
    def log_scopes(self) -> LogScopes | None:
        """None unless housekeeping of logs is divided among several brokers: see `log_scopes`."""

    @property
    def segment_objects(self) -> SegmentObjects | None:
        """None unless clients can read records from an object store: see `segment_objects`."""

    @property
    def has_lost_commits(self) -> bool:
        """Whether commits before the last start were lost to damage.

        Every start reports the loss until the broker calls `forget_lost_commits`. Batches of lost commits may
        still be readable; the state that was put with them is lost.
        """

    async def forget_lost_commits(self) -> None:
        """Clear `has_lost_commits`: the broker has handled the loss durably, so the next start need not."""

    async def coordinate(self) -> None:
        """This broker is the coordinator from now on: load what only that one knows. No-op if it was before,
        and in a storage that is not shared. Raises Unavailable; then it is not the coordinator."""

    @property
    def awaits_scopes(self) -> bool:
        """Whether what was imported belongs to no scopes of namespaces yet. Until the coordinator has called
        `assign_scopes`, no other broker serves."""

    async def assign_scopes(self, scopes: Mapping[str, Scope]) -> None:
        """The scopes of all topics that feed queues, whether they exist or not, and of the broker's own
        topics, by name. By the coordinator, after an import. Raises Unavailable."""

    async def take_namespaces(self, scope: Scope) -> None:
        """From now on this broker changes the definitions of the scope, which it holds. The bounds of its
        topics are up to date on return, and so are the definitions. No-op in a storage that is not shared.
        Raises Unavailable; then it does not."""

    def serve_namespaces(self, scope: Scope) -> None:
        """From now on this broker also writes to the topics of the scope: it knows which queues they feed."""

    def leave_namespaces(self, scope: Scope) -> None:
        """The reverse of both: what they allow is refused from the call on. Commits before may still be under
        way: see `barrier`."""

    async def stop_coordinating(self) -> None:
        """The reverse of `coordinate`: what only the coordinator may do is refused from the call on. Returns
        when all commits before are done. Raises Unavailable if one of them fails."""

    async def condition(self) -> StorageCondition:
        """Whether writes are taken now, and the room that is left for them."""

    @property
    def metrics(self) -> StorageMetrics:
        """What it counts of its own work, since it was made."""

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of batches that were committed and are not durable yet."""

    @property
    def is_behind(self) -> bool:
        """Whether these are so many that more would only add latency: a new commit waits for all of them."""

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        """Create topics durably, all or none. The caller has checked names and ids.

        In a shared storage any broker does it. Raises TopicExists if another one has created a topic of that
        name meanwhile. A topic whose name was announced (`announce_sources`) gets that scope.

        `state` is stored with the topics, where damage to later commits cannot reach it. The caller must also
        commit it, because an earlier commit may have put another value under the same key.
        """

    def adopt_topics(self, topics: Sequence[Topic]) -> None:
        """Change the effective settings of topics after their defaults have changed. Nothing is stored."""

    async def update_topic(self, topic: Topic) -> None:
        """Replace the definition of the topic with the same id: new settings, more partitions. In a shared
        storage the coordinator does it, or for an internal topic the broker that has taken its scope. Raises
        UnknownTopic if another broker has deleted it."""

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        """Delete topics. Readers lose access to the records at once, then their space is freed."""

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        """Make the operations durable together, or none of them. The only durable write of records.

        Commits take effect in the order of the calls. The result has one outcome per operation, in the same
        order. If a partition refuses a batch, its outcome holds the refusal and the other operations take
        effect. If the refused batch is `required`, no operation takes effect and the future fails with
        OperationRefused. The future fails with Unavailable when storage cannot write the commit.

        Invalid calls raise immediately and have no effect: UnknownPartition if an operation names a partition
        that does not exist, StorageClosed before `open` and after `close`, StorageFenced after a failure that
        needs a restart.
        """

    def subscribe(self, arrived: Arrived, awaited: Awaited = nothing_awaited) -> None:
        """Call `arrived` for every batch that becomes readable from now on, in commit order.

        The call comes after the futures of the commits are resolved, so that acknowledgements are sent first.
        Batches that another broker wrote are noticed soon in the partitions that are `awaited`, and may go
        unnoticed in others.
        """

    def subscribe_to_others(self, arrived: Arrived) -> None:
        """As `subscribe`, for batches that other brokers have written and no others."""

    def watch(self, partitions: Iterable[PartitionId]) -> None:
        """A reader has read these partitions, does not wait for them, and will ask again soon. So batches
        that another broker writes are noticed soon, as in partitions that are awaited."""

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        """Bring the bounds of these partitions up to date with what other brokers have written before this
        call, and with `with_producers` their producers, too: there may be thousands.

        Raises UnknownPartition and Unavailable.
        """

    def subscribe_definitions(self, changed: DefinitionsChanged) -> None:
        """Call `changed` when another broker has changed topics or cluster-wide state, and when a change of
        topics that failed here turns out to count."""

    async def refresh_definitions(self) -> None:
        """Bring topics and cluster-wide state up to date with what other brokers have changed before this
        call, and topics with changes of this broker whose outcome was not known. To be awaited before
        something is called unknown. Raises Unavailable.
        """

    async def settle_definitions(self) -> None:
        """Bring topics up to date with changes of this broker whose outcome was not known: mostly there are
        none, and storage is not asked. To be awaited before a topic is changed. Raises Unavailable."""

    async def announce_sources(self, names: Collection[str], scope: Scope) -> list[str]:
        """From now on a topic of one of these names that any broker creates belongs to the scope, because it
        feeds queues, until the name is removed from `Space.SOURCES`. Returns those for which there is a topic
        without a scope. By the broker that has taken the scope. Raises Unavailable."""

    async def give_topics(self, topics: Sequence[Topic], scope: Scope) -> None:
        """Existing topics belong to the scope from now on, unless they belong to one already. Durable on
        return. By the broker that has taken the scope. Raises Unavailable."""

    async def barrier(self) -> None:
        """Return when everything that was committed before this call is readable.

        Raises Unavailable when storage cannot write the pending commits.
        """

    def take_state(self, space: Space, owner: bytes | None = None) -> dict[bytes, bytes]:
        """The state of a space as of `open` or `coordinate`: of one owner, or of all owners.

        `owner_of` derives the owner from a key. Each value is returned only once, because a space may hold
        millions.
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
        """Read batches from the one that contains `offset` on, up to `max_bytes`.

        The first batch is returned whole even if it is larger, unless `at_least_one` is false. With
        `stable_only` the read stops at the first undecided transaction. Raises OffsetOutOfRange outside the
        bounds; at the end the slice is empty. Damaged batches are skipped. If only damaged bytes are left,
        the slice has one batch without records for which `is_damage` is true, so that below the end a read is
        never empty. Raises DataDamaged if the records may become readable again: the file cannot be read, or
        another file is in its place.
        """

    async def find_timestamp(self, partition: PartitionId, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is at or after `timestamp`."""

    async def find_max_timestamp(self, partition: PartitionId) -> TimestampedOffset | None:
        """The first record that carries the highest timestamp of the partition."""

    async def enforce_retention(
        self, archived: KeptElsewhere = nothing_elsewhere, needed: Needed = nothing_needed
    ) -> dict[PartitionId, int]:
        """Remove records that the topics' retention settings have expired and that lie below `needed`.

        `retention.local.*` removes only whole closed segments below `archived`. Returns the partitions that
        `needed` held back, with the start that retention would have set. In a storage that several brokers
        share: of the logs of `log_scopes`, but of topics with a `scope` those that this broker holds.
        """

    async def compact(self, needed: Needed = nothing_needed) -> None:
        """Compact the compacted topics: remove records whose key has a later record. May take long.

        Records from `needed` on stay unchanged. Of the same logs as `enforce_retention`.
        """
