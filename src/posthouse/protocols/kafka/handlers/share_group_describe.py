"""ShareGroupDescribe: share groups with their members."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.protocol_members import ProtocolMember
from posthouse.model.errors import Unavailable, UnknownGroup, UnknownTopic
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.group_names import STATE_NAMES
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.operations import add_group_operations
from posthouse.protocols.kafka.permissions import require_on_group, require_sight_of
from posthouse.protocols.kafka.share_groups.group import ShareMember

_ASSIGNOR = "simple"


def handle(context: Context, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    groups = [_shown(context, name) for name in request.group_ids]
    add_group_operations(context.guard, groups, asked=request.include_authorized_operations)
    return ShareGroupDescribeResponse(groups=groups)


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
    return {topic.topic_name for member in described.members for topic in member.assignment.topic_partitions}


def _described(context: Context, name: str) -> DescribedGroup:
    try:
        group = context.share_groups.get(GroupId(name))
    except UnknownGroup as error:
        return DescribedGroup(
            group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=str(error)
        )
    return DescribedGroup(
        group_id=name,
        group_state=STATE_NAMES[context.share_groups.state(GroupId(name))],
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=_ASSIGNOR,
        members=[
            *(_member(context, member) for member in group),
            *(_other(context, member) for member in context.share_groups.others(GroupId(name))),
        ],
    )


def _member(context: Context, member: ShareMember) -> Member:
    topics = []
    for topic_id, count in member.assigned.items():
        try:
            name = context.broker.topic_by_id(topic_id).name
        except UnknownTopic:
            continue
        topics.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(range(count))))
    return Member(
        member_id=member.id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client.id,
        client_host=member.client.host,
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment(topic_partitions=topics),
    )


def _other(context: Context, member: ProtocolMember) -> Member:
    """A member that another protocol keeps."""
    topics = [topic for name in member.topics if (topic := context.broker.topics.find(name)) is not None]
    return Member(
        member_id=member.id,
        client_id=member.client,
        client_host=member.host,
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(
                    topic_id=topic.id, topic_name=topic.name, partitions=list(range(topic.partitions))
                )
                for topic in topics
            ]
        ),
    )


def _refuse(
    context: Context, request: ShareGroupDescribeRequest, code: ErrorCode, message: str
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=name, error_code=code, error_message=message)
            for name in request.group_ids
        ]
    )


HANDLER = Handler(key=77, handle=handle, refuse=_refuse)
