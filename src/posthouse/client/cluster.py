"""Brokers and topics of a cluster, and the connections to them."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from posthouse.client.addresses import Node, parse_bootstrap
from posthouse.client.authenticator import ClientAuthenticator
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import (
    BrokerUnreachable,
    PartitionNotFound,
    RequestRefused,
    TopicNotReady,
    refused,
)
from posthouse.client.security import OPEN, Security
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_RETRY_SECONDS = 0.05
_UNKNOWN_PARTITION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    id: bytes
    leaders: Sequence[int]
    """The leader of each partition, in the order of partitions."""
    is_internal: bool = False

    @property
    def partitions(self) -> int:
        return len(self.leaders)

    def check_partitions(self, wanted: Iterable[int] | None) -> list[int]:
        """`wanted`, or all partitions; raises PartitionNotFound."""
        if wanted is None:
            return list(range(self.partitions))
        chosen = sorted(set(wanted))
        for index in chosen:
            if not 0 <= index < self.partitions:
                raise PartitionNotFound(
                    f"topic {self.name!r} has no partition {index}; "
                    f"choose one from 0 to {self.partitions - 1}",
                    _UNKNOWN_PARTITION,
                )
        return chosen

    def by_leader(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        grouped: dict[int, list[int]] = {}
        for index in partitions:
            grouped.setdefault(self.leaders[index], []).append(index)
        return grouped


class Cluster:
    def __init__(self, bootstrap: str, *, timeout: float, security: Security = OPEN) -> None:
        self._seeds = parse_bootstrap(bootstrap)
        self._authenticator = ClientAuthenticator(security)
        self.timeout = timeout
        self._nodes: dict[int, Node] = {}
        self.coordinators: dict[str, int] = {}
        """The ids of the brokers that coordinate groups, as far as they are known."""
        self._connections: dict[Node, BrokerConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self.coordinators.clear()

    def any(self) -> BrokerConnection:
        """A connection to the first bootstrap address that answers, in their order."""
        for node in self._seeds:
            if node in self._connections:
                return self._connections[node]
        failure: BrokerUnreachable | None = None
        for node in self._seeds:
            try:
                return self._connect(node)
            except BrokerUnreachable as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def broker(self, node_id: int) -> BrokerConnection:
        node = self._nodes.get(node_id)
        if node is None:
            return self.any()
        return self._connections.get(node) or self._connect(node)

    def node_ids(self) -> list[int]:
        """Of all brokers, as far as they are known."""
        if not self._nodes:
            self.refresh_nodes()
        return list(self._nodes)

    def cluster_id(self) -> str:
        """Of these brokers, or of this one with its data; no other has it."""
        response = self._metadata(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return response.cluster_id or ""

    def refresh_nodes(self) -> None:
        self._metadata(MetadataRequest(topics=[], allow_auto_topic_creation=False))

    def brokers(self) -> list[BrokerConnection]:
        """All of them. Each lists the groups that it coordinates."""
        self.refresh_nodes()
        return [self.any()] if len(self._nodes) == 1 else [self.broker(each) for each in self._nodes]

    def drop(self, node_id: int) -> None:
        """The broker is gone: connect anew the next time."""
        connection = self._connections.pop(self._nodes[node_id], None) if node_id in self._nodes else None
        if connection is not None:
            connection.close()

    def open(self, node_id: int) -> BrokerConnection:
        """A dedicated connection; the caller closes it."""
        node = self._nodes.get(node_id) or self.any().node
        return BrokerConnection(node, timeout=self.timeout, authenticator=self._authenticator)

    def topics(self) -> list[TopicInfo]:
        response = self._metadata(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        infos = [_info(topic) for topic in response.topics if not topic.error_code]
        return sorted(infos, key=lambda info: info.name)

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """One topic; with `create` the broker creates it if it is missing and its settings allow that."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
        deadline = time.monotonic() + self.timeout
        while True:
            [topic] = self._metadata(request).topics
            if not topic.error_code:
                return _info(topic)
            error = refused(topic.error_code, None, name)
            if not isinstance(error, TopicNotReady) or time.monotonic() > deadline:
                raise error
            # Another client is creating it, and no broker tells when that is done.
            time.sleep(_RETRY_SECONDS)

    def _connect(self, node: Node) -> BrokerConnection:
        connection = self._connections[node] = BrokerConnection(
            node, timeout=self.timeout, authenticator=self._authenticator
        )
        return connection

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = self.any().ask(request, MetadataResponse)
        if response.error_code:
            raise RequestRefused("the broker does not list its topics; look at its log", response.error_code)
        self._nodes = {broker.node_id: Node(broker.host, broker.port) for broker in response.brokers}
        return response


def _info(topic: MetadataResponseTopic) -> TopicInfo:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicInfo(
        name=topic.name or "",
        id=topic.topic_id,
        leaders=tuple(partition.leader_id for partition in partitions),
        is_internal=topic.is_internal,
    )
