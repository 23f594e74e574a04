"""OffsetCommit: commits offsets of a group. All offsets of a request become durable together."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId, InstanceId, MemberId, TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Deferred, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_to_commit

_FIRST_WITH_IDS = 10


def handle(context: Context, request: OffsetCommitRequest) -> Deferred:
    require_on_group(context, Operation.READ, request.group_id)
    offsets: list[NewOffset] = []
    places: list[OffsetCommitResponsePartition] = []
    topics = []
    for wanted in request.topics:
        answer = OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
        topics.append(answer)
        answer.partitions = [
            OffsetCommitResponsePartition(partition_index=each.partition_index) for each in wanted.partitions
        ]
        try:
            topic = _found(context, request.group_id, wanted)
        except (PosthouseError, Refused) as error:
            _set_code(answer.partitions, code_of(error, by_id=context.version >= _FIRST_WITH_IDS))
            continue
        places += answer.partitions
        offsets += _offsets(topic, wanted)
    committing = context.broker.groups.offsets.commit(GroupId(request.group_id), _identity(request), offsets)

    def finish(results: list[PosthouseError | None]) -> OffsetCommitResponse:
        for place, error in zip(places, results, strict=True):
            if error is not None:
                place.error_code = code_of(error)
        return OffsetCommitResponse(topics=topics)

    return Deferred(committing, finish)


def _identity(request: OffsetCommitRequest) -> MemberIdentity:
    instance = request.group_instance_id
    return MemberIdentity(
        member=MemberId(request.member_id),
        generation=request.generation_id_or_member_epoch,
        instance=None if instance is None else InstanceId(instance),
    )


def _found(context: Context, group: str, wanted: OffsetCommitRequestTopic) -> Topic:
    if context.version >= _FIRST_WITH_IDS:
        topic = context.broker.topic_by_id(TopicId(wanted.topic_id))
        require_to_commit(context, group, topic.name)
        return topic
    require_to_commit(context, group, wanted.name)
    return context.broker.topic(wanted.name)


def _offsets(topic: Topic, wanted: OffsetCommitRequestTopic) -> list[NewOffset]:
    return [
        NewOffset(
            partition=topic.partition(each.partition_index),
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=each.committed_metadata or "",
        )
        for each in wanted.partitions
    ]


def _set_code(partitions: list[OffsetCommitResponsePartition], code: ErrorCode) -> None:
    for partition in partitions:
        partition.error_code = code


def _refuse(
    context: Context, request: OffsetCommitRequest, code: ErrorCode, message: str
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=8, handle=handle, refuse=_refuse)
