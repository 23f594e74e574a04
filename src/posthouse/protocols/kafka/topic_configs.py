"""Topic settings in Kafka's terms: names, types, sources of values, and allowed values."""

from collections.abc import Mapping

from posthouse.model.errors import InvalidConfig
from posthouse.model.inert_settings import INERT_SETTINGS
from posthouse.model.setting_values import ValueKind, ValueType
from posthouse.model.topic_config import CONFIG_KEYS, TopicConfig
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.config_resources import ConfigEntry, ConfigSource, ConfigType, Synonym

_SEGMENT_BYTES = "segment.bytes"
_INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
"""Kafka's own way around its minimum, for tests."""
_MIN_SEGMENT_BYTES = 1024 * 1024

_TYPES = {
    ValueKind.BOOLEAN: ConfigType.BOOLEAN,
    ValueKind.STRING: ConfigType.STRING,
    ValueKind.INT: ConfigType.INT,
    ValueKind.LONG: ConfigType.LONG,
    ValueKind.DOUBLE: ConfigType.DOUBLE,
    ValueKind.LIST: ConfigType.LIST,
}

_BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
}
_WITHOUT_DEFAULT_SYNONYM = frozenset(
    {
        # The broker settings behind these have no value in Kafka unless they are set.
        "flush.ms",
        "retention.ms",
        "segment.jitter.ms",
        "segment.ms",
        # Kafka's broker has no settings behind these.
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
_STANDARD = TopicConfig()


def checked_override(name: str, value: str) -> tuple[str, str]:
    """The name and value that the broker stores for a client's setting."""
    if name == _INTERNAL_SEGMENT_BYTES:
        return _SEGMENT_BYTES, value
    if name == _SEGMENT_BYTES:
        try:
            too_small = CONFIG_KEYS[name].type.parse(value) < _MIN_SEGMENT_BYTES
        except ValueError:
            too_small = False  # the broker reports what is wrong with it
        if too_small:
            raise InvalidConfig(f"{name}={value}: must be at least {_MIN_SEGMENT_BYTES}")
    return name, value


def kept_overrides(wanted: Mapping[str, str]) -> dict[str, str]:
    return dict(checked_override(name, value) for name, value in wanted.items())


def kept_name(name: str) -> str:
    return _SEGMENT_BYTES if name == _INTERNAL_SEGMENT_BYTES else name


def type_of(name: str) -> ValueType | None:
    """None for a setting that does not exist."""
    if name in CONFIG_KEYS:
        return CONFIG_KEYS[name].type
    return INERT_SETTINGS[name].type if name in INERT_SETTINGS else None


def text_of(topic: Topic, name: str) -> str:
    """The value of the topic's setting: its override or the default."""
    known = type_of(name)
    if known is not None and known.kind is ValueKind.LIST and name in topic.overrides:
        return known.normalized(topic.overrides[name])  # in the order in which it was given
    if name in CONFIG_KEYS:
        return topic.config.text(name)
    inert = INERT_SETTINGS[name]
    return inert.type.normalized(topic.overrides.get(name, inert.default))


def describe_topic(topic: Topic, defaults: TopicConfig) -> list[ConfigEntry]:
    """Every setting of the topic, by name; `defaults` are the broker's."""
    entries = [
        _entry(topic, name, key.type, key.doc, _STANDARD.text(name), defaults.text(name))
        for name, key in CONFIG_KEYS.items()
    ]
    entries += [
        _entry(topic, name, inert.type, inert.doc, inert.default, inert.default)
        for name, inert in INERT_SETTINGS.items()
    ]
    return sorted(entries, key=lambda entry: entry.name)


def _entry(topic: Topic, name: str, kind: ValueType, doc: str, standard: str, of_broker: str) -> ConfigEntry:
    synonyms = []
    if name in topic.overrides:
        synonyms.append(Synonym(name=name, value=text_of(topic, name), source=ConfigSource.TOPIC))
    broker_name = _BROKER_NAMES.get(name, name)
    if of_broker != standard:
        synonyms.append(Synonym(name=broker_name, value=of_broker, source=ConfigSource.BROKER))
    default = Synonym(name=broker_name, value=standard, source=ConfigSource.DEFAULT)
    if name not in _WITHOUT_DEFAULT_SYNONYM:
        synonyms.append(default)
    counts = synonyms[0] if synonyms else default
    return ConfigEntry(
        name=name,
        value=counts.value,
        type=_TYPES[kind.kind],
        source=counts.source,
        read_only=False,
        doc=doc,
        synonyms=tuple(synonyms),
    )
