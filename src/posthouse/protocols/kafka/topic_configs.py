"""A topic's settings in Kafka's terms.

Kafka knows settings that a log on one node has no use for. They are shown with the value that is true
here; setting one to that value is accepted and forgotten, any other value is refused with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from posthouse.model.errors import InvalidConfig
from posthouse.model.topic_config import CONFIG_KEYS, INT64_MAX, TopicConfig
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.config_resources import ConfigEntry, ConfigSource, ConfigType, Synonym


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedConfig:
    value: str
    type: ConfigType
    why: str


_ONE_COPY = "A partition has one copy, on one node."
_NO_TIERS = "All records are kept in one place."
_FLUSH = "Writes are not counted or timed until a flush; the setting 'durability' says when they are on disk."


def _fixed(value: object, kind: ConfigType, why: str) -> FixedConfig:
    return FixedConfig(value=str(value), type=kind, why=why)


FIXED: Mapping[str, FixedConfig] = {
    "file.delete.delay.ms": _fixed(0, ConfigType.LONG, "Deleted records free their space at once."),
    "flush.messages": _fixed(INT64_MAX, ConfigType.LONG, _FLUSH),
    "flush.ms": _fixed(INT64_MAX, ConfigType.LONG, _FLUSH),
    "follower.replication.throttled.replicas": _fixed("", ConfigType.LIST, _ONE_COPY),
    "leader.replication.throttled.replicas": _fixed("", ConfigType.LIST, _ONE_COPY),
    "local.retention.bytes": _fixed(-2, ConfigType.LONG, _NO_TIERS),
    "local.retention.ms": _fixed(-2, ConfigType.LONG, _NO_TIERS),
    "message.downconversion.enable": _fixed(
        "false", ConfigType.BOOLEAN, "Records are served in the one format that they are stored in."
    ),
    "min.insync.replicas": _fixed(1, ConfigType.INT, _ONE_COPY),
    "preallocate": _fixed("false", ConfigType.BOOLEAN, "Segments grow as records arrive."),
    "remote.log.copy.disable": _fixed("false", ConfigType.BOOLEAN, _NO_TIERS),
    "remote.log.delete.on.disable": _fixed("false", ConfigType.BOOLEAN, _NO_TIERS),
    "remote.storage.enable": _fixed("false", ConfigType.BOOLEAN, _NO_TIERS),
    "segment.index.bytes": _fixed(2**31 - 1, ConfigType.INT, "An index grows with its segment."),
    "segment.jitter.ms": _fixed(0, ConfigType.LONG, "Segments are closed on time."),
    "unclean.leader.election.enable": _fixed("false", ConfigType.BOOLEAN, _ONE_COPY),
}

_BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
}
_STANDARD = TopicConfig()


def kept_overrides(wanted: Mapping[str, str]) -> dict[str, str]:
    """What of `wanted` the broker is to remember. Raises InvalidConfig for what is not true here."""
    kept = {}
    for name, value in wanted.items():
        fixed = FIXED.get(name)
        if fixed is None:
            kept[name] = value
        elif value.strip().lower() != fixed.value:
            raise InvalidConfig(f"{name} is {fixed.value or 'empty'} and cannot be {value!r}. {fixed.why}")
    return kept


def is_list(name: str) -> bool:
    return (FIXED[name].type if name in FIXED else _type_of(name)) is ConfigType.LIST


def describe_topic(topic: Topic, defaults: TopicConfig) -> list[ConfigEntry]:
    """Every setting of the topic, by name; `defaults` are the broker's."""
    entries = [_own(topic, defaults, name) for name in CONFIG_KEYS]
    entries += [_shown(name, fixed) for name, fixed in FIXED.items()]
    return sorted(entries, key=lambda entry: entry.name)


def _own(topic: Topic, defaults: TopicConfig, name: str) -> ConfigEntry:
    standard = Synonym(
        name=_BROKER_NAMES.get(name, name), value=_STANDARD.text(name), source=ConfigSource.DEFAULT
    )
    synonyms = [standard]
    if defaults.text(name) != standard.value:
        synonyms.insert(0, Synonym(name=standard.name, value=defaults.text(name), source=ConfigSource.BROKER))
    if name in topic.overrides:
        synonyms.insert(0, Synonym(name=name, value=topic.config.text(name), source=ConfigSource.TOPIC))
    return ConfigEntry(
        name=name,
        value=synonyms[0].value,
        type=_type_of(name),
        source=synonyms[0].source,
        read_only=False,
        doc=CONFIG_KEYS[name].doc,
        synonyms=tuple(synonyms),
    )


def _shown(name: str, fixed: FixedConfig) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=fixed.value,
        type=fixed.type,
        source=ConfigSource.DEFAULT,
        read_only=True,
        doc=fixed.why,
        synonyms=(Synonym(name=name, value=fixed.value, source=ConfigSource.DEFAULT),),
    )


def _type_of(name: str) -> ConfigType:
    if name == "cleanup.policy":
        return ConfigType.LIST
    if isinstance(CONFIG_KEYS[name].default, float):
        return ConfigType.DOUBLE
    if not isinstance(CONFIG_KEYS[name].default, int) or isinstance(CONFIG_KEYS[name].default, str):
        return ConfigType.STRING
    is_long = name.endswith(".ms") or (name.startswith("retention.") and name.endswith(".bytes"))
    return ConfigType.LONG if is_long else ConfigType.INT
