"""Segments that clients read from the object store by themselves, without a broker.

A *manifest* says which objects hold the records of ranges of offsets. It is of one moment: start of the log,
segments and aborted transactions fit together. A *hold* keeps the objects of a manifest, also those that
nothing else uses any more, until it is released or not renewed in time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from uuid import UUID

from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.producers import AbortedTransaction

HOLD_SECONDS = 900.0
"""How long a hold lasts without being renewed."""
ADDRESS_SECONDS = 3600.0
"""How long a signed address can be used."""

MayRead: TypeAlias = Callable[[TopicId | None], bool]
"""Whether a reader may see the records of a topic; None stands for records whose topic is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRange:
    """The records that are wanted: offsets from `first` to before `end`."""

    partition: PartitionId
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentObject:
    """Whole batches of consecutive offsets, without gaps: `size` bytes from `start` on in an object."""

    address: str = field(repr=False)
    """A signed address that anyone can get, or the key."""
    start: int
    size: int
    base: int
    """The first batch holds this offset, or begins with an earlier one."""
    last: int
    generation: int
    """How often compaction has rewritten the segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeManifest:
    """What the object store has of a range. Brokers have all of it."""

    next: int
    """The manifest ends here: ask again from this offset on unless it is the end of the range."""
    segments: Sequence[SegmentObject] = ()
    """By offset; there may be gaps between them, which only brokers can read."""
    aborted: Sequence[AbortedTransaction] = ()
    """Those with records in the segments; others may be among them."""
    refusal: PosthouseError | None = None
    """Why there is nothing: OffsetOutOfRange, UnknownPartition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentManifest:
    hold: UUID | None
    """None: the objects stay for the grace period of garbage collection, as for readers in brokers."""
    ranges: Sequence[RangeManifest]
    """In the order of the wanted ranges."""


class SegmentObjects(Protocol):
    """All methods raise Unavailable."""

    @property
    def can_sign(self) -> bool:
        """Whether the object store has signed addresses."""

    async def manifest(
        self,
        wanted: Sequence[ObjectRange],
        *,
        committed: bool,
        signed: bool,
        hold: UUID | None,
        may_read: MayRead,
    ) -> SegmentManifest:
        """With `committed` no segment goes beyond the last stable offset. `signed` needs `can_sign`.

        Objects are added to `hold`; None makes a new one if there are any. A signed address gives access to a
        whole object: objects with records that the caller may not read are left out.
        """

    async def renew(self, hold: UUID) -> bool:
        """False if the hold is over: some of its objects may be gone."""

    async def release(self, hold: UUID) -> None:
        """A hold that is over is no error."""
