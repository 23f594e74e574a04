"""The leader epoch. Every partition has had one leader, so there is one epoch."""

from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.records.batch import LEADER_EPOCH, NO_LEADER_EPOCH


def check_leader_epoch(current: int) -> None:
    """Raises Refused if the client has another epoch."""
    if current in (NO_LEADER_EPOCH, LEADER_EPOCH):
        return
    if current > LEADER_EPOCH:
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {current} is unknown")
    raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {current} is fenced")
