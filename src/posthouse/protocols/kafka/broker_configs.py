"""The broker's own settings under the names that Kafka's tools look for. All are read-only."""

from posthouse.broker.broker import Broker
from posthouse.protocols.kafka.config_resources import ConfigEntry, ConfigSource, ConfigType, Synonym
from posthouse.protocols.kafka.handler import NODE_ID
from posthouse.settings import Address, Settings

_ALWAYS_SET = frozenset({"node.id", "listeners", "advertised.listeners", "log.dirs"})
"""What no Kafka broker runs without being told: tools look for these among the settings that were made."""


def describe_broker(broker: Broker, node: Address) -> list[ConfigEntry]:
    settings = broker.settings
    topics = broker.topics.defaults
    own, standard = ConfigType, Settings()
    rows: list[tuple[str, object, object, ConfigType, str]] = [
        ("node.id", NODE_ID, NODE_ID, own.INT, "The number of this node."),
        ("broker.id", NODE_ID, NODE_ID, own.INT, "The number of this node."),
        ("listeners", f"PLAINTEXT://{settings.kafka}", None, own.STRING, "Where Kafka clients are served."),
        ("advertised.listeners", f"PLAINTEXT://{node}", None, own.STRING, "Where this client is sent."),
        ("log.dirs", settings.data, standard.data, own.STRING, "The directory that holds the log."),
        (
            "auto.create.topics.enable",
            _boolean(settings.auto_create_topics),
            _boolean(standard.auto_create_topics),
            own.BOOLEAN,
            "Whether a topic is created when a client first asks for it.",
        ),
        (
            "num.partitions",
            settings.default_partitions,
            standard.default_partitions,
            own.INT,
            "Partitions of a topic when its creator does not say.",
        ),
        (
            "socket.request.max.bytes",
            settings.max_request_bytes,
            standard.max_request_bytes,
            own.INT,
            "The largest request that is read.",
        ),
        (
            "max.connections",
            settings.max_connections,
            standard.max_connections,
            own.INT,
            "How many clients may be connected at once.",
        ),
        *_coordinator_rows(settings, standard),
        ("message.max.bytes", topics.max_message_bytes, None, own.INT, "The largest batch that is accepted."),
        ("log.retention.ms", topics.retention_ms, None, own.LONG, "How long records are kept."),
        ("log.retention.bytes", topics.retention_bytes, None, own.LONG, "How many bytes a partition keeps."),
        ("log.segment.bytes", topics.segment_bytes, None, own.INT, "The size at which a segment is closed."),
        ("log.cleanup.policy", topics.cleanup_policy, None, own.LIST, "What happens to old records."),
        ("default.replication.factor", 1, None, own.INT, "Copies of a partition: one node keeps one."),
        ("min.insync.replicas", 1, None, own.INT, "Copies that must have a record before it counts."),
        ("delete.topic.enable", "true", None, own.BOOLEAN, "Whether topics can be deleted."),
    ]
    return [_entry(name, str(value), default, kind, doc) for name, value, default, kind, doc in rows]


def _coordinator_rows(
    settings: Settings, standard: Settings
) -> list[tuple[str, object, object, ConfigType, str]]:
    declared = (
        ("group.initial.rebalance.delay.ms", "group_initial_rebalance_ms", "How long a new group gathers."),
        ("group.min.session.timeout.ms", "group_min_session_ms", "The shortest session timeout."),
        ("group.max.session.timeout.ms", "group_max_session_ms", "The longest session timeout."),
        ("group.max.size", "group_max_size", "How many members a group may have."),
        ("group.consumer.session.timeout.ms", "group_session_ms", "How long a KIP-848 member may be silent."),
        ("group.consumer.heartbeat.interval.ms", "group_heartbeat_ms", "How often KIP-848 members report."),
        ("offsets.retention.minutes", "offsets_retention_minutes", "How long an empty group has offsets."),
        ("offset.metadata.max.bytes", "offset_metadata_bytes", "The largest text beside an offset."),
        ("transaction.max.timeout.ms", "transaction_max_timeout_ms", "The longest transaction timeout."),
    )
    return [
        (name, getattr(settings, attribute), getattr(standard, attribute), ConfigType.INT, doc)
        for name, attribute, doc in declared
    ]


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _entry(name: str, value: str, default: object, kind: ConfigType, doc: str) -> ConfigEntry:
    set_by_user = name in _ALWAYS_SET or (default is not None and str(default) != value)
    source = ConfigSource.BROKER if set_by_user else ConfigSource.DEFAULT
    return ConfigEntry(
        name=name,
        value=value,
        type=kind,
        source=source,
        read_only=True,
        doc=doc,
        synonyms=(Synonym(name=name, value=value, source=source),),
    )
