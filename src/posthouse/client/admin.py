"""Creating, describing, changing, trimming and deleting topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import refused
from posthouse.protocols.kafka.codec.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from posthouse.protocols.kafka.codec.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_BROKER_DECIDES = -1
_TOPIC = 2
_GROUP = 32
_SET = 0
_DELETE = 1


class SettingSource(IntEnum):
    """Where a value comes from; the numbers are the protocol's."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    name: str
    value: str
    source: int
    doc: str

    @property
    def is_own(self) -> bool:
        """Whether it is an override of the topic."""
        return self.source == SettingSource.TOPIC


def create_topic(
    connection: BrokerConnection,
    name: str,
    partitions: int | None,
    settings: Mapping[str, str],
    timeout: float,
) -> int:
    """Create a topic; returns its number of partitions."""
    topic = CreatableTopic(
        name=name,
        num_partitions=_BROKER_DECIDES if partitions is None else partitions,
        replication_factor=_BROKER_DECIDES,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(timeout * 1000))
    [result] = connection.ask(request, CreateTopicsResponse).topics
    if result.error_code:
        raise refused(result.error_code, result.error_message, name, needs="create")
    return result.num_partitions


def delete_topic(connection: BrokerConnection, name: str, timeout: float) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=int(timeout * 1000))
    [result] = connection.ask(request, DeleteTopicsResponse).responses
    if result.error_code:
        raise refused(result.error_code, result.error_message, name, needs="delete")


def trim_topic(
    connection: BrokerConnection, name: str, offsets: Mapping[int, int], timeout: float
) -> dict[int, int]:
    """Delete the records before an offset, by partition. Returns where each of them starts now."""
    partitions = [
        DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets.items()
    ]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=int(timeout * 1000)
    )
    [result] = connection.ask(request, DeleteRecordsResponse).topics
    for partition in result.partitions:
        if partition.error_code:
            raise refused(partition.error_code, None, name, needs="delete")
    return {partition.partition_index: partition.low_watermark for partition in result.partitions}


def add_partitions(connection: BrokerConnection, name: str, total: int, timeout: float) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=total)], timeout_ms=int(timeout * 1000)
    )
    [result] = connection.ask(request, CreatePartitionsResponse).results
    if result.error_code:
        raise refused(result.error_code, result.error_message, name, needs="alter")


def topic_settings(connection: BrokerConnection, name: str) -> list[TopicSetting]:
    return _settings(connection, _TOPIC, name)


def group_settings(connection: BrokerConnection, name: str) -> list[TopicSetting]:
    """The group need not exist."""
    return _settings(connection, _GROUP, name)


def _settings(connection: BrokerConnection, resource_type: int, name: str) -> list[TopicSetting]:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    [result] = connection.ask(request, DescribeConfigsResponse).results
    if result.error_code:
        raise refused(result.error_code, result.error_message, name, needs="describe-configs")
    return [
        TopicSetting(
            name=each.name,
            value=each.value or "",
            source=each.config_source,
            doc=each.documentation or "",
        )
        for each in result.configs
    ]


def change_settings(
    connection: BrokerConnection, name: str, settings: Mapping[str, str], unset: Sequence[str]
) -> None:
    """Of a topic."""
    _change(connection, _TOPIC, name, settings, unset)


def change_group_settings(
    connection: BrokerConnection, name: str, settings: Mapping[str, str], unset: Sequence[str]
) -> None:
    """The group need not exist."""
    _change(connection, _GROUP, name, settings, unset)


def _change(
    connection: BrokerConnection,
    resource_type: int,
    name: str,
    settings: Mapping[str, str],
    unset: Sequence[str],
) -> None:
    changes = [AlterableConfig(name=key, config_operation=_SET, value=settings[key]) for key in settings]
    changes += [AlterableConfig(name=key, config_operation=_DELETE) for key in unset]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [result] = connection.ask(request, IncrementalAlterConfigsResponse).responses
    if result.error_code:
        raise refused(result.error_code, result.error_message, name, needs="alter-configs")
