"""The operations of a commit: what becomes durable together, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.ids import PartitionId
from posthouse.records.batch import BatchHeader, parse_header
from posthouse.records.references import NEVER, Reference, build_references
from posthouse.storage.owners import owner_of
from posthouse.storage.spaces import Space


@dataclass(slots=True)
class Append:
    """Add one batch to the end of a partition. `batch` is writable: its offset is stamped in place.

    A batch of an idempotent producer that is there already is not added again: the outcome has its first
    offset. One that does not follow the producer's last is refused: that voids the whole commit if the batch
    is `required`. Otherwise its outcome has the refusal, and the other operations count. A commit has at most
    one batch of a producer per partition.

    Not frozen: one is made per batch on the produce path, and a frozen one costs three times as much.
    """

    partition: PartitionId
    batch: memoryview
    header: BatchHeader
    base_offset: int = -1
    """Where it goes; set by the commit for the `Refer`s behind it, -1 where it was there already or is
    refused."""
    required: bool = True


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

    Only the commit knows the offsets of its batches. Runs of a batch that was there already are left out:
    references to it were written with it. So are runs of a batch that is refused.
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


@dataclass(slots=True)
class Put:
    """Set a value of the broker's state, or remove it with None. The key names its owner: see `owners`."""

    space: Space
    key: bytes
    value: bytes | None

    @property
    def owner(self) -> bytes:
        return owner_of(self.space, self.key)


Operation = Append | Refer | Trim | Put
