"""Operations and the kinds of resources that they apply to, with Kafka's names."""

from enum import StrEnum


class Operation(StrEnum):
    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"
    TWO_PHASE_COMMIT = "two-phase-commit"


class Kind(StrEnum):
    """The kind of a resource."""

    TOPIC = "topic"
    """Topics, and exchanges or queues of the same name."""
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


CLUSTER = "kafka-cluster"
"""The name of the one resource of kind `CLUSTER`: all brokers that serve the same data, by any protocol.

The spelling is part of the keys of stored permissions, of audit lines and of what Kafka clients send, so it
stays. Code compares with this constant and never spells the name.
"""

_O = Operation

POSSIBLE: dict[Kind, frozenset[Operation]] = {
    Kind.TOPIC: frozenset(
        {
            _O.READ,
            _O.WRITE,
            _O.CREATE,
            _O.DELETE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
        }
    ),
    Kind.GROUP: frozenset({_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    Kind.CLUSTER: frozenset(
        {
            _O.CREATE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
        }
    ),
    Kind.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT}),
}
"""The operations that apply to each kind of resource."""

IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({_O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({_O.ALTER_CONFIGS}),
}
"""An operation, and the operations that imply it."""

CHANGING = frozenset({_O.CREATE, _O.DELETE, _O.ALTER, _O.ALTER_CONFIGS, _O.CLUSTER_ACTION})
"""Operations that are audited also when they are allowed."""
