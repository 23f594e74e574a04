"""OffsetFetch: the committed offsets of groups. An unknown group has no offsets.

Up to version 7 a request names one group. Requests of all versions are answered as version 8, and older ones
converted at the end. In a cluster offsets are answered as storage has them: see `offset_reading`.
"""

from collections.abc import Coroutine
from typing import Any

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.committing import GroupOffsets
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.groups.offset_reading import OffsetReading, ReadOffsets
from posthouse.model.errors import NotCoordinator, PosthouseError, UnknownTopic
from posthouse.model.ids import GroupId, MemberId, TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic, sees_topic

_FIRST_WITH_GROUPS = 8
_FIRST_WITH_IDS = 10
_FIRST_WITH_GROUP_ERROR = 2
_NOTHING = -1

Readable = GroupOffsets | ReadOffsets


def handle(
    context: Context, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    offsets = context.broker.groups.offsets
    wanted = _groups(context, request)
    if offsets.reading is not None:
        return _read_and_handle(context, request, offsets, offsets.reading)
    if any(offsets.are_in_flight(GroupId(each.group_id)) for each in wanted):
        return _wait_and_handle(context, request, offsets)
    stable = request.require_stable
    return _response(context, [_of_group(context, offsets, each, stable) for each in wanted])


async def _wait_and_handle(
    context: Context, request: OffsetFetchRequest, offsets: GroupOffsets
) -> OffsetFetchResponse:
    wanted = _groups(context, request)
    for each in wanted:
        await offsets.landed(GroupId(each.group_id))
    stable = request.require_stable
    return _response(context, [_of_group(context, offsets, each, stable) for each in wanted])


async def _read_and_handle(
    context: Context, request: OffsetFetchRequest, known: GroupOffsets, reading: OffsetReading
) -> OffsetFetchResponse:
    answers = []
    for wanted in _groups(context, request):
        refused = _refusal(context, wanted)
        if refused is None:
            await known.landed(GroupId(wanted.group_id))
            try:
                offsets = await reading.read([GroupId(wanted.group_id)])
            except NotCoordinator as error:
                refused = _failed(context, wanted, error)
        if refused is None:
            # The member may have left meanwhile, so it is looked at once more.
            refused = _of_group(context, offsets, wanted, request.require_stable)
        answers.append(refused)
    return _response(context, answers)


def _groups(context: Context, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    if context.version >= _FIRST_WITH_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id)
    group.topics = topics
    return [group]


def _of_group(
    context: Context, offsets: Readable, wanted: OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponseGroup:
    refused = _refusal(context, wanted)
    if refused is not None:
        return refused
    answer = OffsetFetchResponseGroup(group_id=wanted.group_id)
    group = GroupId(wanted.group_id)
    topics = _everything(context, offsets, group) if wanted.topics is None else wanted.topics
    answer.topics = [_of_topic(context, offsets, group, topic, stable) for topic in topics]
    return answer


def _refusal(context: Context, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup | None:
    """The answer if the client may not read the offsets of the group here."""
    group = GroupId(wanted.group_id)
    identity = MemberIdentity(member=MemberId(wanted.member_id or ""), generation=wanted.member_epoch)
    try:
        require_on_group(context, Operation.DESCRIBE, group)
        context.broker.groups.check_fetch(group, identity)
    except (PosthouseError, Refused) as error:
        return _failed(context, wanted, error)
    return None


def _failed(
    context: Context, wanted: OffsetFetchRequestGroup, error: PosthouseError | Refused
) -> OffsetFetchResponseGroup:
    """Raises the error in versions that have no field for it."""
    if context.version < _FIRST_WITH_GROUP_ERROR:
        raise error
    return _refused(context, wanted, code_of(error))


def _refused(context: Context, wanted: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    """In versions without groups each partition has the error, too: aiokafka looks only there. If it found no
    partition it would think that the group has no offsets, and begin where a new group does."""
    group = OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=code)
    if context.version < _FIRST_WITH_GROUPS:
        group.topics = [
            OffsetFetchResponseTopics(
                name=topic.name, partitions=[_none(index, code) for index in topic.partition_indexes]
            )
            for topic in wanted.topics or ()
        ]
    return group


def _everything(context: Context, offsets: Readable, group: GroupId) -> list[OffsetFetchRequestTopics]:
    found: dict[TopicId, list[int]] = {}
    for partition in offsets.partitions(group):
        found.setdefault(partition.topic, []).append(partition.index)
    topics = []
    for topic_id, indexes in found.items():
        try:
            name = context.broker.topic_by_id(topic_id).name
        except UnknownTopic:
            continue
        if sees_topic(context, name):
            topics.append(
                OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=sorted(indexes))
            )
    return topics


def _of_topic(
    context: Context, offsets: Readable, group: GroupId, wanted: OffsetFetchRequestTopics, stable: bool
) -> OffsetFetchResponseTopics:
    answer = OffsetFetchResponseTopics(name=wanted.name, topic_id=wanted.topic_id)
    by_id = context.version >= _FIRST_WITH_IDS
    try:
        topic = _topic(context, wanted, by_id)
    except Refused as error:
        answer.partitions = [_none(index, error.code) for index in wanted.partition_indexes]
    except UnknownTopic as error:
        # By name, an unknown topic has no offset: clients ask before they create it.
        code = code_of(error, by_id=True) if by_id else ErrorCode.NONE
        answer.partitions = [_none(index, code) for index in wanted.partition_indexes]
    else:
        answer.partitions = [
            _of_partition(offsets, group, topic, index, stable) for index in wanted.partition_indexes
        ]
    return answer


def _topic(context: Context, wanted: OffsetFetchRequestTopics, by_id: bool) -> Topic:
    if by_id:
        topic = context.broker.topic_by_id(TopicId(wanted.topic_id))
        require_on_topic(context, Operation.DESCRIBE, topic.name)
        return topic
    require_on_topic(context, Operation.DESCRIBE, wanted.name)
    return context.broker.topic(wanted.name)


def _of_partition(
    offsets: Readable, group: GroupId, topic: Topic, index: int, stable: bool
) -> OffsetFetchResponsePartitions:
    if not 0 <= index < topic.partitions:
        return _none(index)
    try:
        committed = offsets.get(group, topic.partition(index), stable=stable)
    except PosthouseError as error:
        return _none(index, code_of(error))
    if committed is None:
        return _none(index)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _none(index: int, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=_NOTHING, metadata="", error_code=code
    )


def _response(context: Context, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if context.version >= _FIRST_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    [group] = groups
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name, partitions=[_old(partition) for partition in topic.partitions]
            )
            for topic in group.topics
        ],
    )


def _old(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def _refuse(
    context: Context, request: OffsetFetchRequest, code: ErrorCode, message: str
) -> OffsetFetchResponse:
    return _response(context, [_refused(context, each, code) for each in _groups(context, request)])


HANDLER = Handler(key=9, handle=handle, refuse=_refuse)
