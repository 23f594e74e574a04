"""How far share groups have come, and moving them."""

from collections.abc import Mapping
from typing import NamedTuple

from posthouse.client.cluster import Cluster
from posthouse.client.errors import UNKNOWN_TOPIC_CODES, refused
from posthouse.client.group_coordinators import ask_coordinator
from posthouse.client.topic_partitions import TopicPartition
from posthouse.protocols.kafka.codec.generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)


class SharedProgress(NamedTuple):
    start: int
    """Below it, everything is acknowledged."""
    lag: int


def shared_progress(cluster: Cluster, group: str) -> dict[TopicPartition, SharedProgress]:
    """Every partition that the group has begun to read."""
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    )
    [answer] = ask_coordinator(
        cluster,
        group,
        lambda connection: connection.ask(request, DescribeShareGroupOffsetsResponse).groups,
        lambda groups: groups[0].error_code,
    )
    if answer.error_code:
        raise refused(answer.error_code, answer.error_message, group)
    found = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise refused(partition.error_code, partition.error_message, topic.topic_name)
            place = TopicPartition(topic.topic_name, partition.partition_index)
            found[place] = SharedProgress(partition.start_offset, partition.lag)
    return found


def move_share_group(cluster: Cluster, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Set where the group goes on: the offset by partition, for each topic. Raises GroupActive if it has
    members that would not follow, and for the first offset that the broker refuses."""
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in wanted.items()
                ],
            )
            for name, wanted in offsets.items()
            if wanted
        ],
    )
    answer = ask_coordinator(
        cluster,
        group,
        lambda connection: connection.ask(request, AlterShareGroupOffsetsResponse),
        lambda response: response.error_code,
    )
    if answer.error_code:
        raise refused(answer.error_code, answer.error_message, group)
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.error_code:
                about_topic = partition.error_code in UNKNOWN_TOPIC_CODES
                name = topic.topic_name if about_topic else group
                raise refused(partition.error_code, partition.error_message, name)
