"""DeleteShareGroupOffsets: removes the progress of a share group without members in topics."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import UnknownTopic
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic


async def handle(
    context: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    group = GroupId(request.group_id)
    require_on_group(context, Operation.DELETE, group)
    context.share_groups.check_empty(group)
    topics = []
    for wanted in request.topics:
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
        topics.append(answer)
        try:
            require_on_topic(context, Operation.READ, wanted.topic_name)
            topic = context.broker.topic(wanted.topic_name)
            answer.topic_id = topic.id
            if not await context.share_groups.forget_topic(group, topic.id):
                raise UnknownTopic(f"the group {group!r} has read nothing from {topic.name!r}")
        except (UnknownTopic, Refused) as error:
            answer.error_code, answer.error_message = code_of(error), str(error)
    return DeleteShareGroupOffsetsResponse(responses=topics)


def _refuse(
    context: Context, request: DeleteShareGroupOffsetsRequest, code: ErrorCode, message: str
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message)


HANDLER = Handler(key=92, handle=handle, refuse=_refuse)
