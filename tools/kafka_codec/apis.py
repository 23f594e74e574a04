"""The APIs that are generated. To add one, add a line."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiRange:
    """An API by its kio package name, with the versions that are implemented.

    `advertised_min` differs from `min_version` where clients need to see versions that nobody uses:
    librdkafka switches features off when Produce does not start at 0.
    """

    key: int
    package: str
    min_version: int
    max_version: int
    advertised_min: int | None = None

    @property
    def versions(self) -> range:
        return range(self.min_version, self.max_version + 1)


APIS = (
    ApiRange(0, "produce", 3, 13, advertised_min=0),
    ApiRange(1, "fetch", 4, 18),
    ApiRange(2, "list_offsets", 1, 11),
    ApiRange(3, "metadata", 0, 13),
    ApiRange(8, "offset_commit", 2, 10),
    ApiRange(9, "offset_fetch", 1, 10),
    ApiRange(10, "find_coordinator", 0, 6),
    ApiRange(11, "join_group", 0, 9),
    ApiRange(12, "heartbeat", 0, 4),
    ApiRange(13, "leave_group", 0, 5),
    ApiRange(14, "sync_group", 0, 5),
    ApiRange(15, "describe_groups", 0, 6),
    ApiRange(16, "list_groups", 0, 5),
    ApiRange(17, "sasl_handshake", 0, 1),
    ApiRange(18, "api_versions", 0, 4),
    ApiRange(19, "create_topics", 2, 7),
    ApiRange(20, "delete_topics", 1, 6),
    ApiRange(21, "delete_records", 0, 2),
    ApiRange(22, "init_producer_id", 0, 6),
    ApiRange(23, "offset_for_leader_epoch", 2, 4),
    ApiRange(24, "add_partitions_to_txn", 0, 5),
    ApiRange(25, "add_offsets_to_txn", 0, 4),
    ApiRange(26, "end_txn", 0, 5),
    ApiRange(27, "write_txn_markers", 1, 2),
    ApiRange(28, "txn_offset_commit", 0, 5),
    ApiRange(29, "describe_acls", 1, 3),
    ApiRange(30, "create_acls", 1, 3),
    ApiRange(31, "delete_acls", 1, 3),
    ApiRange(32, "describe_configs", 1, 4),
    ApiRange(33, "alter_configs", 0, 2),
    ApiRange(34, "alter_replica_log_dirs", 1, 2),
    ApiRange(35, "describe_log_dirs", 1, 4),
    ApiRange(36, "sasl_authenticate", 0, 2),
    ApiRange(37, "create_partitions", 0, 3),
    ApiRange(38, "create_delegation_token", 1, 3),
    ApiRange(39, "renew_delegation_token", 1, 2),
    ApiRange(40, "expire_delegation_token", 1, 2),
    ApiRange(41, "describe_delegation_token", 1, 3),
    ApiRange(42, "delete_groups", 0, 2),
    ApiRange(43, "elect_leaders", 0, 2),
    ApiRange(44, "incremental_alter_configs", 0, 1),
    ApiRange(45, "alter_partition_reassignments", 0, 1),
    ApiRange(46, "list_partition_reassignments", 0, 0),
    ApiRange(47, "offset_delete", 0, 0),
    ApiRange(48, "describe_client_quotas", 0, 1),
    ApiRange(49, "alter_client_quotas", 0, 1),
    ApiRange(50, "describe_user_scram_credentials", 0, 0),
    ApiRange(51, "alter_user_scram_credentials", 0, 0),
    ApiRange(55, "describe_quorum", 0, 2),
    ApiRange(57, "update_features", 0, 2),
    ApiRange(60, "describe_cluster", 0, 2),
    ApiRange(61, "describe_producers", 0, 0),
    ApiRange(65, "describe_transactions", 0, 0),
    ApiRange(66, "list_transactions", 0, 2),
    ApiRange(68, "consumer_group_heartbeat", 0, 1),
    ApiRange(69, "consumer_group_describe", 0, 1),
    ApiRange(71, "get_telemetry_subscriptions", 0, 0),
    ApiRange(72, "push_telemetry", 0, 0),
    ApiRange(74, "list_config_resources", 0, 1),
    ApiRange(75, "describe_topic_partitions", 0, 0),
    ApiRange(76, "share_group_heartbeat", 1, 1),
    ApiRange(77, "share_group_describe", 1, 1),
    ApiRange(78, "share_fetch", 1, 2),
    ApiRange(79, "share_acknowledge", 1, 2),
    ApiRange(88, "streams_group_heartbeat", 0, 0),
    ApiRange(89, "streams_group_describe", 0, 0),
    ApiRange(90, "describe_share_group_offsets", 0, 1),
    ApiRange(91, "alter_share_group_offsets", 0, 0),
    ApiRange(92, "delete_share_group_offsets", 0, 0),
)
