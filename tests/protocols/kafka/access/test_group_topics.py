"""Members of groups, and the topics that they may or may not read with them."""

from collections.abc import AsyncIterator

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.topics import NewTopic
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from posthouse.protocols.kafka.codec.generated.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from posthouse.protocols.kafka.codec.generated.share_fetch import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from posthouse.protocols.kafka.codec.generated.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.roles import GROUP, TOPIC
from tests.protocols.kafka.access.scene import connected, permit
from tests.protocols.kafka.wire import Wire, batch

FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
USER = "member"
_O = Operation


@pytest.fixture
async def topic(broker: AsyncBroker) -> Topic:
    """One that the member sees, beside one that it does not."""
    made, other = await broker.app.broker.create_topics([NewTopic(name=TOPIC), NewTopic(name="other")])
    assert isinstance(made, Topic)
    assert isinstance(other, Topic)
    return made


@pytest.fixture
async def wire(broker: AsyncBroker, topic: Topic) -> AsyncIterator[Wire]:
    """Of a member who may do everything with its group, and see the topic."""
    await permit(broker.app.broker, USER, _O.ALL, Kind.GROUP, GROUP)
    await permit(broker.app.broker, USER, _O.DESCRIBE, Kind.TOPIC, TOPIC)
    async with connected(broker, USER) as joined:
        yield joined


async def commit(broker: AsyncBroker, *names: str) -> None:
    offsets = [
        NewOffset(
            partition=broker.app.broker.topic(name).partition(0), offset=0, leader_epoch=-1, metadata=""
        )
        for name in names
    ]
    anybody = MemberIdentity(member=MemberId(""), generation=-1)
    await broker.app.broker.groups.offsets.commit(GroupId(GROUP), anybody, offsets)


async def test_offsets_of_topics_that_are_seen(broker: AsyncBroker, wire: Wire) -> None:
    await commit(broker, TOPIC, "other")
    group = OffsetFetchRequestGroup(group_id=GROUP)
    group.topics = None
    answer = await wire.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse)
    assert [topic.topic_id for topic in answer.groups[0].topics] == [broker.app.broker.topic(TOPIC).id]


async def test_forgetting_offsets_needs_the_topic(broker: AsyncBroker, wire: Wire) -> None:
    await commit(broker, TOPIC)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition()])
            for name in (TOPIC, "other", "missing")
        ],
    )
    answer = await wire.ask(request, OffsetDeleteResponse)
    assert {topic.partitions[0].error_code for topic in answer.topics} == {FORBIDDEN}
    await permit(broker.app.broker, USER, _O.READ, Kind.TOPIC, TOPIC)
    answer = await wire.ask(request, OffsetDeleteResponse)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, FORBIDDEN, FORBIDDEN]


async def subscribe_to_all(wire: Wire, member: str) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=member, rebalance_timeout_ms=10_000, subscribed_topic_regex=".*"
    )
    request.topic_partitions = []
    return await wire.ask(request, ConsumerGroupHeartbeatResponse)


async def test_a_pattern_matches_what_is_seen(broker: AsyncBroker, wire: Wire, topic: Topic) -> None:
    answer = await subscribe_to_all(wire, "m")
    assert answer.assignment is not None
    assert [each.topic_id for each in answer.assignment.topic_partitions] == [topic.id]
    # Topics that come later are not shown to it either.
    await broker.app.broker.create_topics([NewTopic(name="later")])
    group = broker.app.broker.groups.describe_consumer(GroupId(GROUP))
    assert {partition.topic for member in group.members for partition in member.target} == {topic.id}


async def test_members_who_read_something_hidden_are_hidden(broker: AsyncBroker, wire: Wire) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)
    await subscribe_to_all(wire, "m")
    [seen] = (await wire.ask(request, ConsumerGroupDescribeResponse)).groups
    assert (seen.error_code, len(seen.members)) == (0, 1)
    assert seen.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    async with connected(broker, "admin") as admin:
        await subscribe_to_all(admin, "n")
    [hidden] = (await wire.ask(request, ConsumerGroupDescribeResponse)).groups
    assert (hidden.error_code, hidden.members) == (FORBIDDEN, [])


async def test_operations_on_a_group(broker: AsyncBroker, wire: Wire) -> None:
    await commit(broker, TOPIC)
    request = DescribeGroupsRequest(groups=[GROUP, "h"], include_authorized_operations=True)
    seen, hidden = (await wire.ask(request, DescribeGroupsResponse)).groups
    assert seen.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    assert hidden.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert hidden.authorized_operations == -(2**31)


