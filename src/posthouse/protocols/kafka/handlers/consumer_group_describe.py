"""ConsumerGroupDescribe: groups whose partitions the broker assigns, with their members."""

from collections import defaultdict

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.descriptions import DescribedConsumer
from posthouse.model.errors import Unavailable, UnknownGroup, UnknownTopic
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.protocols.kafka.codec.generated.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.group_names import STATE_NAMES
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.operations import add_group_operations
from posthouse.protocols.kafka.permissions import require_on_group, require_sight_of

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle(context: Context, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    groups = [_shown(context, name) for name in request.group_ids]
    add_group_operations(context.guard, groups, asked=request.include_authorized_operations)
    return ConsumerGroupDescribeResponse(groups=groups)


def _shown(context: Context, name: str) -> DescribedGroup:
    """An error if the client may not describe the group, or a topic that it reads."""
    try:
        require_on_group(context, Operation.DESCRIBE, name)
        described = _described(context, name)
        require_sight_of(context, _topics(described))
    except (Unavailable, Refused) as error:
        return DescribedGroup(group_id=name, error_code=code_of(error), error_message=str(error))
    return described


def _topics(described: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in described.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _described(context: Context, name: str) -> DescribedGroup:
    try:
        group = context.broker.groups.describe_consumer(GroupId(name))
    except UnknownGroup as error:
        return DescribedGroup(
            group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=str(error)
        )
    return DescribedGroup(
        group_id=name,
        group_state=STATE_NAMES[group.state],
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(context, member) for member in group.members],
    )


def _member(context: Context, member: DescribedConsumer) -> Member:
    return Member(
        member_id=member.id,
        instance_id=member.instance,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client.id,
        client_host=member.client.host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(context, member.assigned),
        target_assignment=_assignment(context, member.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(context: Context, partitions: frozenset[PartitionId]) -> Assignment:
    indexes: defaultdict[TopicId, list[int]] = defaultdict(list)
    for partition in partitions:
        indexes[partition.topic].append(partition.index)
    topics = []
    for topic_id, found in indexes.items():
        try:
            name = context.broker.topic_by_id(topic_id).name
        except UnknownTopic:
            continue
        topics.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(found)))
    return Assignment(topic_partitions=topics)


def _refuse(
    context: Context, request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=name, error_code=code, error_message=message)
            for name in request.group_ids
        ]
    )


HANDLER = Handler(key=69, handle=handle, refuse=_refuse)
