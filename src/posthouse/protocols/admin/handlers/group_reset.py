"""A group is moved to other offsets, while it has no members that would commit over it."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.commit_permission import missing_to_commit
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.model.errors import GroupNotEmpty
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.model.scopes import scope_of_group
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.group_views import Group, GroupViews
from posthouse.protocols.admin.handlers.groups import OfGroup, views
from posthouse.protocols.admin.handlers.topics import TopicName
from posthouse.protocols.admin.offset_targets import OffsetTarget, TargetKind
from posthouse.protocols.admin.problems import Problem, refused
from posthouse.protocols.admin.turns import in_turns

_MOST_PARTITIONS = 10_000


class ResetBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Annotated[
        str,
        Meta(
            description="Where to go on: earliest, latest, offset:N, time:2026-01-31T12:00Z, duration:PT1H "
            "(so long ago) or shift:-N."
        ),
    ]
    topics: Annotated[
        list[TopicName], Meta(max_length=1000, description="Empty: those that the group has offsets in.")
    ] = []
    dry_run: Annotated[bool, Meta(description="Only say what would change.")] = False


class ResetOffset(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    before: Annotated[int | None, Meta(description="null if the group had no offset.")]
    after: int
    lag: Annotated[int, Meta(description="Offsets to be read from there on.")]


class ResetResult(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    dry_run: bool
    changes: list[ResetOffset]


async def _reset(context: CallContext, parameters: OfGroup, body: ResetBody) -> ResetResult:
    context.require(Operation.READ, Kind.GROUP, parameters.group)
    for name in body.topics:
        _require_to_commit(context, parameters.group, name)
    target = OffsetTarget.parse(body.to, context.broker.now_ms())
    groups = views(context)
    await groups.refresh(parameters.group)
    group = groups.find(parameters.group) if body.topics else groups.get(parameters.group)
    _check_members(group)
    committed = {} if group is None else await _committed(context, groups, group)
    wanted = _wanted(context, parameters.group, body.topics, committed)
    await context.broker.refresh([topic.partition(index) for topic, index in wanted])
    changes: dict[PartitionId, ResetOffset] = {}
    async for topic, partition in in_turns(wanted):
        before = committed.get(topic.partition(partition))
        after = await _resolved(context, topic, partition, target, before)
        if after is not None:
            end = context.broker.bounds(topic, partition).end
            changes[topic.partition(partition)] = ResetOffset(
                topic=topic.name, partition=partition, before=before, after=after, lag=max(end - after, 0)
            )
    if not body.dry_run and changes:
        context.guard.note("reset", f"{Kind.GROUP}:{parameters.group}", f"to {body.to[:100]}")
        await _move(context, parameters.group, changes)
    return ResetResult(group=parameters.group, dry_run=body.dry_run, changes=list(changes.values()))


def _require_to_commit(context: CallContext, group: str, topic: str) -> None:
    missing = missing_to_commit(context.guard, group, topic)
    if missing is not None:
        raise refused(missing, Kind.TOPIC, topic)


def _check_members(group: Group | None) -> None:
    count = 0 if group is None else sum(not each.follows_resets for each in group.members)
    if group is not None and count:
        raise GroupNotEmpty(
            f"group {group.id!r} has {count} member{'s' if count > 1 else ''}, which would commit over it; "
            "stop its consumers and try again"
        )


async def _committed(context: CallContext, groups: GroupViews, group: Group) -> dict[PartitionId, int]:
    found = {}
    async for each in groups.progress(group, groups.places(group)):
        topic = context.broker.topics.find(each.place.topic)
        if each.committed is not None and topic is not None:
            found[topic.partition(each.place.partition)] = each.committed
    return found


def _wanted(
    context: CallContext, group: str, names: Sequence[str], committed: dict[PartitionId, int]
) -> list[tuple[Topic, int]]:
    if names:
        topics = [context.broker.topic(name) for name in dict.fromkeys(names)]
        found = [(topic, index) for topic in topics for index in range(topic.partitions)]
    else:
        found = [(context.broker.topic_by_id(each.topic), each.index) for each in committed]
        for name in {topic.name for topic, _ in found}:
            _require_to_commit(context, group, name)
        found.sort(key=lambda each: (each[0].name, each[1]))
    if len(found) > _MOST_PARTITIONS:
        raise Problem(
            400,
            f"these topics have {len(found)} partitions; name topics with {_MOST_PARTITIONS} at most",
        )
    return found


async def _resolved(
    context: CallContext, topic: Topic, partition: int, target: OffsetTarget, before: int | None
) -> int | None:
    """None leaves the partition as it is: there is nothing to shift."""
    bounds = context.broker.bounds(topic, partition)
    if target.kind is TargetKind.EARLIEST:
        return bounds.start
    if target.kind is TargetKind.LATEST:
        return bounds.end
    if target.kind is TargetKind.TIME:
        found = await context.broker.find_timestamp(topic, partition, target.number)
        return bounds.end if found is None else found.offset
    if target.kind is TargetKind.OFFSET:
        wanted = target.number
    elif before is None:
        return None
    else:
        wanted = before + target.number
    return min(max(wanted, bounds.start), bounds.end)


async def _move(context: CallContext, name: str, changes: dict[PartitionId, ResetOffset]) -> None:
    id = GroupId(name)
    if id in context.broker.subscriptions:
        offsets = {partition: change.after for partition, change in changes.items()}
        await context.broker.subscriptions.reset(id, offsets)
        return
    new = [
        NewOffset(partition=partition, offset=change.after)
        async for partition, change in in_turns(changes.items())
    ]
    await context.broker.groups.offsets.commit_in_turns(id, MemberIdentity(member=MemberId("")), new)


GROUP_RESET: Final = Endpoint(
    method="POST",
    path="/v1/groups/{group}/reset",
    summary="Move a group to other offsets",
    tag="groups",
    description="Offsets outside of the log are moved to its beginning or end. A group that does not exist "
    "is created, if topics are given. `shift` leaves out partitions without an offset. It is refused while "
    "the group has members, unless all of them are RocketMQ's: they go on from the new offsets.",
    handler=_reset,
    parameters=OfGroup,
    scope=lambda parameters: scope_of_group(parameters.group),
    body=ResetBody,
    result=ResetResult,
    problems=(404, 409),
)
