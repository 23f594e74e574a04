"""Manifests: where in the object store of a cluster the records of ranges are, to be read without a broker.

A hold keeps the objects of a manifest until it is released, or not renewed for a quarter of an hour.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from posthouse.client.cluster import Cluster
from posthouse.client.errors import UNSUPPORTED_VERSION, ClientError, IncompatibleBroker, refused
from posthouse.protocols.kafka.codec.own.renew_hold import RenewHoldRequest, RenewHoldResponse
from posthouse.protocols.kafka.codec.own.segment_manifest import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SegmentManifestAnswer,
    SegmentManifestRange,
    SegmentManifestRequest,
    SegmentManifestResponse,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID

_RANGES_AT_ONCE = 1000


class NoSegmentObjects(ClientError):
    """The broker keeps its log on its own disk, or cannot give addresses of objects."""


class WantedRange(NamedTuple):
    topic_id: bytes
    partition: int
    first: int
    end: int


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker, or the last one of the segments that it was told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentObject:
    """Whole batches of consecutive offsets, without gaps: `size` bytes from `start` on in an object."""

    address: str = field(repr=False)
    """A signed address, which is a secret, or the key."""
    start: int
    size: int
    base: int
    """The first batch holds this offset, or begins with an earlier one."""
    last: int
    generation: int
    """How often compaction has rewritten the segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeObjects:
    segments: tuple[SegmentObject, ...] = ()
    """By offset. Brokers have the records between and behind them."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Those with records in the segments; others may be among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentManifest:
    hold: bytes | None
    """None if there are no objects, or the cluster has too many holds."""
    ranges: Sequence[RangeObjects]
    """In the order of the wanted ranges."""


@dataclass(slots=True)
class _Found:
    """What is known of one range."""

    wanted: WantedRange
    segments: list[SegmentObject] = field(default_factory=list)
    aborted: dict[AbortedTransaction, None] = field(default_factory=dict)

    def add(self, answer: SegmentManifestAnswer) -> None:
        """A range that is refused has no objects: the error is that of the fetch which follows."""
        end = answer.next if not answer.error_code else self.wanted.end
        self.wanted = self.wanted._replace(first=max(end, self.wanted.first + 1))
        # A transaction is told of the segments of its answer alone: compaction may have removed it, and its
        # marker, from those of the next answer, where it would hide later records of its producer.
        self.aborted |= {
            AbortedTransaction(each.producer_id, each.first, min(each.last, end - 1)): None
            for each in answer.aborted
        }
        self.segments += [
            SegmentObject(
                address=each.address,
                start=each.start,
                size=each.size,
                base=each.base,
                last=each.last,
                generation=each.generation,
            )
            for each in answer.segments
        ]


def segment_manifest(
    cluster: Cluster,
    wanted: Sequence[WantedRange],
    *,
    committed: bool = True,
    signed: bool = True,
    hold: bytes | None = None,
) -> SegmentManifest:
    """Objects with signed addresses, or their keys. They are added to `hold`; None makes a new one.

    Raises NoSegmentObjects.
    """
    found = [_Found(each) for each in wanted]
    left = [each for each in found if each.wanted.first < each.wanted.end]
    while left:
        some = left[:_RANGES_AT_ONCE]
        request = SegmentManifestRequest(
            isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
            is_signed=signed,
            hold=hold or ZERO_UUID,
            ranges=[SegmentManifestRange(**each.wanted._asdict()) for each in some],
        )
        response = _ask(cluster, request)
        hold = None if response.hold == ZERO_UUID else response.hold
        for each, answer in zip(some, response.ranges, strict=True):
            each.add(answer)
        left = [each for each in left if each.wanted.first < each.wanted.end]
    return SegmentManifest(
        hold=hold,
        ranges=[RangeObjects(segments=tuple(each.segments), aborted=tuple(each.aborted)) for each in found],
    )


def _ask(cluster: Cluster, request: SegmentManifestRequest) -> SegmentManifestResponse:
    try:
        response = cluster.any().ask(request, SegmentManifestResponse)
    except IncompatibleBroker as error:  # Kafka, or an older Posthouse
        raise NoSegmentObjects(str(error)) from None
    if response.error_code == UNSUPPORTED_VERSION:
        raise NoSegmentObjects(response.error_message or "the broker has no objects")
    if response.error_code:
        raise refused(response.error_code, response.error_message, "")
    return response


def renew_hold(cluster: Cluster, hold: bytes) -> bool:
    """False if the hold is over: some of its objects may be gone."""
    return _hold(cluster, RenewHoldRequest(hold=hold))


def release_hold(cluster: Cluster, hold: bytes) -> None:
    _hold(cluster, RenewHoldRequest(hold=hold, is_released=True))


def _hold(cluster: Cluster, request: RenewHoldRequest) -> bool:
    response = cluster.any().ask(request, RenewHoldResponse)
    if response.error_code:
        raise refused(response.error_code, response.error_message, "")
    return response.is_held
