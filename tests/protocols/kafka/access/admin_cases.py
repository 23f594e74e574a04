"""Requests about the broker, its settings, its users and what they may do."""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.config_resources import ResourceType
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.access.cases import Case, Need, case, on_cluster, on_group, on_topic
from tests.protocols.kafka.access.roles import GROUP, TOPIC

_O = Operation

_CONFIGURED: tuple[tuple[str, ResourceType, str, str], ...] = (
    ("topic", ResourceType.TOPIC, TOPIC, "retention.ms"),
    ("group", ResourceType.GROUP, GROUP, "share.heartbeat.interval.ms"),
    ("broker", ResourceType.BROKER, "1", "log.cleaner.delete.retention.ms"),
)


def _on(kind: str, operation: Operation) -> Need:
    needs = {"topic": on_topic(operation), "group": on_group(operation), "broker": on_cluster(operation)}
    return needs[kind]


def _configs(package: str, operation: Operation) -> list[Case]:
    return [
        case(
            package,
            [_on(kind, operation)],
            {
                "resources": [
                    {
                        "resource_type": int(resource),
                        "resource_name": name,
                        "configs": [{"name": setting, "value": "6000"}],
                    }
                ]
            },
            of=kind,
        )
        for kind, resource, name, setting in _CONFIGURED
    ]


_ACL = {
    "resource_type": 2,
    "resource_name": "new",
    "resource_pattern_type": 3,
    "principal": "User:new",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "new",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}

ADMIN_CASES: tuple[Case, ...] = (
    case("api_versions", [], {"client_software_name": "test", "client_software_version": "1"}),
    case("describe_cluster", [], {"include_cluster_authorized_operations": True}),
    case(
        "describe_quorum",
        [on_cluster(_O.DESCRIBE)],
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    *(
        case(
            "describe_configs",
            [_on(kind, _O.DESCRIBE_CONFIGS)],
            {
                "resources": [
                    {"resource_type": int(resource), "resource_name": name, "configuration_keys": None}
                ]
            },
            of=kind,
        )
        for kind, resource, name, _ in _CONFIGURED
    ),
    *_configs("alter_configs", _O.ALTER_CONFIGS),
    *_configs("incremental_alter_configs", _O.ALTER_CONFIGS),
    case("list_config_resources", [on_cluster(_O.DESCRIBE_CONFIGS)]),
    case("describe_acls", [on_cluster(_O.DESCRIBE)], _FILTER),
    case("create_acls", [on_cluster(_O.ALTER)], {"creations": [_ACL]}),
    case("delete_acls", [on_cluster(_O.ALTER)], {"filters": [_FILTER]}),
    case("describe_client_quotas", [on_cluster(_O.DESCRIBE_CONFIGS)]),
    case(
        "alter_client_quotas",
        [on_cluster(_O.ALTER_CONFIGS)],
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "new"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9}],
                }
            ]
        },
    ),
    case("describe_user_scram_credentials", [on_cluster(_O.DESCRIBE)], {"users": None}),
    case(
        "alter_user_scram_credentials",
        [on_cluster(_O.ALTER)],
        {
            "upsertions": [
                {
                    "name": "new",
                    "mechanism": 1,
                    "iterations": 8192,
                    "salt": b"salt",
                    "salted_password": bytes(32),
                }
            ]
        },
    ),
    case(
        "update_features",
        [on_cluster(_O.ALTER)],
        {"feature_updates": [{"feature": "metadata.version", "max_version_level": 30, "upgrade_type": 1}]},
    ),
    # Everybody may tell how they are: KIP-714 asks for no permission.
    case("get_telemetry_subscriptions", [], {}),
    case(
        "push_telemetry",
        [],
        {"client_instance_id": b"1" * 16, "subscription_id": 1},
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ),
    *(
        case(f"{verb}_delegation_token", [], {}, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        for verb in ("create", "renew", "expire", "describe")
    ),
    # Whoever has logged in may do so again, as themselves: see test_login.
    case("sasl_handshake", [], {"mechanism": "SCRAM-SHA-256"}),
    case("sasl_authenticate", [], {}, ErrorCode.ILLEGAL_SASL_STATE),
)
