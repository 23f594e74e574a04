"""The broker's settings under Kafka's names. Some can change at run time."""

from collections.abc import Mapping
from dataclasses import dataclass

from posthouse.broker.broker import Broker
from posthouse.broker.dynamic_settings import MOST_CONNECTIONS, MOST_PER_ADDRESS, SettingScope
from posthouse.broker.groups.config import GROUP_CONFIG_KEYS, default_config
from posthouse.model.topic_config import CONFIG_KEYS, TopicConfig
from posthouse.protocols.kafka.config_resources import ConfigEntry, ConfigSource, ConfigType, Synonym
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.nodes import NODE_ID, Node
from posthouse.settings import Settings

_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicKey:
    name: str
    """The broker's own name of the setting, see `broker.dynamic_settings`."""
    type: ConfigType
    doc: str


def _topic_default(key: str, kind: ConfigType) -> DynamicKey:
    return DynamicKey(name=f"topic.{key}", type=kind, doc=CONFIG_KEYS[key].doc)


def _interval(kind: str) -> DynamicKey:
    name = f"{kind}.assignment.interval.ms"
    return DynamicKey(name=f"group.{name}", type=ConfigType.INT, doc=GROUP_CONFIG_KEYS[name].doc)


DYNAMIC: Mapping[str, DynamicKey] = {
    "compression.type": _topic_default("compression.type", ConfigType.STRING),
    "group.consumer.assignment.interval.ms": _interval("consumer"),
    "group.share.assignment.interval.ms": _interval("share"),
    "group.streams.assignment.interval.ms": _interval("streams"),
    "log.cleaner.delete.retention.ms": _topic_default("delete.retention.ms", ConfigType.LONG),
    "log.cleaner.max.compaction.lag.ms": _topic_default("max.compaction.lag.ms", ConfigType.LONG),
    "log.cleaner.min.cleanable.ratio": _topic_default("min.cleanable.dirty.ratio", ConfigType.DOUBLE),
    "log.cleaner.min.compaction.lag.ms": _topic_default("min.compaction.lag.ms", ConfigType.LONG),
    "log.cleanup.policy": _topic_default("cleanup.policy", ConfigType.LIST),
    "log.index.interval.bytes": _topic_default("index.interval.bytes", ConfigType.INT),
    "log.message.timestamp.after.max.ms": _topic_default("message.timestamp.after.max.ms", ConfigType.LONG),
    "log.message.timestamp.before.max.ms": _topic_default("message.timestamp.before.max.ms", ConfigType.LONG),
    "log.message.timestamp.type": _topic_default("message.timestamp.type", ConfigType.STRING),
    "log.retention.bytes": _topic_default("retention.bytes", ConfigType.LONG),
    "log.retention.ms": _topic_default("retention.ms", ConfigType.LONG),
    "log.roll.ms": _topic_default("segment.ms", ConfigType.LONG),
    "log.segment.bytes": _topic_default("segment.bytes", ConfigType.INT),
    "max.connections": DynamicKey(
        name=MOST_CONNECTIONS,
        type=ConfigType.INT,
        doc="How many clients may be connected to this broker at once.",
    ),
    "max.connections.per.ip": DynamicKey(
        name=MOST_PER_ADDRESS,
        type=ConfigType.INT,
        doc="How many clients of one network address may be connected at once, at all brokers together.",
    ),
    "message.max.bytes": _topic_default("max.message.bytes", ConfigType.INT),
}
"""Settings that can change at run time, by Kafka's names. In Kafka they can, too."""

_STANDARD = {
    name: {MOST_CONNECTIONS: str(Settings().max_connections), MOST_PER_ADDRESS: "0"}.get(key.name)
    or (
        TopicConfig().text(key.name.removeprefix("topic."))
        if key.name.startswith("topic.")
        else default_config(Settings()).text(key.name.removeprefix("group."))
    )
    for name, key in DYNAMIC.items()
}

_ALWAYS_SET = frozenset({"node.id", "listeners", "advertised.listeners", "log.dirs"})
"""Settings that every Kafka broker sets explicitly: tools expect these among the static settings."""


