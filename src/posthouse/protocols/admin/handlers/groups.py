"""Groups: listed, described with their lag, and deleted."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.descriptions import GroupKind
from posthouse.model.ids import GroupId
from posthouse.model.scopes import GROUPS as GROUP_SCOPES
from posthouse.model.scopes import scope_of_group
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.delivery_views import GroupLimitsView, limits_view
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.flow_rates import FlowView
from posthouse.protocols.admin.group_views import Group, GroupMember, GroupViews, NamedPlace, SharedProgress
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page_of_names
from posthouse.protocols.admin.turns import in_turns

_MOST_OFFSETS = 10_000
_MOST_MEMBERS = 1000

GroupName = Annotated[str, Meta(min_length=1, description="Name of the group.")]
GroupKindName = Annotated[
    Literal["classic", "consumer", "streams", "share"], Meta(description="How the group shares out records.")
]
_KINDS: Final[dict[GroupKind, GroupKindName]] = {
    GroupKind.CLASSIC: "classic",
    GroupKind.CONSUMER: "consumer",
    GroupKind.STREAMS: "streams",
    GroupKind.SHARE: "share",
}


class OfGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName


class GroupWanted(OfGroup, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=_MOST_OFFSETS, description="Most partitions of the answer.")] = 1000
    after: Annotated[
        str, Meta(max_length=300, description="`next` of the answer before; empty for the first.")
    ] = ""


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: GroupKindName
    state: str
    members: int
    partitions: Annotated[int, Meta(description="Partitions with a committed offset.")]
    lag: Annotated[int, Meta(description="Offsets still to be read, of all partitions.")]


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    instance: Annotated[str | None, Meta(description="Name of a static member.")]
    client: str
    host: str
    topics: Annotated[list[str], Meta(description="Subscribed to, as far as the broker can tell.")]
    partitions: Annotated[int, Meta(description="Number of partitions that it reads.")]


class OffsetView(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    start: int
    end: int
    committed: Annotated[int | None, Meta(description="Offset of the next record to read.")]
    lag: Annotated[int | None, Meta(description="Offsets still to be read; null before the first commit.")]
    member: Annotated[str | None, Meta(description="Id of the member that reads the partition.")]
    committed_at: Annotated[int | None, Meta(description="Milliseconds since 1970.")]
    metadata: Annotated[str, Meta(description="Text that the member stored with its offset.")]


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: GroupKindName
    state: str
    assignor: str
    members: Annotated[list[MemberView], Meta(description=f"At most {_MOST_MEMBERS} of them.")]
    members_total: int
    lag: Annotated[int, Meta(description="Offsets still to be read, of the partitions of this answer.")]
    limits: Annotated[
        GroupLimitsView | None,
        Meta(description="Of the deliveries to all members together; null without any. See flow-control.md."),
    ]
    flow: Annotated[
        FlowView, Meta(description="Of all partitions. Records leave when their offsets are done.")
    ]
    offsets: Annotated[
        list[OffsetView], Meta(description="Partitions with a committed offset or a member, by name.")
    ]
    next: Annotated[str | None, Meta(description="`after` for the other partitions; null at the end.")]


def views(context: CallContext) -> GroupViews:
    return GroupViews(context.broker)


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[GroupSummary]:
    return await LISTED.whole(context, paging, lambda: _page(context, paging))


async def _page(context: CallContext, paging: Paging) -> Page[GroupSummary]:
    """Of this broker."""
    await context.broker.groups.offsets.follow()
    groups = views(context)
    names = await page_of_names(
        groups.names(), paging, sees=lambda name: context.guard.sees(Kind.GROUP, name)
    )
    found = [await summary(groups, name) async for name in in_turns(names.items, steps=1)]
    items = [each for each in found if each is not None]
    return Page(items=items, total=names.total, next=names.next)


LISTED: Final[SpreadList[GroupSummary]] = SpreadList(
    noun="groups",
    scopes=GROUP_SCOPES,
    path=("v1", "groups"),
    answer=Page[GroupSummary],
    page=lambda answer: answer,
    name=lambda group: group.name,
)
"""Those of other brokers."""


async def summary(groups: GroupViews, name: str) -> GroupSummary | None:
    """None if there is no such group any more."""
    group = groups.find(name)
    if group is None:
        return None
    lag = await groups.lag(group)
    return GroupSummary(
        name=name,
        kind=_KINDS[group.kind],
        state=group.state,
        members=len(group.members),
        partitions=lag.partitions,
        lag=lag.offsets,
    )


async def _describe(context: CallContext, parameters: GroupWanted, body: NoBody) -> GroupView:
    context.require(Operation.DESCRIBE, Kind.GROUP, parameters.group)
    groups = views(context)
    await groups.refresh(parameters.group)
    group = groups.get(parameters.group)
    readers = group.readers
    places = sorted(await _places(context, groups, group, readers))
    later = places[bisect_right(places, _parse(parameters.after)) :]
    shown = later[: parameters.limit]
    partitions = [
        topic.partition(place.partition)
        async for place in in_turns(shown)
        if (topic := context.broker.topics.find(place.topic)) is not None
        and place.partition < topic.partitions
    ]
    await context.broker.refresh(partitions)
    offsets = [_offset(each, readers.get(each.place)) async for each in groups.progress(group, partitions)]
    return GroupView(
        name=group.id,
        kind=_KINDS[group.kind],
        state=group.state,
        assignor=group.assignor,
        members=[_member(context, each) for each in group.members[:_MOST_MEMBERS]],
        members_total=len(group.members),
        lag=sum(each.lag or 0 for each in offsets),
        limits=_limits(context, group),
        flow=await _flow(context, groups, group),
        offsets=offsets,
        next=_token(shown[-1]) if len(shown) < len(later) else None,
    )


def _limits(context: CallContext, group: Group) -> GroupLimitsView | None:
    limits = context.broker.group_configs.delivery_limits(group.id)
    found = context.broker.group_limiters.of(group.id)
    view = limits_view(limits, None if found is None else found.limiter)
    if view is None:
        return None
    has_fetchers = group.kind is not GroupKind.SHARE and context.broker.groups.member_count(group.id) > 0
    return GroupLimitsView(**msgspec.structs.asdict(view), applies=not has_fetchers)


async def _flow(context: CallContext, groups: GroupViews, group: Group) -> FlowView:
    lag = await groups.lag(group)
    return context.flow.of(group.id, entered=lag.ends, backlog=lag.offsets, shape=lag.partitions)


async def _places(
    context: CallContext, groups: GroupViews, group: Group, readers: Iterable[NamedPlace]
) -> set[NamedPlace]:
    """Those whose topic the client may see."""
    found = set()
    async for partition in in_turns(groups.places(group)):
        topic = context.broker.topics.find_by_id(partition.topic)
        if topic is not None:
            found.add(NamedPlace(topic=topic.name, partition=partition.index))
    async for place in in_turns(readers):
        found.add(place)
    seen = {topic: context.guard.sees(Kind.TOPIC, topic) for topic in {each.topic for each in found}}
    return found if all(seen.values()) else {each for each in found if seen[each.topic]}


def _token(place: NamedPlace) -> str:
    return f"{place.topic}:{place.partition}"


def _parse(token: str) -> NamedPlace:
    topic, _, partition = token.rpartition(":")
    return NamedPlace(topic, int(partition) if partition.isdecimal() else -1)


def _offset(progress: SharedProgress, member: str | None) -> OffsetView:
    return OffsetView(
        topic=progress.place.topic,
        partition=progress.place.partition,
        start=progress.start,
        end=progress.end,
        committed=progress.committed,
        lag=progress.lag,
        member=member,
        committed_at=progress.committed_ms,
        metadata=progress.metadata,
    )


def _member(context: CallContext, member: GroupMember) -> MemberView:
    return MemberView(
        id=member.id,
        instance=member.instance,
        client=member.client,
        host=member.host,
        topics=sorted(each for each in member.topics if context.guard.sees(Kind.TOPIC, each)),
        partitions=len(member.assigned),
    )


async def _delete(context: CallContext, parameters: OfGroup, body: NoBody) -> None:
    context.require(Operation.DELETE, Kind.GROUP, parameters.group)
    group = GroupId(parameters.group)
    if group in context.broker.subscriptions:
        await context.broker.subscriptions.delete(group)
    else:
        await context.broker.groups.delete(group)


GROUPS: Final = (
    Endpoint(
        method="GET",
        path="/v1/groups",
        summary="List groups of every kind, with their lag",
        tag="groups",
        handler=_list,
        parameters=Paging,
        result=Page[GroupSummary],
    ),
    Endpoint(
        method="GET",
        path="/v1/groups/{group}",
        summary="Describe a group: members, committed offsets and lag by partition",
        tag="groups",
        handler=_describe,
        parameters=GroupWanted,
        scope=lambda parameters: scope_of_group(parameters.group),
        result=GroupView,
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/groups/{group}",
        summary="Delete a group without members, and its offsets",
        tag="groups",
        handler=_delete,
        parameters=OfGroup,
        scope=lambda parameters: scope_of_group(parameters.group),
        problems=(404, 409),
    ),
)
