"""Operations in Kafka's codes, and a client's permissions as Kafka's bit fields."""

from collections.abc import Iterable
from typing import Protocol

from posthouse.broker.access.guard import Guard, OpenGuard
from posthouse.broker.access.operations import CLUSTER, POSSIBLE, Kind, Operation

OPERATION_CODES: dict[Operation, int] = {
    Operation.ALL: 2,
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
    Operation.TWO_PHASE_COMMIT: 15,
}

NOT_ASKED = -(2**31)
_NONE = 0
_EVERYTHING = {
    kind: sum(1 << OPERATION_CODES[operation] for operation in operations)
    for kind, operations in POSSIBLE.items()
}


def topic_operations(guard: Guard, name: str) -> int:
    return _allowed(guard, Kind.TOPIC, name)


class GroupWithOperations(Protocol):
    group_id: str
    error_code: int
    authorized_operations: int


def add_group_operations(guard: Guard, groups: Iterable[GroupWithOperations], *, asked: bool) -> None:
    """Describe what the client may do with each group, if it has asked for that."""
    for group in groups:
        is_told = asked and not group.error_code
        group.authorized_operations = _allowed(guard, Kind.GROUP, group.group_id) if is_told else NOT_ASKED


def cluster_operations(guard: Guard) -> int:
    """The permitted operations on the cluster; none for clients that may not describe it."""
    return _allowed(guard, Kind.CLUSTER, CLUSTER) if guard.sees(Kind.CLUSTER, CLUSTER) else _NONE


def _allowed(guard: Guard, kind: Kind, name: str) -> int:
    if isinstance(guard, OpenGuard):
        return _EVERYTHING[kind]
    return sum(
        1 << OPERATION_CODES[operation] for operation in POSSIBLE[kind] if guard.may(operation, kind, name)
    )
