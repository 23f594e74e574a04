"""Consumer groups: list, describe and delete them.

There are four protocols: in a classic group the members assign the partitions, in a consumer group the
broker does, in a streams group it assigns the tasks of a Kafka Streams application, and in a share group all
members read all partitions. A group is described by the API of its protocol; here they look the same.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from posthouse.client.assignments import decode_assignment
from posthouse.client.cluster import Cluster
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import GroupNotFound, RequestRefused, refused
from posthouse.client.group_coordinators import MOVING_CODES, ask_coordinator
from posthouse.client.topic_partitions import TopicPartition
from posthouse.protocols.kafka.codec.generated.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from posthouse.protocols.kafka.codec.generated.consumer_group_describe import DescribedGroup as ConsumerGroup
from posthouse.protocols.kafka.codec.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribedGroup as ClassicGroup,
)
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.share_group_describe import DescribedGroup as ShareGroup
from posthouse.protocols.kafka.codec.generated.share_group_describe import Member as ShareMember
from posthouse.protocols.kafka.codec.generated.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.streams_group_describe import DescribedGroup as StreamsGroup
from posthouse.protocols.kafka.codec.generated.streams_group_describe import Member as StreamsMember
from posthouse.protocols.kafka.codec.generated.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

_PAUSE_SECONDS = 0.1

Described = ConsumerGroup | ClassicGroup | StreamsGroup | ShareGroup
DescribedT = TypeVar("DescribedT", ConsumerGroup, ClassicGroup, StreamsGroup, ShareGroup)


class GroupProtocol(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    STREAMS = "streams"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    id: str
    instance: str | None
    """The instance id that a static member keeps over restarts."""
    client: str
    host: str
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    name: str
    state: str
    """Kafka's name: Empty, Stable and so on."""
    protocol: GroupProtocol
    assignor: str
    """The assignor; empty while it is undecided."""
    members: Sequence[GroupMember]
    follows_resets: bool = False
    """Its members, if it has some, go on where it is reset to: they are of a protocol that is not Kafka's."""


def list_groups(cluster: Cluster) -> list[GroupInfo]:
    """All groups, by name."""
    found: dict[str, GroupInfo] = {}
    for connection in cluster.brokers():
        names: dict[str, list[str]] = {}
        for group in _listed(cluster, connection):
            names.setdefault(group.group_type.lower(), []).append(group.group_id)
        consumers = _consumer_groups(connection, names.get(GroupProtocol.CONSUMER, []))
        classics = _classic_groups(connection, names.get(GroupProtocol.CLASSIC, []))
        streams = _streams_groups(connection, names.get(GroupProtocol.STREAMS, []))
        shares = _share_groups(connection, names.get(GroupProtocol.SHARE, []))
        described: list[Described] = [*consumers, *classics, *streams, *shares]
        # A listed group may be deleted before it is described, or move to another broker.
        infos = [_info(each) for each in described if not _is_missing(each.error_code) and not _moves(each)]
        infos += [info for each in described if _moves(each) and (info := _found(cluster, each.group_id))]
        found |= {info.name: info for info in infos}
    return sorted(found.values(), key=lambda info: info.name)


def group_names(cluster: Cluster) -> list[str]:
    listed = [each for connection in cluster.brokers() for each in _listed(cluster, connection)]
    return sorted({group.group_id for group in listed})


def describe_group(cluster: Cluster, name: str) -> GroupInfo:
    """Raises GroupNotFound."""
    consumer = _described(cluster, name, _consumer_groups)
    if not _is_missing(consumer.error_code):
        return _consumer_info(consumer)
    classic = _described(cluster, name, _classic_groups)
    if _is_missing(classic.error_code):
        streams = _described(cluster, name, _streams_groups)
        if not _is_missing(streams.error_code):
            return _streams_info(streams)
        share = _described(cluster, name, _share_groups)
        if not _is_missing(share.error_code):
            return _share_info(share)
    return _classic_info(classic)


def delete_groups(cluster: Cluster, names: Iterable[str]) -> dict[str, RequestRefused | None]:
    """Delete groups with their offsets; returns the error of each, or None."""
    codes = {name: _delete(cluster, name) for name in dict.fromkeys(names)}
    return {name: refused(code, None, name, needs="delete") if code else None for name, code in codes.items()}


def _delete(cluster: Cluster, name: str) -> int:
    request = DeleteGroupsRequest(groups_names=[name])
    [result] = ask_coordinator(
        cluster,
        name,
        lambda connection: connection.ask(request, DeleteGroupsResponse).results,
        lambda results: results[0].error_code,
    )
    return result.error_code


def _listed(cluster: Cluster, connection: BrokerConnection) -> list[ListedGroup]:
    """While the broker loads groups it waits, for as long as a broker has to answer."""
    deadline = time.monotonic() + cluster.timeout
    while True:
        response = connection.ask(ListGroupsRequest(), ListGroupsResponse)
        if not response.error_code:
            return response.groups
        if response.error_code not in MOVING_CODES or time.monotonic() > deadline:
            raise refused(response.error_code, None, "")
        time.sleep(_PAUSE_SECONDS)


