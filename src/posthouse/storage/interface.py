"""What the broker asks of any storage: local files, memory, and later an object store.

Nothing here says file. Offsets are known only when a commit returns, because a storage shared by
several brokers can assign them no earlier.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.records.batch import BatchHeader, parse_header
from posthouse.records.references import NEVER, Reference, build_references
from posthouse.storage.producers import AbortedTransaction, Producer


@dataclass(slots=True)
class Append:
    """Add one batch to the end of a partition. `batch` is writable: its offset is stamped in place.

    A batch of an idempotent producer that is there already is not added again: the outcome has its first
    offset. One that does not follow the producer's last is refused. A commit has at most one batch of a
    producer per partition.

    Not frozen: one is made per batch on the produce path, and a frozen one costs three times as much.
    """

    partition: PartitionId
    batch: memoryview
    header: BatchHeader
    base_offset: int = -1
    """Where it goes; set by the commit for the `Refer`s behind it, -1 where it was there already."""


@dataclass(slots=True)
class Run:
    """Consecutive records to refer to. With `append` they are of that batch, and `first` counts in it."""

    partition: PartitionId
    first: int
    count: int
    size: int
    """Bytes of their values."""
    expires_ms: int = NEVER
    append: Append | None = None


@dataclass(slots=True)
class Refer:
    """Add references to the end of a reference log; those to batches of this commit stand behind them.

    Nobody but the commit knows the offsets of its batches. Runs of a batch that was there already are left
    out: what refers to it, was written with it.
    """

    partition: PartitionId
    runs: Sequence[Run]

    def resolved(self) -> list[Reference]:
        references = []
        for run in self.runs:
            first = run.first
            if run.append is not None:
                if run.append.base_offset < 0:
                    continue
                first += run.append.base_offset
            references.append(Reference(run.partition, first, run.count, run.expires_ms, run.size))
        return references

    def as_append(self) -> Append | None:
        """The batch to be written, None if nothing is left to refer to."""
        references = self.resolved()
        if not references:
            return None
        batch = memoryview(build_references(references))
        return Append(self.partition, batch, parse_header(batch))


@dataclass(slots=True)
class Trim:
    """Move the start of a partition up to `offset`; what lies below is gone for readers at once."""

    partition: PartitionId
    offset: int


class Space(IntEnum):
    """Kinds of broker state that storage keeps as keys and values without knowing what they mean."""

    OFFSETS = 1
    TRANSACTIONS = 2
    TRANSACTION_OFFSETS = 3
    PRODUCER_IDS = 4
    GROUPS = 5
    PRODUCERS = 6
    """What partitions remember of their producers: storage's own."""
    FENCES = 7
    EXCHANGES = 8
    BINDINGS = 9
    QUEUES = 10
    QUEUE_PROGRESS = 11
    SCHEDULE = 12
    SHARE_GROUPS = 13
    SHARE_PROGRESS = 14
    GROUP_CONFIGS = 15
    USERS = 16
    ACLS = 17
    QUOTAS = 18
    STREAMS_GROUPS = 19
    CLIENT_METRICS = 20
    BROKER_CONFIGS = 21
    SECRETS = 25


@dataclass(slots=True)
class Put:
    """Set a value of the broker's state, or remove it with None."""

    space: Space
    key: bytes
    value: bytes | None


Operation = Append | Refer | Trim | Put


class OperationRefused(PosthouseError):
    """One operation of a commit must not be done; nothing was. The others may be tried without it."""

    def __init__(self, operation: Append, reason: PosthouseError) -> None:
        super().__init__(str(reason))
        self.operation = operation
        self.reason = reason


@dataclass(slots=True)
class Outcome:
    """What became of one operation: the offset given to the batch's first record, or the new log start.

    Both are -1 for a Put, which can only succeed. A Refer that had nothing left to refer to has the end of
    its log.
    """

    base_offset: int
    log_start: int


PUT_DONE = Outcome(-1, -1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The readable part of a partition: start ≤ offset < end. All of it is durable.

    Below `stable` every transaction is decided; it is the end where none is open.
    """

    start: int
    end: int
    stable: int


@dataclass(slots=True)
class Slice:
    """Whole batches, as stored, from the one that holds the offset asked for."""

    data: bytes | bytearray | memoryview
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    offset: int
    timestamp: int


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


class Storage(Protocol):
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

    @property
    def topics(self) -> Mapping[TopicId, Topic]: ...

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
        """Make all operations durable together, or none. The only durable write of records.

        Commits take effect in the order of the calls. Raises at once what is wrong with the call
        itself; the future fails with Unavailable when storage cannot keep it.
        """

    def take_state(self, space: Space) -> dict[bytes, bytes]:
        """What was put into a space before this storage was opened. Given out once: it may be large."""

    def bounds(self, partition: PartitionId) -> Bounds: ...

    def size(self, partition: PartitionId) -> int:
        """Bytes stored for the partition."""

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

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        """The transactions with a record from `start` to before `end` that were given up."""

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        """What the partition remembers of its producers, by their ids."""

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
