"""Partitions of metadata responses. Those with the same number and leader are equal in all topics, so they
are created once."""

from collections.abc import Iterable

from posthouse.protocols.kafka.codec.generated.metadata import MetadataResponsePartition
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.nodes import NO_NODE_ID
from posthouse.records.batch import LEADER_EPOCH


class _OfLeader(dict[int, MetadataResponsePartition]):
    """By their number."""

    def __init__(self, leader: int) -> None:
        super().__init__()
        self._leader = leader
        self._replicas = [] if leader == NO_NODE_ID else [leader]
        """Only the leader: there is one copy, in the storage, and its newest records are in that broker's
        memory."""

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


class _ByLeader(dict[int, _OfLeader]):
    def __missing__(self, leader: int) -> _OfLeader:
        created = self[leader] = _OfLeader(leader)
        return created


_KNOWN = _ByLeader()


def led_partitions(leaders: Iterable[int]) -> list[MetadataResponsePartition]:
    """`leaders` are the leaders of the partitions, in order."""
    return [_KNOWN[leader][index] for index, leader in enumerate(leaders)]
