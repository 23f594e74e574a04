"""The operations of a commit: what becomes durable together, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.ids import PartitionId
from posthouse.model.scopes import Scope
from posthouse.records.batch import BatchHeader, parse_header
from posthouse.records.references import NEVER, Reference, build_references
from posthouse.storage.owners import owner_of
from posthouse.storage.spaces import Space


@dataclass(slots=True)
class Append:
    """Append one batch to a partition. `batch` is writable: its offset is stamped in place.

    A duplicate batch of an idempotent producer is not appended again: the outcome has the offset of the first
    copy. A batch out of sequence is refused. If it is `required`, the refusal voids the whole commit.
    Otherwise its outcome has the refusal, and the other operations take effect. A commit has at most one
    batch of a producer per partition.

    Not frozen: one is created per batch on the produce path, and a frozen one costs three times as much.
    """

    partition: PartitionId
    batch: memoryview
    header: BatchHeader
    base_offset: int = -1
    """The assigned offset; set by the commit for the `Refer`s behind it. -1 if the batch is a duplicate or
    refused."""
    required: bool = True
    admission: bytes | None = None
    """For a batch of a transaction that another broker coordinates: the value that must be stored in
    `Space.ADMISSIONS` for its partition and producer."""
    scope: Scope | None = None
    """For the other batches and the markers of transactions, where several brokers share the storage: the
    scope of the transactional id. None in the name of the coordinator."""
    has_referral: bool = False
    """For a marker that commits: references of queues to the records are not in this commit, but what leads
    to them is (`Space.REFERRALS`). Without it storage refuses the marker, and so the whole commit, if the
    topic belongs to a scope of namespaces that this broker does not hold."""


@dataclass(slots=True)
class Run:
    """Consecutive records to refer to. With `append` they belong to that batch, and `first` is relative to
    it."""

    partition: PartitionId
    first: int
    count: int
    size: int
    """Bytes of the records' values."""
    expires_ms: int = NEVER
    append: Append | None = None


@dataclass(slots=True)
class Refer:
    """Append references to a reference log. Batches of this commit must precede the references to them.

    Only the commit knows the offsets of its batches. Runs of a duplicate batch are left out: its first copy
    was committed with references. Runs of a refused batch are left out as well.
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
        """The batch of references to write, None if no references are left."""
        references = self.resolved()
        if not references:
            return None
        batch = memoryview(build_references(references))
        return Append(self.partition, batch, parse_header(batch))


@dataclass(slots=True)
class Trim:
    """Raise the start of a partition to `offset`; readers lose the records below it at once.

    The outcome has a refusal if the topic was deleted, or belongs to a scope of namespaces that this broker
    does not hold.
    """

    partition: PartitionId
    offset: int
    scope: Scope | None = None
    """The scope of housekeeping that this broker must hold for it; None for what users have asked for."""


@dataclass(slots=True)
class Put:
    """Set a value of the broker's state, or remove it with None. The key contains its owner: see `owners`."""

    space: Space
    key: bytes
    value: bytes | None

    @property
    def owner(self) -> bytes:
        return owner_of(self.space, self.key)


Operation = Append | Refer | Trim | Put
