"""What scenarios ask of a Kafka listener, one request at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from posthouse.client.addresses import Node
from posthouse.client.connection import BrokerConnection
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.records.batch import iter_headers

TIMEOUT = 120.0
FETCH_BYTES = 8 << 20


class NotDone(Exception):
    """The broker refused what has to work here."""


@contextmanager
def connected(port: int) -> Iterator[BrokerConnection]:
    with closing(BrokerConnection(Node("127.0.0.1", port), timeout=TIMEOUT)) as connection:
        yield connection


def make_topics(
    connection: BrokerConnection,
    names: Sequence[str],
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> list[bytes]:
    """Their ids."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    wanted = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=configs)
        for name in names
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=int(TIMEOUT * 1000))
    made = connection.ask(request, CreateTopicsResponse).topics
    for topic in made:
        if topic.error_code:
            raise NotDone(f"{topic.name} was not made: {topic.error_message}")
    return [topic.topic_id for topic in made]


def delete_topic(connection: BrokerConnection, topic: bytes) -> None:
    state = DeleteTopicState(name=None, topic_id=topic)
    request = DeleteTopicsRequest(topics=[state], timeout_ms=int(TIMEOUT * 1000))
    for each in connection.ask(request, DeleteTopicsResponse).responses:
        if each.error_code:
            raise NotDone(f"a topic was not deleted: {each.error_message}")


def metadata(connection: BrokerConnection, names: Sequence[str] | None) -> MetadataResponse:
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return connection.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)


def fetch_request(topic: bytes, offset: int, *, wait_ms: int, max_bytes: int = FETCH_BYTES) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic_id=topic, partitions=[partition])],
    )


def fetch(connection: BrokerConnection, topic: bytes, offset: int, *, wait_ms: int) -> PartitionData:
    answer = connection.ask(fetch_request(topic, offset, wait_ms=wait_ms), FetchResponse, wait=wait_ms / 1000)
    [found] = answer.responses[0].partitions
    if found.error_code:
        raise NotDone(f"a fetch from offset {offset} failed with code {found.error_code}")
    return found


def offset_behind(records: memoryview, offset: int) -> int:
    """Where the next fetch begins; the same `offset` if nothing came."""
    for _, header in iter_headers(records):
        offset = header.next_offset
    return offset
