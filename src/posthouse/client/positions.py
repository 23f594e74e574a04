"""Positions in a log: its two ends, an offset, a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import OffsetGone, refused
from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
READ_COMMITTED = 1
READ_UNCOMMITTED = 0
_CONSUMER = -1
_OUT_OF_RANGE = 1


class PartitionBounds(NamedTuple):
    """The first readable offset, and the offset of the next record."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Start:
    """Where to start reading. Created by `beginning`, `end`, `at` and `since`."""

    offset: int | None = None
    timestamp: int | None = None

    @classmethod
    def beginning(cls) -> "Start":
        return cls(timestamp=EARLIEST)

    @classmethod
    def end(cls) -> "Start":
        return cls(timestamp=LATEST)

    @classmethod
    def at(cls, offset: int) -> "Start":
        """That offset in every partition; a negative one is counted from the end."""
        return cls(offset=offset)

    @classmethod
    def since(cls, timestamp_ms: int) -> "Start":
        """The first record with that timestamp or a later one; the end if there is none."""
        return cls(timestamp=timestamp_ms)


def list_offsets(
    cluster: Cluster,
    wanted: Iterable[tuple[TopicInfo, Iterable[int]]],
    timestamp: int,
    *,
    committed: bool = False,
) -> dict[tuple[str, int], int]:
    """The offset for `timestamp` (or LATEST, EARLIEST) by topic and partition; -1 if there is none.

    With `committed` the log ends at the last stable offset.
    """
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    by_leader: dict[int, list[ListOffsetsTopic]] = {}
    for info, partitions in wanted:
        for leader, indexes in info.by_leader(partitions).items():
            places = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
            topic = ListOffsetsTopic(name=info.name, partitions=places)
            by_leader.setdefault(leader, []).append(topic)
    found: dict[tuple[str, int], int] = {}
    for leader, topics in by_leader.items():
        request = ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=isolation, topics=topics)
        for answer in cluster.broker(leader).ask(request, ListOffsetsResponse).topics:
            for partition in answer.partitions:
                if partition.error_code:
                    raise refused(partition.error_code, None, answer.name)
                found[answer.name, partition.partition_index] = partition.offset
    return found


def bounds_of(cluster: Cluster, topics: Iterable[TopicInfo]) -> dict[tuple[str, int], PartitionBounds]:
    wanted = [(info, range(info.partitions)) for info in topics]
    starts = list_offsets(cluster, wanted, EARLIEST)
    ends = list_offsets(cluster, wanted, LATEST)
    return {place: PartitionBounds(starts[place], ends[place]) for place in starts}


def first_offsets(
    cluster: Cluster, info: TopicInfo, partitions: list[int], start: Start, *, committed: bool = False
) -> dict[int, int]:
    """The offset of `start` in each partition; `committed` as in `list_offsets`."""
    wanted = [(info, partitions)]
    if start.offset is None:
        assert start.timestamp is not None
        found = list_offsets(cluster, wanted, start.timestamp, committed=committed)
        missing = [index for index in partitions if found[info.name, index] < 0]
        if missing:
            found |= list_offsets(cluster, [(info, missing)], LATEST, committed=committed)
        return {index: found[info.name, index] for index in partitions}
    lows = list_offsets(cluster, wanted, EARLIEST)
    # A given offset may lie in an open transaction; one counted from the end must be readable.
    highs = list_offsets(cluster, wanted, LATEST, committed=committed and start.offset < 0)
    furthest = max(highs.values())
    if start.offset > furthest:
        raise OffsetGone(
            f"offset {start.offset} lies behind the end of topic {info.name!r} at {furthest}; "
            "choose a lower one",
            _OUT_OF_RANGE,
        )
    return {
        index: _within(start.offset, lows[info.name, index], highs[info.name, index]) for index in partitions
    }


def _within(offset: int, low: int, high: int) -> int:
    return max(low, min(offset if offset >= 0 else high + offset, high))
