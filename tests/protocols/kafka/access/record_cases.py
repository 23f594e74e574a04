"""Requests about records and topics."""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.access.cases import CREATION, Case, case, on_cluster, on_topic
from tests.protocols.kafka.access.roles import TOPIC
from tests.protocols.kafka.access.scene import Scene
from tests.protocols.kafka.wire import batch

_O = Operation
_RECORDS = bytes(batch(b"two"))


def _produce(**topic: object) -> dict[str, object]:
    data = {**topic, "partition_data": [{"index": 0, "records": _RECORDS}]}
    return {"acks": -1, "timeout_ms": 1000, "topic_data": [data]}


def _fetch(**topic: object) -> dict[str, object]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {"session_epoch": -1, "topics": [{**topic, "partitions": [partition]}]}


def _by_id(scene: Scene) -> dict[str, object]:
    return {"topic_id": scene.topic.id}


def _partitions(**partition: object) -> list[dict[str, object]]:
    return [{"name": TOPIC, "partitions": [partition]}]


_BY_NAME = {"name": TOPIC}

RECORD_CASES: tuple[Case, ...] = (
    case("produce", [on_topic(_O.WRITE)], lambda scene: _produce(**_by_id(scene))),
    case("produce", [on_topic(_O.WRITE)], _produce(name=TOPIC), version=9),
    case(
        "produce",
        [on_topic(_O.WRITE)],
        _produce(name=TOPIC),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        version=9,
        with_topic=False,
        of="missing",
    ),
    case("fetch", [on_topic(_O.READ)], lambda scene: _fetch(**_by_id(scene))),
    case("fetch", [on_topic(_O.READ)], _fetch(topic=TOPIC), version=12),
    case(
        "fetch",
        [on_topic(_O.READ)],
        _fetch(topic=TOPIC),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        version=12,
        with_topic=False,
        of="missing",
    ),
    case(
        "list_offsets",
        [on_topic(_O.DESCRIBE)],
        {"topics": _partitions(partition_index=0, timestamp=-1)},
    ),
    case(
        "list_offsets",
        [on_topic(_O.DESCRIBE)],
        {"topics": _partitions(partition_index=0, timestamp=-1)},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        with_topic=False,
        of="missing",
    ),
    case("metadata", [on_topic(_O.DESCRIBE)], {"topics": [_BY_NAME]}),
    case("metadata", [on_topic(_O.DESCRIBE)], lambda scene: {"topics": [_by_id(scene)]}, of="id"),
    case("metadata", [], {"topics": None}, of="all"),
    case(
        "metadata",
        [on_topic(_O.DESCRIBE)],
        {"topics": [_BY_NAME], "allow_auto_topic_creation": False},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        with_topic=False,
        of="missing",
    ),
    case("metadata", [on_topic(_O.DESCRIBE), CREATION], {"topics": [_BY_NAME]}, with_topic=False, of="new"),
    case("describe_topic_partitions", [on_topic(_O.DESCRIBE)], {"topics": [_BY_NAME]}),
    case("describe_topic_partitions", [], {"topics": []}, of="all"),
    case(
        "create_topics",
        [CREATION],
        {"topics": [{"name": TOPIC, "num_partitions": 1, "replication_factor": 1}]},
        # From version 5 on the settings come along, which is another question.
        version=4,
        with_topic=False,
    ),
    case(
        "create_topics",
        [CREATION],
        {"topics": [{"name": TOPIC, "num_partitions": 1, "replication_factor": 1}]},
        ErrorCode.TOPIC_ALREADY_EXISTS,
        version=4,
        of="existing",
    ),
    case("delete_topics", [on_topic(_O.DELETE)], {"topics": [{"name": TOPIC}]}),
    case("delete_topics", [on_topic(_O.DELETE)], lambda scene: {"topics": [_by_id(scene)]}, of="id"),
    case(
        "delete_topics",
        [on_topic(_O.DELETE)],
        {"topics": [{"name": TOPIC}]},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        with_topic=False,
        of="missing",
    ),
    case("delete_records", [on_topic(_O.DELETE)], {"topics": _partitions(partition_index=0, offset=-1)}),
    case(
        "create_partitions",
        [on_topic(_O.ALTER)],
        {"topics": [{"name": TOPIC, "count": 2, "assignments": None}]},
    ),
    case(
        "create_partitions",
        [on_topic(_O.ALTER)],
        {"topics": [{"name": TOPIC, "count": 2, "assignments": None}]},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        with_topic=False,
        of="missing",
    ),
    case(
        "offset_for_leader_epoch",
        [on_topic(_O.DESCRIBE)],
        {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
    ),
    case(
        "describe_producers",
        [on_topic(_O.READ)],
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    ),
    case(
        "elect_leaders",
        [on_cluster(_O.ALTER)],
        {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]},
        ErrorCode.ELECTION_NOT_NEEDED,
    ),
    case(
        "alter_partition_reassignments",
        [on_cluster(_O.ALTER)],
        {"topics": _partitions(partition_index=0, replicas=[1])},
    ),
    case("list_partition_reassignments", [on_cluster(_O.DESCRIBE)], {"topics": None}),
    case(
        "alter_replica_log_dirs",
        [on_cluster(_O.ALTER)],
        {"dirs": [{"path": "/", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        ErrorCode.LOG_DIR_NOT_FOUND,
    ),
    case("describe_log_dirs", [on_cluster(_O.DESCRIBE)], {"topics": None}),
    case("describe_log_dirs", [on_cluster(_O.DESCRIBE)], {"topics": None}, version=2),
)
