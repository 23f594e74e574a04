"""ConsumerGroupHeartbeat: a member of a consumer group joins, reports or leaves."""

import uuid
from collections import defaultdict

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.consumer_member import Beat, BeatAnswer
from posthouse.broker.groups.membership import MemberClient
from posthouse.broker.groups.patterns import TopicPattern
from posthouse.model.ids import GroupId, InstanceId, MemberId, PartitionId, TopicId
from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic

_FIRST_WITH_CLIENT_MADE_ID = 1
_NOT_GIVEN = -1


class _VisiblePattern(TopicPattern):
    """Matches no topic that the member may not see."""

    def __init__(self, text: str, guard: Guard) -> None:
        super().__init__(text)
        self._guard = guard

    def matches(self, name: str) -> bool:
        return super().matches(name) and self._guard.sees(Kind.TOPIC, name)


def handle(context: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    require_on_group(context, Operation.READ, request.group_id)
    for name in request.subscribed_topic_names or ():
        require_on_topic(context, Operation.DESCRIBE, name)
    if not request.member_id:
        if context.version >= _FIRST_WITH_CLIENT_MADE_ID:
            raise Refused(ErrorCode.INVALID_REQUEST, "the member id must not be empty")
        request.member_id = str(uuid.uuid4())
    group = GroupId(request.group_id)
    answer = context.broker.groups.beat(group, _beat(context, request))
    config = context.broker.group_configs.get(group)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
        assignment=_assignment(answer),
    )


def _beat(context: Context, request: ConsumerGroupHeartbeatRequest) -> Beat:
    names, regex, owned = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.topic_partitions,
    )
    timeout = request.rebalance_timeout_ms
    return Beat(
        member=MemberId(request.member_id),
        epoch=request.member_epoch,
        instance=None if request.instance_id is None else InstanceId(request.instance_id),
        client=MemberClient(id=context.client_id or "", host=context.client_host),
        rack=request.rack_id,
        rebalance_seconds=None if timeout == _NOT_GIVEN else timeout / 1000,
        topics=None if names is None else frozenset(names),
        pattern=None if regex is None else _VisiblePattern(regex, context.guard),
        assignor=request.server_assignor,
        owned=None if owned is None else _partitions(owned),
    )


def _partitions(topics: list[TopicPartitions]) -> frozenset[PartitionId]:
    return frozenset(
        PartitionId(TopicId(topic.topic_id), index) for topic in topics for index in topic.partitions
    )


def _assignment(answer: BeatAnswer) -> Assignment | None:
    if answer.assignment is None:
        return None
    topics: defaultdict[TopicId, list[int]] = defaultdict(list)
    for partition in answer.assignment:
        topics[partition.topic].append(partition.index)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in topics.items()
        ]
    )


def _refuse(
    context: Context, request: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


HANDLER = Handler(key=68, handle=handle, refuse=_refuse)
