"""Every setting of the broker, declared once: type, default, flag, environment variable and meaning.

`loaded_settings` finds the values: in flags, the environment (POSTHOUSE_…) and a file.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from posthouse.cluster_settings import check_node_id, check_reachable, check_shared_storage
from posthouse.listener_settings import (
    ADMIN,
    AMQP,
    KAFKA,
    ROCKETMQ,
    ROCKETMQ_GRPC,
    Address,
    ListenerRules,
    ListenerSettings,
    listener_names,
    listener_setting,
)
from posthouse.model.errors import InvalidConfig
from posthouse.model.topic_config import Durability, TopicConfig
from posthouse.service_url import ServiceUrl
from posthouse.setting_values import (
    Authentication,
    ClientCertificates,
    parse_boolean,
    parse_log_format,
    parse_names,
    parse_networks,
    parse_path_or_off,
)

__all__ = [
    "MIB",
    "Address",
    "Authentication",
    "ClientCertificates",
    "Settings",
    "listener_names",
    "listener_setting",
]

MIB = 1024 * 1024


def _setting(default: Any, parse: Any, doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data: Path = _setting(
        Path("posthouse-data"), Path, "Data directory of the broker; created if it does not exist."
    )
    memory: bool = _setting(
        False, parse_boolean, "Keep everything in memory and write nothing to disk, for tests."
    )
    database: ServiceUrl | None = _setting(
        None,
        ServiceUrl.database,
        "PostgreSQL database of a storage that several brokers share, postgresql://…; needs objects, and "
        "posthouse[cluster]. A password is better given in POSTHOUSE_DATABASE than as an option.",
    )
    objects: ServiceUrl | None = _setting(
        None,
        ServiceUrl.objects,
        "Object store of a storage that several brokers share: s3://BUCKET/PREFIX, or file:///DIRECTORY for "
        "a file system that all of them have; needs database.",
    )
    broker_name: str = _setting(
        "",
        str,
        "Name of the broker among those that share its storage; by default its host and Kafka port.",
    )
    node_id: int | None = _setting(
        None,
        int,
        "Id of the broker among those that share its storage, as Kafka clients see it: from 1 on. By default "
        "the database gives one to each name.",
    )
    rack: str | None = _setting(
        None,
        str,
        "Rack or availability zone of the broker. Kafka consumers whose client.rack is the same read from "
        "the brokers of that rack, also what others lead.",
    )
    peer: Address = _setting(
        Address("127.0.0.1", 0),
        Address.parse,
        "Address for the other brokers that share the storage. They pass connections and requests of "
        "clients on to it, without TLS but for HTTP with TLS. Brokers on several machines need one that the "
        "others reach, on a private network.",
    )
    peer_advertised: Address | None = _setting(
        None, Address.parse, "Address at which other brokers reach peer, if it differs."
    )
    cache_bytes: int = _setting(
        256 * MIB, int, "Memory for blocks of a shared storage that were read or written lately."
    )
    cache_directory: Path | None = _setting(
        None,
        parse_path_or_off,
        "Local directory for more blocks of a shared storage. It may be lost at any time; off keeps none.",
    )
    cache_directory_bytes: int = _setting(10 * 1024 * MIB, int, "Most bytes in cache_directory.")
    inline_bytes: int = _setting(
        512 * 1024,
        int,
        "Largest group of writes that a shared storage keeps in the database; larger batches go to objects, "
        "and so does a backlog of more than four groups.",
    )
    kafka: Address | None = listener_setting(
        Address("127.0.0.1", 9092),
        KAFKA,
        "Address for Kafka clients; port 0 picks a free port, off disables the listener.",
    )
    kafka_advertised: Address | None = _setting(
        None,
        Address.parse,
        "Address that the broker advertises to Kafka clients; by default the one that the client connected "
        "to.",
    )
    amqp: Address | None = listener_setting(
        Address("127.0.0.1", 5672),
        AMQP,
        "Address for AMQP 0-9-1 clients (RabbitMQ's); port 0 picks a free port, off disables the listener.",
    )
    admin: Address | None = listener_setting(
        Address("127.0.0.1", 15672),
        ADMIN,
        "Address for operators, over HTTP: health, metrics, the JSON API and RabbitMQ's management API; port "
        "0 picks a free port, off disables the listener.",
    )
    rocketmq: Address | None = listener_setting(
        None,
        ROCKETMQ,
        "Address for RocketMQ clients (remoting protocol), name server and broker in one; port 0 picks a "
        "free port, off disables the listener. Not in a cluster.",
    )
    rocketmq_grpc: Address | None = listener_setting(
        None,
        ROCKETMQ_GRPC,
        "Address for RocketMQ clients of version 5 (gRPC); port 0 picks a free port, off disables the "
        "listener. Not in a cluster.",
    )
    rocketmq_advertised: Address | None = _setting(
        None,
        Address.parse,
        "Address that RocketMQ clients are told as that of the broker; by default the one that the client "
        "connected to.",
    )
    kafka_tls: Address | None = listener_setting(
        None,
        KAFKA,
        "Address for Kafka clients with TLS; port 0 picks a free port, off disables the listener.",
        has_tls=True,
    )
    kafka_tls_advertised: Address | None = _setting(
        None,
        Address.parse,
        "Address that the broker advertises to Kafka clients with TLS; see kafka_advertised.",
    )
    amqp_tls: Address | None = listener_setting(
        None,
        AMQP,
        "Address for AMQP clients with TLS; port 0 picks a free port, off disables the listener.",
        has_tls=True,
    )
    admin_tls: Address | None = listener_setting(
        None,
        ADMIN,
        "Address for operators, over HTTPS; port 0 picks a free port, off disables the listener.",
        has_tls=True,
    )
    tls_certificate: Path | None = _setting(
        None,
        Path,
        "Certificate chain of the broker, in PEM, the broker's own first; reloaded when the file changes.",
    )
    tls_key: Path | None = _setting(
        None, Path, "Private key of the certificate, in PEM, without a password; reloaded with it."
    )
    tls_client_ca: Path | None = _setting(
        None, Path, "Certificate authorities, in PEM, that may sign client certificates."
    )
    tls_client_certificates: ClientCertificates = _setting(
        ClientCertificates.OFF,
        ClientCertificates,
        "Whether clients with TLS present a certificate: off, optional or required.",
    )
    authentication: Authentication = _setting(
        Authentication.OFF,
        Authentication,
        "Whether clients must log in and need permissions: off or required.",
    )
    superusers: tuple[str, ...] = _setting(
        ("admin",), parse_names, "Users who may do everything, separated by commas."
    )
    admin_password_file: Path | None = _setting(
        None, Path, "File with the password of the first superuser; the broker sets it at each start."
    )
    scram_min_iterations: int = _setting(
        4096,
        int,
        "Fewest iterations that a new SCRAM password may have; Kafka's tools use 4096 by default.",
    )
    allow_cleartext_passwords: bool = _setting(
        False, parse_boolean, "Allow passwords over the network without TLS."
    )
    audit: Path | None = _setting(
        Path("audit.log"),
        parse_path_or_off,
        "Audit log file, relative to the data directory; off disables it. Without authentication, and with "
        "memory, no audit log is written.",
    )
    client_metrics: Path | None = _setting(
        None,
        parse_path_or_off,
        "File for the metrics that Kafka clients push, one JSON object per line, relative to the data "
        "directory. Off keeps only the latest push of each client, in memory.",
    )
    tracing: bool = _setting(
        False,
        parse_boolean,
        "Make OpenTelemetry spans of messages that carry a sampled trace context; needs posthouse[tracing]. "
        "OpenTelemetry's own variables (OTEL_…) say where they go.",
    )
    namespaces: tuple[str, ...] = _setting(
        ("/",), parse_names, "Namespaces (AMQP virtual hosts) besides the default one, separated by commas."
    )
    webhook_allow: tuple[str, ...] = _setting(
        (),
        parse_networks,
        "Networks that webhooks may push to although they are not public, such as 10.1.0.0/16, separated by "
        "commas. Only there may a webhook do without TLS.",
    )
    webhook_ca: Path | None = _setting(
        None,
        Path,
        "Certificate authorities, in PEM, that webhooks trust besides those of the system.",
    )
    secrets_key_file: Path | None = _setting(
        None,
        Path,
        "File with the key that encrypts the secrets of webhooks: one line with Base64 of 32 bytes. By "
        "default the broker makes secrets.key in the data directory.",
    )
    max_unacked: int = _setting(
        100_000,
        int,
        "Most unacknowledged messages of one AMQP channel; a channel at the limit gets no more deliveries.",
    )
    allow_open_network: bool = _setting(
        False, parse_boolean, "Listen on addresses beyond this machine without authentication."
    )
    auto_create_topics: bool = _setting(
        True, parse_boolean, "Create a topic when a client first asks for it."
    )
    default_partitions: int = _setting(
        4, int, "Partitions of a topic whose creator does not specify a number."
    )
    default_durability: Durability = _setting(
        Durability.FSYNC, Durability, "Durability of topics that do not set it: fsync or os."
    )
    journal_bytes: int = _setting(
        64 * MIB,
        int,
        "Size of one journal file; the broker makes a checkpoint after this many journalled bytes.",
    )
    open_files: int = _setting(
        0,
        int,
        "Most segment files that are kept open; 0 takes the descriptors that connections leave, up to half "
        "of the process limit.",
    )
    max_request_bytes: int = _setting(100 * MIB, int, "Largest request that a Kafka client may send.")
    max_connections: int = _setting(
        10_000,
        int,
        "Most connections at a time, at this broker; lowered at the start if the limit of open files is too "
        "small.",
    )
    max_connections_per_address: int = _setting(
        0,
        int,
        "Most connections from one network address at a time, at all brokers of a cluster; 0 for no limit.",
    )
    max_connections_per_user: int = _setting(
        0, int, "Most connections of one user at a time, at all brokers of a cluster; 0 for no limit."
    )
    offender_wait_seconds: float = _setting(
        1.0,
        float,
        "Longest delay for connections from an address whose clients are refused repeatedly; 0 for none.",
    )
    connection_buffer_bytes: int = _setting(
        8 * MIB,
        int,
        "Unanswered requests and unsent responses of one connection above which the broker stops reading "
        "from it.",
    )
    inflight_bytes: int = _setting(
        0,
        int,
        "Memory budget for unanswered requests and unsent responses of all connections. Above it the "
        "broker stops reading from connections that hold more than 64 KiB, and closes stalled ones. 0 "
        "takes a quarter of the memory, at most 1 GiB.",
    )
    metrics_max_objects: int = _setting(
        1000,
        int,
        "Topics, partitions, queues and groups that /metrics shows by name, of each kind. Further ones are "
        "summed under the label __other__.",
    )
    retention_check_seconds: float = _setting(
        60.0, float, "Seconds between two runs of retention, compaction and the expiry of offsets."
    )
    group_initial_rebalance_ms: int = _setting(
        100, int, "How long a new group waits for more members before its first rebalance."
    )
    group_min_session_ms: int = _setting(
        1000, int, "Shortest session timeout that a group member may ask for."
    )
    group_max_session_ms: int = _setting(
        1_800_000, int, "Longest session timeout that a group member may ask for."
    )
    group_max_size: int = _setting(10_000, int, "Most members of a group.")
    group_session_ms: int = _setting(
        45_000, int, "Session timeout of members whose partitions the broker assigns (KIP-848)."
    )
    group_heartbeat_ms: int = _setting(
        1000, int, "Heartbeat interval of members whose partitions the broker assigns (KIP-848)."
    )
    offsets_retention_minutes: int = _setting(
        10_080, int, "How long the offsets of a group without members are kept."
    )
    offset_metadata_bytes: int = _setting(4096, int, "Largest metadata text of a committed offset.")
    transaction_max_timeout_ms: int = _setting(
        900_000, int, "Longest transaction timeout that a producer may ask for."
    )
    transaction_two_phase_commit_enable: bool = _setting(
        False,
        parse_boolean,
        "Allow two-phase commits: their transactions have no timeout, and hold back readers until they are "
        "decided.",
    )
    producer_expiry_ms: int = _setting(
        86_400_000,
        int,
        "How long logs remember a silent idempotent producer, and an idempotency key of HTTP, in ms.",
    )
    idempotency_keys_max: int = _setting(
        250_000, int, "Most idempotency keys that are remembered; each takes about 1 KiB of memory."
    )
    shutdown_seconds: float = _setting(10.0, float, "How long a stop waits for requests in flight.")
    log_format: str = _setting(
        "text", parse_log_format, "Format of log lines: text, or json with one object per line."
    )
    log_level: str = _setting(
        "info", str, "Least severe log lines that are written: debug, info, warning or error."
    )

    def topic_defaults(self) -> TopicConfig:
        return TopicConfig(durability=self.default_durability)

    def check(self) -> None:
        """Raise InvalidConfig for values that are well-formed but invalid or unsafe."""
        self._check_listeners()
        self._check_access()
        self._check_shared_storage()
        if self.default_partitions < 1:
            raise InvalidConfig("default_partitions must be at least 1")
        if self.group_min_session_ms > self.group_max_session_ms:
            raise InvalidConfig("group_min_session_ms must not be above group_max_session_ms")
        if not 0 < self.transaction_max_timeout_ms < 2**31:
            raise InvalidConfig("transaction_max_timeout_ms must be from 1 to 2147483647")
        if self.producer_expiry_ms < 1000:
            raise InvalidConfig("producer_expiry_ms must be at least 1000")
        if self.idempotency_keys_max < 0:
            raise InvalidConfig("idempotency_keys_max must not be below 0")
        if self.journal_bytes < 64 * 1024:
            raise InvalidConfig("journal_bytes must be at least 65536")
        if self.metrics_max_objects < 0:
            raise InvalidConfig("metrics_max_objects must not be below 0")
        if self.open_files != 0 and self.open_files < 16:
            raise InvalidConfig("open_files must be at least 16, or 0")

    @property
    def listeners(self) -> list[ListenerSettings]:
        """The enabled listeners of all protocols, in the order of their settings."""
        return [
            ListenerSettings(
                name=each.name,
                declared=each.metadata["listener"],
                address=getattr(self, each.name),
                advertised=getattr(self, each.name + "_advertised", None),
            )
            for each in fields(self)
            if "listener" in each.metadata and getattr(self, each.name) is not None
        ]

    def _check_listeners(self) -> None:
        listeners = self.listeners
        if not listeners:
            raise InvalidConfig("all listeners are off; set the address of at least one")
        encrypted = [each.address for each in listeners if each.has_tls]
        if encrypted and (self.tls_certificate is None or self.tls_key is None):
            raise InvalidConfig(f"{encrypted[0]} needs the settings tls_certificate and tls_key")
        if self.tls_client_certificates is not ClientCertificates.OFF and self.tls_client_ca is None:
            raise InvalidConfig("tls_client_certificates needs tls_client_ca, the authorities to trust")
        ListenerRules(
            must_log_in=self.must_log_in,
            allow_open_network=self.allow_open_network,
            allow_cleartext_passwords=self.allow_cleartext_passwords,
            is_in_cluster=self.database is not None,
        ).check(listeners)

    def _check_access(self) -> None:
        if self.must_log_in and not self.superusers:
            raise InvalidConfig("authentication needs at least one user in superusers, who can add ACLs")
        if not 4096 <= self.scram_min_iterations <= 100_000:
            raise InvalidConfig("scram_min_iterations must be from 4096 to 100000")
        for name in ("max_connections", "max_connections_per_address", "max_connections_per_user"):
            if getattr(self, name) < (1 if name == "max_connections" else 0):
                raise InvalidConfig(f"{name} must not be {getattr(self, name)}")

    def _check_shared_storage(self) -> None:
        check_shared_storage(
            has_database=self.database is not None,
            has_objects=self.objects is not None,
            in_memory=self.memory,
        )
        if self.database is not None:
            check_reachable(self.listeners, self.peer, self.peer_advertised)
        if self.node_id is not None:
            check_node_id(self.node_id, has_database=self.database is not None)
        for name in ("cache_bytes", "cache_directory_bytes", "inline_bytes"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} must not be below 0")

    @property
    def must_log_in(self) -> bool:
        return self.authentication is Authentication.REQUIRED

    @property
    def keeps_records_in_data(self) -> bool:
        """Whether records are in files of the data directory."""
        return not self.memory and self.database is None

    @property
    def client_metrics_path(self) -> Path | None:
        return None if self.client_metrics is None else self.data / self.client_metrics

    @property
    def audit_path(self) -> Path | None:
        if self.audit is None or self.memory or not self.must_log_in:
            return None
        return self.data / self.audit
