"""Requests about groups, share groups and transactions."""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.access.cases import (
    IDEMPOTENCE,
    Case,
    case,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
)
from tests.protocols.kafka.access.roles import GROUP, TOPIC, TRANSACTION
from tests.protocols.kafka.access.scene import Scene
from tests.protocols.kafka.wire import batch

_O = Operation
_MEMBER = {"group_id": GROUP, "member_id": "m"}
_OFFSET = {"partition_index": 0, "committed_offset": 1}


def _producer(scene: Scene) -> dict[str, object]:
    return {"producer_id": scene.producer.producer_id, "producer_epoch": scene.producer.epoch}


def _old_producer(scene: Scene) -> dict[str, object]:
    return {f"v3_and_below_{name}": value for name, value in _transactional(scene).items()}


def _transactional(scene: Scene) -> dict[str, object]:
    return {"transactional_id": TRANSACTION, **_producer(scene)}


_TOPICS = [{"name": TOPIC, "partitions": [0]}]

GROUP_CASES: tuple[Case, ...] = (
    case("find_coordinator", [on_group(_O.DESCRIBE)], {"key_type": 0, "coordinator_keys": [GROUP]}),
    case("find_coordinator", [on_group(_O.DESCRIBE)], {"key_type": 0, "key": GROUP}, version=3),
    case(
        "find_coordinator",
        [on_transaction(_O.DESCRIBE)],
        {"key_type": 1, "coordinator_keys": [TRANSACTION]},
        of="transaction",
    ),
    case(
        "join_group",
        [on_group(_O.READ)],
        {
            "group_id": GROUP,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        ErrorCode.MEMBER_ID_REQUIRED,
    ),
    case(
        "sync_group",
        [on_group(_O.READ)],
        {**_MEMBER, "generation_id": 1},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    case("heartbeat", [on_group(_O.READ)], {**_MEMBER, "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    case(
        "leave_group",
        [on_group(_O.READ)],
        {"group_id": GROUP, "members": [{"member_id": "m"}]},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    case("describe_groups", [on_group(_O.DESCRIBE)], {"groups": [GROUP]}, ErrorCode.GROUP_ID_NOT_FOUND),
    case("list_groups", []),
    case("delete_groups", [on_group(_O.DELETE)], {"groups_names": [GROUP]}, ErrorCode.GROUP_ID_NOT_FOUND),
    case(
        "offset_commit",
        [on_group(_O.READ), on_topic(_O.READ)],
        lambda scene: {
            "group_id": GROUP,
            "topics": [{"topic_id": scene.topic.id, "partitions": [_OFFSET]}],
        },
    ),
    case(
        "offset_commit",
        [on_group(_O.READ), on_topic(_O.READ)],
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [_OFFSET]}]},
        version=9,
    ),
    case(
        "offset_fetch",
        [on_group(_O.DESCRIBE), on_topic(_O.DESCRIBE)],
        lambda scene: {
            "groups": [
                {"group_id": GROUP, "topics": [{"topic_id": scene.topic.id, "partition_indexes": [0]}]}
            ]
        },
    ),
    case(
        "offset_fetch",
        [on_group(_O.DESCRIBE), on_topic(_O.DESCRIBE)],
        {"groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]},
        version=9,
        with_topic=False,
        of="missing",
    ),
    case(
        "offset_fetch", [on_group(_O.DESCRIBE)], {"groups": [{"group_id": GROUP, "topics": None}]}, of="all"
    ),
    case(
        "offset_fetch",
        [on_group(_O.DESCRIBE), on_topic(_O.DESCRIBE)],
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        version=1,
    ),
    case(
        "offset_delete",
        [on_group(_O.DELETE)],
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    case(
        "consumer_group_heartbeat",
        [on_group(_O.READ), on_topic(_O.DESCRIBE)],
        {
            **_MEMBER,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
    ),
    case(
        "consumer_group_heartbeat",
        [on_group(_O.READ)],
        {
            **_MEMBER,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_regex": ".*",
            "topic_partitions": [],
        },
        of="regex",
    ),
    case(
        "consumer_group_describe",
        [on_group(_O.DESCRIBE)],
        {"group_ids": [GROUP]},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    case(
        "streams_group_heartbeat",
        [on_group(_O.READ), on_topic(_O.DESCRIBE)],
        {
            **_MEMBER,
            "rebalance_timeout_ms": 10_000,
            "topology": {"subtopologies": [{"subtopology_id": "0", "source_topics": [TOPIC]}]},
            "task_offsets": None,
            "task_end_offsets": None,
        },
    ),
    case(
        "streams_group_describe",
        [on_group(_O.DESCRIBE)],
        {"group_ids": [GROUP]},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    case(
        "share_group_heartbeat",
        [on_group(_O.READ), on_topic(_O.DESCRIBE)],
        {**_MEMBER, "subscribed_topic_names": [TOPIC]},
    ),
    case(
        "share_group_describe",
        [on_group(_O.DESCRIBE)],
        {"group_ids": [GROUP]},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    case(
        "share_fetch",
        [on_group(_O.READ)],
        lambda scene: {
            **_MEMBER,
            "share_session_epoch": 1,
            "topics": [{"topic_id": scene.topic.id, "partitions": [{"partition_index": 0}]}],
        },
        ErrorCode.SHARE_SESSION_NOT_FOUND,
    ),
    case(
        "share_acknowledge",
        [on_group(_O.READ)],
        {**_MEMBER, "share_session_epoch": 1},
        ErrorCode.SHARE_SESSION_NOT_FOUND,
    ),
    case(
        "describe_share_group_offsets",
        [on_group(_O.DESCRIBE), on_topic(_O.DESCRIBE)],
        {"groups": [{"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]},
    ),
    case(
        "alter_share_group_offsets",
        [on_group(_O.READ), on_topic(_O.READ)],
        {
            "group_id": GROUP,
            "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
    ),
    case(
        "delete_share_group_offsets",
        [on_group(_O.DELETE)],
        {"group_id": GROUP, "topics": [{"topic_name": TOPIC}]},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
)

TRANSACTION_CASES: tuple[Case, ...] = (
    case(
        "init_producer_id",
        [on_transaction(_O.WRITE)],
        {"transactional_id": TRANSACTION, "transaction_timeout_ms": 1000},
    ),
    case("init_producer_id", [IDEMPOTENCE], {"transactional_id": None}, of="idempotent"),
    case(
        "init_producer_id",
        [on_transaction(_O.WRITE), on_transaction(_O.TWO_PHASE_COMMIT)],
        {"transactional_id": TRANSACTION, "transaction_timeout_ms": 1000, "enable2_pc": True},
        of="two-phase",
    ),
    case(
        "add_partitions_to_txn",
        [on_transaction(_O.WRITE), on_topic(_O.WRITE)],
        lambda scene: _old_producer(scene) | {"v3_and_below_topics": _TOPICS},
        version=3,
    ),
    case(
        "add_partitions_to_txn",
        [on_transaction(_O.WRITE), on_topic(_O.WRITE)],
        lambda scene: _old_producer(scene) | {"v3_and_below_topics": _TOPICS},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        version=3,
        with_topic=False,
        of="missing",
    ),
    case(
        "add_partitions_to_txn",
        [on_cluster(_O.CLUSTER_ACTION)],
        lambda scene: {"transactions": [_transactional(scene) | {"topics": _TOPICS}]},
    ),
    case(
        "produce",
        [on_transaction(_O.WRITE), on_topic(_O.WRITE)],
        {
            "transactional_id": TRANSACTION,
            "acks": -1,
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": 0, "records": bytes(batch(b"three"))}]}
            ],
        },
        version=9,
        of="transaction",
    ),
    case(
        "add_offsets_to_txn",
        [on_transaction(_O.WRITE), on_group(_O.READ)],
        lambda scene: _transactional(scene) | {"group_id": GROUP},
    ),
    case(
        "txn_offset_commit",
        [on_transaction(_O.WRITE), on_group(_O.READ), on_topic(_O.READ)],
        lambda scene: (
            _transactional(scene) | {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [_OFFSET]}]}
        ),
    ),
    case(
        "end_txn",
        [on_transaction(_O.WRITE)],
        lambda scene: _transactional(scene) | {"committed": True},
    ),
    case(
        "write_txn_markers",
        [on_cluster(_O.CLUSTER_ACTION, _O.ALTER)],
        lambda scene: {
            "markers": [_producer(scene) | {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}]
        },
    ),
    case("describe_transactions", [on_transaction(_O.DESCRIBE)], {"transactional_ids": [TRANSACTION]}),
    case("list_transactions", []),
)
