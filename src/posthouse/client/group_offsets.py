"""Committed offsets of groups, and resetting them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import UNKNOWN_TOPIC_CODES, BadArgument, GroupActive, GroupNotFound, refused
from posthouse.client.group_coordinators import ask_coordinator
from posthouse.client.groups import GroupInfo, GroupProtocol, describe_group
from posthouse.client.positions import LATEST, Start, first_offsets, list_offsets
from posthouse.client.share_groups import move_share_group, shared_progress
from posthouse.client.topic_partitions import TopicPartition
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

_NON_EMPTY = 68
_NO_MEMBER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A partition with a committed offset or a member of the group."""

    topic: str
    partition: int
    committed: int | None
    end: int
    member: str | None
    """The member that reads it now; None in share groups, where all members do."""
    shared_lag: int | None = None
    """Of a share group: what is acknowledged above the committed offset does not count."""

    @property
    def lag(self) -> int | None:
        """Number of offsets still to be read; unknown before the first commit."""
        if self.shared_lag is not None:
            return self.shared_lag
        return None if self.committed is None else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    topic: str
    partition: int
    old: int | None
    new: int


def group_offsets(cluster: Cluster, group: GroupInfo) -> list[GroupOffset]:
    """Every partition with a committed offset or a member, in order."""
    topics = {info.name: info for info in cluster.topics()}
    lags: dict[TopicPartition, int] = {}
    if group.protocol is GroupProtocol.SHARE:
        shared = shared_progress(cluster, group.name)
        committed = {place: each.start for place, each in shared.items()}
        lags = {place: each.lag for place, each in shared.items()}
        readers: dict[TopicPartition, str] = {}
    else:
        committed = committed_offsets(cluster, group.name, topics.values())
        readers = {place: member.id for member in group.members for place in member.partitions}
    # An assigned topic may have been deleted since.
    places = sorted(
        place
        for place in {*committed, *readers}
        if place.topic in topics and place.partition < topics[place.topic].partitions
    )
    wanted: dict[str, list[int]] = {}
    for place in places:
        wanted.setdefault(place.topic, []).append(place.partition)
    ends = list_offsets(cluster, [(topics[name], indexes) for name, indexes in wanted.items()], LATEST)
    return [
        GroupOffset(
            topic=place.topic,
            partition=place.partition,
            committed=committed.get(place),
            end=ends[place],
            member=readers.get(place),
            shared_lag=lags.get(place),
        )
        for place in places
    ]


def reset_offsets(
    cluster: Cluster,
    group: str,
    topics: Mapping[str, Iterable[int] | None],
    start: Start,
    *,
    dry_run: bool = False,
) -> list[OffsetChange]:
    """Reset the group to `start` in these partitions (None: all of the topic); returns the changes.

    A group that does not exist is created. Raises GroupActive while it has members that would overwrite the
    offsets.
    """
    if not group:
        # Brokers accept it, for clients older than groups.
        raise BadArgument("the name of the group is empty; give one")
    is_shared = _check_resettable(cluster, group)
    infos = [cluster.topic(name) for name in topics]
    if is_shared:
        committed = {place: each.start for place, each in shared_progress(cluster, group).items()}
    else:
        committed = committed_offsets(cluster, group, infos)
    changes = []
    for info in infos:
        partitions = info.check_partitions(topics[info.name])
        for index, offset in first_offsets(cluster, info, partitions, start).items():
            old = committed.get(TopicPartition(info.name, index))
            changes.append(OffsetChange(topic=info.name, partition=index, old=old, new=offset))
    if not dry_run:
        wanted = [(info, _new_offsets(info, changes)) for info in infos]
        if is_shared:
            move_share_group(cluster, group, {info.name: offsets for info, offsets in wanted})
        else:
            commit_offsets(cluster, group, wanted)
    return changes


def _new_offsets(info: TopicInfo, changes: Iterable[OffsetChange]) -> dict[int, int]:
    return {change.partition: change.new for change in changes if change.topic == info.name}


def _check_resettable(cluster: Cluster, name: str) -> bool:
    """Returns whether it is a share group: of those the broker knows which members would follow."""
    try:
        info = describe_group(cluster, name)
    except GroupNotFound:
        return False
    if info.protocol is GroupProtocol.SHARE:
        return True
    members = 0 if info.follows_resets else len(info.members)
    if members:
        count = "an active member" if members == 1 else f"{members} active members"
        raise GroupActive(f"group {name!r} has {count}; stop its consumers and try again", _NON_EMPTY)
    return False


def committed_offsets(cluster: Cluster, group: str, topics: Iterable[TopicInfo]) -> dict[TopicPartition, int]:
    """Topics are answered by their ids; those that are not among `topics` are left out."""
    names = {info.id: info.name for info in topics}
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group)])
    [answer] = ask_coordinator(
        cluster,
        group,
        lambda connection: connection.ask(request, OffsetFetchResponse).groups,
        lambda groups: groups[0].error_code,
    )
    if answer.error_code:
        raise refused(answer.error_code, None, group)
    found = {}
    for topic in answer.topics:
        if topic.topic_id not in names:
            continue
        for partition in topic.partitions:
            if partition.error_code:
                raise refused(partition.error_code, None, group)
            place = TopicPartition(names[topic.topic_id], partition.partition_index)
            found[place] = partition.committed_offset
    return {place: offset for place, offset in found.items() if offset >= 0}


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Iterable[tuple[TopicInfo, Mapping[int, int]]],
    *,
    member: str = "",
    epoch: int = _NO_MEMBER,
) -> None:
    """Set where a group goes on: the offset by partition, for each topic (by its id).

    A group with members takes it from one of them only.

    Durable on return; raises for the first offset that the broker refuses.
    """
    topics = {info.id: (info, wanted) for info, wanted in offsets if wanted}
    if not topics:
        return
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=info.id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                    for partition, offset in wanted.items()
                ],
            )
            for info, wanted in topics.values()
        ],
    )
    answers = ask_coordinator(
        cluster,
        group,
        lambda connection: connection.ask(request, OffsetCommitResponse).topics,
        lambda topics: topics[0].partitions[0].error_code,
    )
    for answer in answers:
        for partition in answer.partitions:
            if partition.error_code:
                about_topic = partition.error_code in UNKNOWN_TOPIC_CODES
                name = topics[answer.topic_id][0].name if about_topic else group
                raise refused(partition.error_code, None, name)
