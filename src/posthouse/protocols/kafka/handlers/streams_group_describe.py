"""StreamsGroupDescribe: Kafka Streams applications with their topologies, members and tasks."""

from collections import defaultdict
from collections.abc import Iterable

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.streams import StreamsGroup
from posthouse.broker.groups.streams_assignor import NOTHING, Task, Tasks
from posthouse.broker.groups.streams_member import StreamsMember
from posthouse.broker.groups.streams_topology import InternalTopic, Subtopology
from posthouse.model.errors import Unavailable, UnknownGroup
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated import streams_group_describe as wire
from posthouse.protocols.kafka.codec.generated.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.group_names import STATE_NAMES
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.operations import add_group_operations
from posthouse.protocols.kafka.permissions import require_on_group, require_sight_of


def handle(context: Context, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    groups = [_shown(context, name) for name in request.group_ids]
    add_group_operations(context.guard, groups, asked=request.include_authorized_operations)
    return StreamsGroupDescribeResponse(groups=groups)


def _shown(context: Context, name: str) -> DescribedGroup:
    """An error if the client may not describe the group, or a topic that it uses."""
    try:
        require_on_group(context, Operation.DESCRIBE, name)
        group = context.broker.groups.describe_streams(GroupId(name))
        topology = group.topology
        topics = {topic for each in topology.subtopologies for topic in each.topics} if topology else set()
        require_sight_of(context, topics)
    except (Unavailable, Refused) as error:
        return DescribedGroup(group_id=name, error_code=code_of(error), error_message=str(error))
    except UnknownGroup as error:
        return DescribedGroup(
            group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=str(error)
        )
    return DescribedGroup(
        group_id=name,
        group_state=STATE_NAMES[group.state],
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_topology(group),
        members=[_member(member, group.target.get(member.id, NOTHING)) for member in group],
    )


def _topology(group: StreamsGroup) -> wire.Topology | None:
    if group.topology is None:
        return None
    subtopologies = sorted(group.topology.subtopologies, key=lambda each: each.id)
    return wire.Topology(
        epoch=group.topology.epoch, subtopologies=[_subtopology(group, each) for each in subtopologies]
    )


def _subtopology(group: StreamsGroup, each: Subtopology) -> wire.Subtopology:
    return wire.Subtopology(
        subtopology_id=each.id,
        source_topics=sorted(each.sources),
        repartition_sink_topics=sorted(each.repartition_sinks),
        state_changelog_topics=_infos(group, each.changelogs),
        repartition_source_topics=_infos(group, each.repartition_sources),
    )


def _infos(group: StreamsGroup, topics: Iterable[InternalTopic]) -> list[wire.TopicInfo]:
    """With the computed numbers of partitions, once the topology is ready."""
    known = group.configured.internal if group.configured and group.configured.is_ready else {}
    return [
        wire.TopicInfo(
            name=topic.name,
            partitions=known.get(topic.name, topic).partitions,
            replication_factor=topic.replicas,
            topic_configs=[wire.KeyValue(key=key, value=value) for key, value in topic.configs.items()],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: Tasks) -> wire.Member:
    endpoint = member.endpoint
    return wire.Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=None,
        rack_id=member.rack,
        client_id=member.client.id,
        client_host=member.client.host,
        topology_epoch=member.topology_epoch,
        process_id=member.process,
        user_endpoint=None if endpoint is None else wire.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[wire.KeyValue(key=key, value=value) for key, value in member.tags.items()],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Tasks) -> wire.Assignment:
    return wire.Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Iterable[Task]) -> list[wire.TaskIds]:
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for task in sorted(tasks):
        partitions[task.subtopology].append(task.partition)
    return [wire.TaskIds(subtopology_id=id, partitions=indexes) for id, indexes in partitions.items()]


def _refuse(
    context: Context, request: StreamsGroupDescribeRequest, code: ErrorCode, message: str
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=name, error_code=code, error_message=message)
            for name in request.group_ids
        ]
    )


HANDLER = Handler(key=89, handle=handle, refuse=_refuse)
