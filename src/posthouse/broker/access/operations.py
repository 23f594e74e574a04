"""What can be done to what. The names are Kafka's, which most people know."""

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


class Kind(StrEnum):
    """Of resource."""

    TOPIC = "topic"
    """Also the exchange or queue of that name."""
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
    Kind.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE}),
}
"""The operations that make sense on each kind of resource."""

IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({_O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({_O.ALTER_CONFIGS}),
}
"""An operation, and those that each allow it, too."""

CHANGING = frozenset({_O.CREATE, _O.DELETE, _O.ALTER, _O.ALTER_CONFIGS, _O.CLUSTER_ACTION})
"""What is written down also when it is allowed."""
