"""StreamsGroupHeartbeat: a member of a Kafka Streams application joins, reports or leaves.

The handler creates missing internal topics; the group sees them with the next heartbeat.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.membership import MemberClient
from posthouse.broker.groups.streams_answers import EndpointTopics, StreamsAnswer, Told, Trouble
from posthouse.broker.groups.streams_assignor import Task, Tasks
from posthouse.broker.groups.streams_member import StreamsBeat, UserEndpoint
from posthouse.broker.groups.streams_topology import InternalTopic, Obstacle
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import PosthouseError, TopicExists
from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.kafka.codec.generated import streams_group_heartbeat as wire
from posthouse.protocols.kafka.codec.generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic
from posthouse.protocols.kafka.streams_topologies import decoded_topology
from posthouse.protocols.kafka.topic_configs import kept_overrides

_NOT_GIVEN = -1
_MOST_FAILURES = 3
_CODES: Mapping[Trouble | Obstacle, int] = {
    Trouble.STALE_TOPOLOGY: 0,
    Obstacle.MISSING_SOURCE_TOPICS: 1,
    Obstacle.INCORRECTLY_PARTITIONED_TOPICS: 2,
    Obstacle.MISSING_INTERNAL_TOPICS: 3,
    Trouble.SHUTDOWN_APPLICATION: 4,
    Trouble.ASSIGNMENT_DELAYED: 5,
}


async def handle(context: Context, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    require_on_group(context, Operation.READ, request.group_id)
    _check_supported(request)
    beat = _beat(context, request)
    if beat.topology is not None:
        for name in sorted({name for each in beat.topology.subtopologies for name in each.topics}):
            require_on_topic(context, Operation.DESCRIBE, name)
    group = GroupId(request.group_id)
    answer = context.broker.groups.beat_streams(group, beat)
    failures = await _create(context, answer.missing) if answer.missing else ""
    config = context.broker.group_configs.get(group)
    return StreamsGroupHeartbeatResponse(
        member_id=answer.member,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=config.streams_heartbeat_interval_ms,
        status=[_status(each, failures) for each in answer.statuses],
        active_tasks=None if answer.tasks is None else _task_ids(answer.tasks.active),
        standby_tasks=None if answer.tasks is None else _task_ids(answer.tasks.standby),
        warmup_tasks=None if answer.tasks is None else _task_ids(answer.tasks.warmup),
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=_endpoints(answer),
    )


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuses what Kafka 4.3 refuses, too."""
    unsupported = {
        "static members": request.instance_id is not None,
        "task offsets": request.task_offsets is not None or request.task_end_offsets is not None,
        "warm-up tasks": bool(request.warmup_tasks),
    }
    for what, is_asked_for in unsupported.items():
        if is_asked_for:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{what} are not supported in streams groups")
    told = [request.active_tasks is None, request.standby_tasks is None, request.warmup_tasks is None]
    if any(told) and not all(told):
        raise Refused(ErrorCode.INVALID_REQUEST, "a member must report all kinds of tasks or none")


def _beat(context: Context, request: StreamsGroupHeartbeatRequest) -> StreamsBeat:
    timeout = request.rebalance_timeout_ms
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsBeat(
        member=MemberId(request.member_id),
        epoch=request.member_epoch,
        client=MemberClient(id=context.client_id or "", host=context.client_host),
        rack=request.rack_id,
        rebalance_seconds=None if timeout == _NOT_GIVEN else timeout / 1000,
        topology=None if request.topology is None else decoded_topology(request.topology),
        owned=None
        if request.active_tasks is None
        else Tasks(active=_tasks(request.active_tasks), standby=_tasks(request.standby_tasks or ())),
        process=request.process_id,
        endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else {each.key: each.value for each in tags},
        endpoint_epoch=request.endpoint_information_epoch,
        shuts_down=request.shutdown_application,
    )


async def _create(context: Context, missing: Iterable[InternalTopic]) -> str:
    """Create the missing internal topics; returns the errors as text."""
    allows = context.guard.allows_here_or_everywhere
    forbidden = [each.name for each in missing if not allows(Operation.CREATE, Kind.TOPIC, each.name)]
    if forbidden:
        return f"; Unauthorized to CREATE on topics {', '.join(forbidden)}."
    failures: list[str] = []
    wanted = []
    for each in missing:
        try:
            wanted.append(
                NewTopic(name=each.name, partitions=each.partitions, overrides=kept_overrides(each.configs))
            )
        except PosthouseError as error:
            failures.append(f"{each.name} ({error})")
    failures += await _created(context, wanted)
    if not failures:
        return ""
    more = f" and {len(failures) - _MOST_FAILURES} more" if len(failures) > _MOST_FAILURES else ""
    return f"; Creation failed: {', '.join(failures[:_MOST_FAILURES])}{more}."


async def _created(context: Context, wanted: Sequence[NewTopic]) -> list[str]:
    created = await context.broker.create_topics(wanted)
    # Members that report at the same time may create the same topics.
    return [
        f"{new.name} ({error})"
        for new, error in zip(wanted, created, strict=True)
        if isinstance(error, PosthouseError) and not isinstance(error, TopicExists)
    ]


def _status(told: Told, failures: str) -> wire.Status:
    is_about_creation = told.status is Obstacle.MISSING_INTERNAL_TOPICS
    detail = told.detail + failures if is_about_creation else told.detail
    return wire.Status(status_code=_CODES[told.status], status_detail=detail)


def _tasks(given: Iterable[wire.TaskIds]) -> frozenset[Task]:
    return frozenset(Task(each.subtopology_id, index) for each in given for index in each.partitions)


def _task_ids(tasks: Iterable[Task]) -> list[wire.TaskIds]:
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for task in sorted(tasks):
        partitions[task.subtopology].append(task.partition)
    return [wire.TaskIds(subtopology_id=id, partitions=indexes) for id, indexes in partitions.items()]


def _endpoints(answer: StreamsAnswer) -> list[wire.EndpointToPartitions] | None:
    return None if answer.endpoints is None else [_endpoint(each) for each in answer.endpoints]


def _endpoint(known: EndpointTopics) -> wire.EndpointToPartitions:
    return wire.EndpointToPartitions(
        user_endpoint=wire.Endpoint(host=known.endpoint.host, port=known.endpoint.port),
        active_partitions=_topic_partitions(known.active),
        standby_partitions=_topic_partitions(known.standby),
    )


def _topic_partitions(topics: Mapping[str, list[int]]) -> list[wire.TopicPartition]:
    return [wire.TopicPartition(topic=name, partitions=indexes) for name, indexes in topics.items()]


def _refuse(
    context: Context, request: StreamsGroupHeartbeatRequest, code: ErrorCode, message: str
) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        error_code=code,
        error_message=message,
        status=None,
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        partitions_by_user_endpoint=None,
    )


HANDLER = Handler(key=88, handle=handle, refuse=_refuse)