def describe_broker(broker: Broker, node: Node) -> list[ConfigEntry]:
    settings = broker.settings
    own, standard = ConfigType, Settings()
    rows: list[tuple[str, object, object, ConfigType, str]] = [
        ("node.id", node.id, NODE_ID, own.INT, "The number of this node."),
        ("broker.id", node.id, NODE_ID, own.INT, "The number of this node."),
        ("listeners", f"PLAINTEXT://{settings.kafka}", None, own.STRING, "Addresses of the Kafka listeners."),
        ("advertised.listeners", f"PLAINTEXT://{node.address}", None, own.STRING, "Address for this client."),
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
            "Partitions of a topic whose creator does not specify a number.",
        ),
        (
            "socket.request.max.bytes",
            settings.max_request_bytes,
            standard.max_request_bytes,
            own.INT,
            "The largest request that is read.",
        ),
        *_coordinator_rows(settings, standard),
        (
            "transaction.two.phase.commit.enable",
            _boolean(settings.transaction_two_phase_commit_enable),
            _boolean(standard.transaction_two_phase_commit_enable),
            own.BOOLEAN,
            "Whether producers may take part in two-phase commits.",
        ),
        *_rack_rows(settings),
        ("default.replication.factor", 1, None, own.INT, "Copies of a partition: one node keeps one."),
        ("min.insync.replicas", 1, None, own.INT, "Copies that must have a record before it counts."),
        ("delete.topic.enable", "true", None, own.BOOLEAN, "Whether topics can be deleted."),
    ]
    fixed = [_entry(name, str(value), default, kind, doc) for name, value, default, kind, doc in rows]
    return [*fixed, *(_dynamic_entry(broker, name) for name in DYNAMIC)]


def describe_cluster_defaults(broker: Broker) -> list[ConfigEntry]:
    """The cluster-wide dynamic settings."""
    own = broker.dynamic_settings.get(SettingScope.CLUSTER)
    return [
        _dynamic_entry(broker, name, SettingScope.CLUSTER) for name, key in DYNAMIC.items() if key.name in own
    ]


def _dynamic_entry(broker: Broker, name: str, scope: SettingScope = SettingScope.NODE) -> ConfigEntry:
    dynamic, key = broker.dynamic_settings, DYNAMIC[name]
    start = dynamic.started_with(key.name)
    source = ConfigSource.DEFAULT if start == _STANDARD[name] else ConfigSource.BROKER
    synonyms = [Synonym(name=name, value=_shown(name, start), source=source)]
    for where, called in (
        (SettingScope.CLUSTER, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (SettingScope.NODE, ConfigSource.DYNAMIC_BROKER),
    ):
        if key.name in dynamic.get(where) and (where is scope or scope is SettingScope.NODE):
            own = _shown(name, dynamic.get(where)[key.name])
            synonyms.insert(0, Synonym(name=name, value=own, source=called))
    return ConfigEntry(
        name=name,
        value=synonyms[0].value,
        type=key.type,
        source=synonyms[0].source,
        read_only=False,
        doc=key.doc,
        synonyms=tuple(synonyms),
    )


def _shown(name: str, text: str) -> str:
    """Kafka has no value for "no limit"."""
    return str(_NO_LIMIT) if name == "max.connections.per.ip" and text == "0" else text


def kept_dynamic(wanted: Mapping[str, str]) -> dict[str, str]:
    """The broker's own names of the settings. Raises Refused for a setting that cannot change at run time."""
    fixed = sorted(wanted.keys() - DYNAMIC.keys())
    if fixed:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {fixed}; start the broker with other settings",
        )
    return {DYNAMIC[name].name: _kept(name, value) for name, value in wanted.items()}


def _kept(name: str, value: str) -> str:
    return "0" if name == "max.connections.per.ip" and value == str(_NO_LIMIT) else value


def shown_dynamic(kept: Mapping[str, str]) -> dict[str, str]:
    """The inverse of `kept_dynamic`: Kafka's names."""
    return {name: kept[key.name] for name, key in DYNAMIC.items() if key.name in kept}


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


def _rack_rows(settings: Settings) -> list[tuple[str, object, object, ConfigType, str]]:
    if not settings.rack:
        return []
    return [("broker.rack", settings.rack, "", ConfigType.STRING, "The rack or availability zone.")]


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
