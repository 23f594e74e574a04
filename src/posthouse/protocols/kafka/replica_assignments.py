"""Checks of replica assignments: a partition has one replica."""

from collections.abc import Sequence

from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.nodes import Node


def check_replicas(brokers: Sequence[int], node: Node) -> None:
    """Raises Refused unless a new partition can have its replicas on exactly these brokers."""
    if not brokers:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned to no broker")
    known = {each.id for each in node.all()}
    strange = next((broker for broker in brokers if broker not in known), None)
    if strange is not None:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {strange}; this one is {node.id}"
        )
    if len(set(brokers)) < len(brokers):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {brokers[0]} is assigned more than once")
    if len(brokers) > 1:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition has one replica")