def _described(
    cluster: Cluster, name: str, describe: Callable[[BrokerConnection, list[str]], list[DescribedT]]
) -> DescribedT:
    [found] = ask_coordinator(
        cluster,
        name,
        lambda connection: describe(connection, [name]),
        lambda described: described[0].error_code,
    )
    return found


def _found(cluster: Cluster, name: str) -> GroupInfo | None:
    try:
        return describe_group(cluster, name)
    except GroupNotFound:
        return None


def _moves(group: Described) -> bool:
    return group.error_code in MOVING_CODES


def _info(group: Described) -> GroupInfo:
    if isinstance(group, ConsumerGroup):
        return _consumer_info(group)
    if isinstance(group, ShareGroup):
        return _share_info(group)
    return _streams_info(group) if isinstance(group, StreamsGroup) else _classic_info(group)


def _consumer_groups(connection: BrokerConnection, names: list[str]) -> list[ConsumerGroup]:
    if not names:
        return []
    request = ConsumerGroupDescribeRequest(group_ids=names)
    return connection.ask(request, ConsumerGroupDescribeResponse).groups


def _classic_groups(connection: BrokerConnection, names: list[str]) -> list[ClassicGroup]:
    if not names:
        return []
    return connection.ask(DescribeGroupsRequest(groups=names), DescribeGroupsResponse).groups


def _streams_groups(connection: BrokerConnection, names: list[str]) -> list[StreamsGroup]:
    if not names:
        return []
    return connection.ask(StreamsGroupDescribeRequest(group_ids=names), StreamsGroupDescribeResponse).groups


def _share_groups(connection: BrokerConnection, names: list[str]) -> list[ShareGroup]:
    if not names:
        return []
    return connection.ask(ShareGroupDescribeRequest(group_ids=names), ShareGroupDescribeResponse).groups


def _is_missing(code: int) -> bool:
    return code in GroupNotFound.codes


def _consumer_info(group: ConsumerGroup) -> GroupInfo:
    if group.error_code:
        raise refused(group.error_code, group.error_message, group.group_id)
    return GroupInfo(
        name=group.group_id,
        state=group.group_state,
        protocol=GroupProtocol.CONSUMER,
        assignor=group.assignor_name,
        members=[_consumer_member(member) for member in group.members],
    )


def _classic_info(group: ClassicGroup) -> GroupInfo:
    if group.error_code:
        raise refused(group.error_code, group.error_message, group.group_id)
    return GroupInfo(
        name=group.group_id,
        state=group.group_state,
        protocol=GroupProtocol.CLASSIC,
        assignor=group.protocol_data,
        members=[_classic_member(member) for member in group.members],
        # Those of Kafka's protocol have said which type theirs is.
        follows_resets=bool(group.members) and not group.protocol_type,
    )


def _share_info(group: ShareGroup) -> GroupInfo:
    if group.error_code:
        raise refused(group.error_code, group.error_message, group.group_id)
    return GroupInfo(
        name=group.group_id,
        state=group.group_state,
        protocol=GroupProtocol.SHARE,
        assignor="",
        members=[_share_member(member) for member in group.members],
    )


def _streams_info(group: StreamsGroup) -> GroupInfo:
    if group.error_code:
        raise refused(group.error_code, group.error_message, group.group_id)
    read: dict[str, list[str]] = {}
    for each in (group.topology.subtopologies if group.topology else None) or ():
        read[each.subtopology_id] = [
            *each.source_topics,
            *(topic.name for topic in each.repartition_source_topics),
        ]
    return GroupInfo(
        name=group.group_id,
        state=group.group_state,
        protocol=GroupProtocol.STREAMS,
        assignor="sticky",
        members=[_streams_member(member, read) for member in group.members],
    )


def _streams_member(member: StreamsMember, read: Mapping[str, list[str]]) -> GroupMember:
    """With the partitions that its active tasks read."""
    return GroupMember(
        id=member.member_id,
        instance=member.instance_id,
        client=member.client_id,
        host=_host(member.client_host),
        partitions=sorted(
            TopicPartition(topic, index)
            for tasks in member.assignment.active_tasks
            for topic in read.get(tasks.subtopology_id, ())
            for index in tasks.partitions
        ),
    )


def _consumer_member(member: Member) -> GroupMember:
    return GroupMember(
        id=member.member_id,
        instance=member.instance_id,
        client=member.client_id,
        host=_host(member.client_host),
        partitions=_partitions(member.assignment),
    )


def _share_member(member: ShareMember) -> GroupMember:
    return GroupMember(
        id=member.member_id,
        instance=None,
        client=member.client_id,
        host=_host(member.client_host),
        partitions=sorted(
            TopicPartition(topic.topic_name, index)
            for topic in member.assignment.topic_partitions
            for index in topic.partitions
        ),
    )


def _classic_member(member: DescribedGroupMember) -> GroupMember:
    return GroupMember(
        id=member.member_id,
        instance=member.group_instance_id,
        client=member.client_id,
        host=_host(member.client_host),
        partitions=decode_assignment(member.member_assignment),
    )


def _partitions(assignment: Assignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def _host(text: str) -> str:
    """Brokers write addresses as Java prints them."""
    return text.removeprefix("/")