async def join_share_group(wire: Wire) -> None:
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", subscribed_topic_names=[TOPIC])
    answer = await wire.ask(request, ShareGroupHeartbeatResponse)
    assert answer.error_code == 0, answer.error_message


async def share_fetch(wire: Wire, topic: Topic, epoch: int) -> tuple[int, bytes]:
    request = ShareFetchRequest(
        group_id=GROUP,
        member_id="m",
        share_session_epoch=epoch,
        max_records=10,
        batch_size=10,
        topics=[FetchTopic(topic_id=topic.id, partitions=[FetchPartition()])],
    )
    answer = await wire.ask(request, ShareFetchResponse)
    assert answer.error_code == 0, answer.error_message
    [partition] = answer.responses[0].partitions
    return partition.error_code, bytes(partition.records or b"")


async def test_a_share_group_needs_the_topic(broker: AsyncBroker, wire: Wire, topic: Topic) -> None:
    await broker.app.broker.group_configs.replace(GroupId(GROUP), {"share.auto.offset.reset": "earliest"})
    async with connected(broker, "admin") as admin:
        await admin.produce(topic.id, batch(b"x"))
    await join_share_group(wire)
    assert await share_fetch(wire, topic, 0) == (FORBIDDEN, b"")
    await permit(broker.app.broker, USER, _O.READ, Kind.TOPIC, TOPIC)
    code, records = await share_fetch(wire, topic, 1)
    assert code == 0
    assert records
    await permit(broker.app.broker, USER, _O.READ, Kind.TOPIC, TOPIC, allow=False)
    accepted = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = AcknowledgePartition(acknowledgement_batches=[accepted])
    said = ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id="m",
        share_session_epoch=2,
        topics=[AcknowledgeTopic(topic_id=topic.id, partitions=[partition])],
    )
    answer = await wire.ask(said, ShareAcknowledgeResponse)
    assert answer.responses[0].partitions[0].error_code == FORBIDDEN


async def test_share_group_offsets_need_the_topic(broker: AsyncBroker, wire: Wire, topic: Topic) -> None:
    other = broker.app.broker.topic("other")
    subscriptions = broker.app.broker.subscriptions
    await join_share_group(wire)
    leaving = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=-1)
    await wire.ask(leaving, ShareGroupHeartbeatResponse)
    await subscriptions.move(GroupId(GROUP), {topic.partition(0): 0, other.partition(0): 0})

    group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP)
    group.topics = None
    described = await wire.ask(
        DescribeShareGroupOffsetsRequest(groups=[group]), DescribeShareGroupOffsetsResponse
    )
    assert [each.topic_name for each in described.groups[0].topics] == [TOPIC]
    group.topics = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
        for name in ("other", "missing")
    ]
    described = await wire.ask(
        DescribeShareGroupOffsetsRequest(groups=[group]), DescribeShareGroupOffsetsResponse
    )
    assert {each.partitions[0].error_code for each in described.groups[0].topics} == {FORBIDDEN}

    start = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    moving = AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[start])
            for name in (TOPIC, "other", "missing")
        ],
    )
    moved = await wire.ask(moving, AlterShareGroupOffsetsResponse)
    assert {each.partitions[0].error_code for each in moved.responses} == {FORBIDDEN}

    forgetting = DeleteShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in (TOPIC, "other", "missing")],
    )
    forgotten = await wire.ask(forgetting, DeleteShareGroupOffsetsResponse)
    assert {each.error_code for each in forgotten.responses} == {FORBIDDEN}
    assert {each.topic for each in subscriptions.progress(GroupId(GROUP))} == {topic.id, other.id}


async def test_share_members_who_read_something_hidden_are_hidden(broker: AsyncBroker, wire: Wire) -> None:
    await join_share_group(wire)
    request = ShareGroupDescribeRequest(group_ids=[GROUP])
    [seen] = (await wire.ask(request, ShareGroupDescribeResponse)).groups
    assert (seen.error_code, len(seen.members)) == (0, 1)
    async with connected(broker, "admin") as admin:
        joining = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="n", subscribed_topic_names=["other"])
        await admin.ask(joining, ShareGroupHeartbeatResponse)
    [hidden] = (await wire.ask(request, ShareGroupDescribeResponse)).groups
    assert (hidden.error_code, hidden.members) == (FORBIDDEN, [])
