"""Partitions of metadata responses. Those with the same number and replicas are equal in all topics, so they
are created once.

There is one copy of a partition, in the storage. Its *replicas* are the brokers that clients should use: the
leader, and for consumers one broker of every other rack. All of them are in sync.
"""

from collections.abc import Iterable

from posthouse.protocols.kafka.codec.generated.metadata import MetadataResponsePartition
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.nodes import NO_NODE_ID
from posthouse.protocols.leaders import Replicas
from posthouse.records.batch import LEADER_EPOCH

_MOST_KINDS = 1000
"""Lists of replicas whose partitions are remembered. A small cluster has fewer."""


class _WithReplicas(dict[int, MetadataResponsePartition]):
    """By their number."""

    def __init__(self, replicas: Replicas) -> None:
        super().__init__()
        self._leader = leader_of(replicas)
        self._replicas = list(replicas)

    def __missing__(self, index: int) -> MetadataResponsePartition:
        code = ErrorCode.NONE if self._replicas else ErrorCode.LEADER_NOT_AVAILABLE
        created = self[index] = MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=self._leader,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=self._replicas,
            isr_nodes=self._replicas,
        )
        return created


class _ByReplicas(dict[Replicas, _WithReplicas]):
    def __missing__(self, replicas: Replicas) -> _WithReplicas:
        if len(self) >= _MOST_KINDS:
            self.clear()
        created = self[replicas] = _WithReplicas(replicas)
        return created


_KNOWN = _ByReplicas()


def led_partitions(replicas: Iterable[Replicas]) -> list[MetadataResponsePartition]:
    """`replicas` are those of the partitions, in order."""
    return [_KNOWN[each][index] for index, each in enumerate(replicas)]


def leader_of(replicas: Replicas) -> int:
    """`NO_NODE_ID` while there is none."""
    return replicas[0] if replicas else NO_NODE_ID
