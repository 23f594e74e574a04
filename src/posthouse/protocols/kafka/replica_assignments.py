"""Checks of replica assignments: there is one broker."""

from collections.abc import Sequence

from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import NODE_ID


def check_replicas(brokers: Sequence[int]) -> None:
    """Raises Refused unless a new partition can have its replicas on exactly these brokers."""
    if not brokers:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned to no broker")
    strange = next((broker for broker in brokers if broker != NODE_ID), None)
    if strange is not None:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {strange}; this one is {NODE_ID}"
        )
    if len(brokers) > 1:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {NODE_ID} is assigned more than once")
