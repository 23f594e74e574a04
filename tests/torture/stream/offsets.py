"""Where partitions begin and end, and what groups have committed."""

from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.checker.history import Partition
from tests.protocols.kafka.wire import Wire
from tests.torture.stream.links import Topics, check

LATEST = -1
EARLIEST = -2


async def offset_of(wire: Wire, partition: Partition, timestamp: int, *, committed_only: bool = False) -> int:
    """Where the partition begins (EARLIEST) or ends (LATEST), also for those who read what is committed."""
    place = ListOffsetsPartition(partition_index=partition[1], timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed_only),
        topics=[ListOffsetsTopic(name=partition[0], partitions=[place])],
    )
    answer = await wire.ask(request, ListOffsetsResponse)
    [found] = answer.topics[0].partitions
    check(found.error_code, f"ListOffsets of {partition}")
    return found.offset


async def fetch_committed(
    wire: Wire, topics: Topics, group: str, member: str | None = None, epoch: int = -1
) -> dict[Partition, int | None]:
    """Of every partition; None where nothing is committed."""
    wanted = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        topics=[
            OffsetFetchRequestTopics(topic_id=topics.ids[name], partition_indexes=list(range(count)))
            for name, count in topics.partitions.items()
        ],
    )
    answer = await wire.ask(OffsetFetchRequest(groups=[wanted], require_stable=True), OffsetFetchResponse)
    [found] = answer.groups
    check(found.error_code, "OffsetFetch")
    offsets: dict[Partition, int | None] = {}
    for topic in found.topics:
        for place in topic.partitions:
            check(place.error_code, "OffsetFetch")
            offset = None if place.committed_offset < 0 else place.committed_offset
            offsets[topics.name(topic.topic_id), place.partition_index] = offset
    return offsets


async def commit(
    wire: Wire, topics: Topics, group: str, offsets: dict[Partition, int], member: str, epoch: int
) -> dict[Partition, int]:
    """The error codes by partition."""
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=topics.ids[name],
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
            for (name, index), offset in offsets.items()
        ],
    )
    answer = await wire.ask(request, OffsetCommitResponse)
    return {
        (topics.name(topic.topic_id), place.partition_index): place.error_code
        for topic in answer.topics
        for place in topic.partitions
    }
