"""Members of groups on the wire, for tests that look at single requests."""

from typing import Any

from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from posthouse.protocols.kafka.codec.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
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
    OffsetFetchResponseGroup,
)
from posthouse.protocols.kafka.codec.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.wire import Wire

SUBSCRIBES_TO_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00"
"""A subscription to the topic t, as consumers write it."""


def join_request(group: str = "g", member: str = "", **fields: Any) -> JoinGroupRequest:
    defaults: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBES_TO_T)],
    }
    return JoinGroupRequest(group_id=group, member_id=member, **(defaults | fields))


async def join(wire: Wire, group: str = "g", **fields: Any) -> JoinGroupResponse:
    """Both steps: the id, then the place."""
    answer = await wire.ask(join_request(group, **fields), JoinGroupResponse)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await wire.ask(join_request(group, answer.member_id, **fields), JoinGroupResponse)
    return answer


async def join_alone(wire: Wire, group: str = "g", **fields: Any) -> JoinGroupResponse:
    """The only member of a group, with an assignment."""
    joined = await join(wire, group, **fields)
    assert joined.error_code == 0
    synced = await wire.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
        ),
        SyncGroupResponse,
    )
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    return joined


async def commit(
    wire: Wire,
    topic_id: bytes,
    offsets: dict[int, int],
    *,
    group: str = "g",
    metadata: str | None = "",
    **fields: Any,
) -> list[int]:
    """The error codes."""
    request = OffsetCommitRequest(
        group_id=group,
        **fields,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )
    answer = await wire.ask(request, OffsetCommitResponse)
    return [partition.error_code for partition in answer.topics[0].partitions]


async def fetch_offsets(
    wire: Wire, topic_id: bytes | None, indexes: list[int], *, group: str = "g", **fields: Any
) -> OffsetFetchResponseGroup:
    wanted = OffsetFetchRequestGroup(group_id=group, **fields)
    wanted.topics = None
    if topic_id is not None:
        wanted.topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=indexes)]
    answer = await wire.ask(OffsetFetchRequest(groups=[wanted], require_stable=True), OffsetFetchResponse)
    return answer.groups[0]


def places(group: OffsetFetchResponseGroup) -> dict[int, int]:
    """The offsets by partition, of all topics."""
    return {
        partition.partition_index: partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
    }


async def beat(wire: Wire, member: str, epoch: int = 0, **changes: Any) -> ConsumerGroupHeartbeatResponse:
    fields: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch}
    if epoch == 0:
        fields |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    return await wire.ask(ConsumerGroupHeartbeatRequest(**(fields | changes)), ConsumerGroupHeartbeatResponse)
