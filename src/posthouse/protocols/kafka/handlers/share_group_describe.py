"""ShareGroupDescribe: share groups with their members."""

from posthouse.broker.access.operations import Kind, Operation
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
from posthouse.protocols.kafka.operations import NOT_ASKED, group_operations
from posthouse.protocols.kafka.permissions import forbidden, require_on_group, sees_topic
from posthouse.protocols.kafka.share_groups.group import ShareMember

_ASSIGNOR = "simple"


def handle(context: Context, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    groups = [_shown(context, name) for name in request.group_ids]
    for group in groups:
        group.authorized_operations = NOT_ASKED
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = group_operations(context.guard, group.group_id)
    return ShareGroupDescribeResponse(groups=groups)


def _shown(context: Context, name: str) -> DescribedGroup:
    """Raises if the client may not describe a topic that the group reads: its members are not shown then."""
    try:
        require_on_group(context, Operation.DESCRIBE, name)
        described = _described(context, name)
        if not all(sees_topic(context, topic) for topic in _topics(described)):
            raise forbidden(Operation.DESCRIBE, Kind.TOPIC)
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
        group_state=STATE_NAMES[group.state],
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=_ASSIGNOR,
        members=[_member(context, member) for member in group],
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
