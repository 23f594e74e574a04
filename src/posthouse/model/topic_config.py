"""The settings of a topic: each key declared once, with its type, default, limits and meaning."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from posthouse.model.errors import InvalidConfig
from posthouse.model.inert_settings import FLUSH_SETTINGS, INERT_SETTINGS
from posthouse.model.setting_values import (
    INT64_MAX,
    INT64_MIN,
    ValueKind,
    ValueType,
    boolean,
    choice,
    int32,
    int64,
    items,
    ratio,
    written,
)

log = logging.getLogger(__name__)

DAY_MS = 86_400_000


class Durability(StrEnum):
    FSYNC = "fsync"
    """Acknowledge when the bytes are on the disk."""
    OS = "os"
    """Acknowledge when the operating system has the bytes: survives a broker crash, not a power cut."""


class Latency(StrEnum):
    """Where a shared storage puts the records of a topic first."""

    INLINE = "inline"
    """Into the database: milliseconds."""
    OBJECT = "object"
    """Into the object store: slower, and cheaper for many bytes."""


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    """Remove records that exceed the retention time or size."""
    COMPACT = "compact"
    """Keep the latest record of each key."""


class CleanupPolicies(frozenset[CleanupPolicy]):
    """None, one or both of them; as text, a list with commas."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(sorted(self))


class CompressionType(StrEnum):
    PRODUCER = "producer"
    """Each batch stays as its producer compressed it."""
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


def _policies(text: str) -> CleanupPolicies:
    try:
        return CleanupPolicies(CleanupPolicy(each) for each in items(text))
    except ValueError:
        raise ValueError(f"must be empty, or one or more of {', '.join(CleanupPolicy)}") from None


_POLICIES = ValueType(kind=ValueKind.LIST, parse=_policies)


def _key(default: Any, kind: ValueType, doc: str) -> Any:
    return field(default=default, metadata={"type": kind, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    cleanup_policy: CleanupPolicies = _key(
        CleanupPolicies({CleanupPolicy.DELETE}),
        _POLICIES,
        "What happens to old records: 'delete' removes them by retention, 'compact' keeps the latest "
        "record of each key, 'compact,delete' does both, and empty keeps all.",
    )
    delete_retention_ms: int = _key(
        DAY_MS,
        int64(0),
        "How long compaction keeps a tombstone (a record without a value), in ms.",
    )
    min_cleanable_dirty_ratio: float = _key(
        0.5, ratio(), "Compaction starts when this share of the compactable bytes has not been compacted yet."
    )
    min_compaction_lag_ms: int = _key(
        0, int64(0), "Shortest time before compaction may remove a record, in ms."
    )
    max_compaction_lag_ms: int = _key(
        INT64_MAX,
        int64(1),
        "Longest time before a record is compacted, in ms, whatever min.cleanable.dirty.ratio says.",
    )
    durability: Durability = _key(
        Durability.FSYNC,
        choice(Durability),
        "When a write is acknowledged: 'fsync' after it is on disk, 'os' when it is in the page cache.",
    )
    latency: Latency = _key(
        Latency.INLINE,
        choice(Latency),
        "Where brokers that share a storage put new records first: 'inline' into PostgreSQL (milliseconds), "
        "'object' into the object store (slower, cheaper for large volumes). No effect on local disks.",
    )
    retention_ms: int = _key(
        7 * DAY_MS,
        int64(-1),
        "How long records are kept, in ms; -1 for ever.",
    )
    retention_bytes: int = _key(-1, int64(INT64_MIN), "Most bytes that a partition keeps; -1 for no limit.")
    retention_consumed: bool = _key(
        False,
        boolean(),
        "Whether records are deleted as soon as every queue that refers to them has settled them.",
    )
    retention_local_ms: int = _key(
        -1,
        int64(-1),
        "How long the broker keeps archived records, in ms; -1 as long as other records.",
    )
    retention_local_bytes: int = _key(
        -1,
        int64(-1),
        "Bytes of a partition above which the broker deletes archived records; -1 for no limit.",
    )
    segment_bytes: int = _key(
        256 * 1024 * 1024,
        int32(14),
        "Largest size of a segment, in bytes; then a new one begins.",
    )
    segment_ms: int = _key(7 * DAY_MS, int64(1), "Age at which a segment is closed, in ms.")
    max_message_bytes: int = _key(
        1_048_588,
        int32(0),
        "Largest record batch that is accepted, both as it arrives and as it is stored.",
    )
    index_interval_bytes: int = _key(4096, int32(0), "Bytes of log between two index entries.")
    index_keys: bool = _key(
        False,
        boolean(),
        "Whether an index finds records by key and message id; without it a search reads the topic. Topics "
        "that RocketMQ clients create have it. No effect in a cluster.",
    )
    rocketmq_priority_enable: bool = _key(
        False,
        boolean(),
        "Whether RocketMQ's consumers (those of the gRPC protocol) get messages of partitions with high "
        "numbers first. The first message with a priority sets it; false, set before, refuses such messages.",
    )
    compression_type: CompressionType = _key(
        CompressionType.PRODUCER,
        choice(CompressionType),
        "Compression of stored batches: 'producer' keeps the producer's; else 'uncompressed', 'gzip', "
        "'snappy', 'lz4' or 'zstd'.",
    )
    compression_gzip_level: int = _key(
        -1,
        int32(1, 9, or_else=-1),
        "Level of gzip where the broker compresses; -1 for the default level.",
    )
    compression_lz4_level: int = _key(
        9,
        int32(1, 17),
        "Level of lz4 where the broker compresses; 9 is the fast mode, as in Kafka.",
    )
    compression_zstd_level: int = _key(3, int32(-131072, 22), "Level of zstd where the broker compresses.")
    message_timestamp_type: TimestampType = _key(
        TimestampType.CREATE_TIME,
        choice(TimestampType),
        "Timestamp of records: the producer's ('CreateTime') or the broker's ('LogAppendTime').",
    )
    message_timestamp_before_max_ms: int = _key(
        INT64_MAX, int64(0), "How far in the past a producer's timestamp may be, in ms."
    )
    message_timestamp_after_max_ms: int = _key(
        3_600_000, int64(0), "How far in the future a producer's timestamp may be, in ms."
    )

    def with_overrides(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """These settings, changed by `overrides`: texts under dotted names such as 'retention.ms'."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, text in overrides.items():
            try:
                _set(values, name, text)
            except ValueError as error:
                raise InvalidConfig(f"{name}={text}: {error}") from None
        config = TopicConfig(**values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig("min.compaction.lag.ms is greater than max.compaction.lag.ms")
        if config.durability is Durability.OS:
            _check_flushing(overrides)
        return config

    def with_stored(self, overrides: Mapping[str, str], topic: str) -> "TopicConfig":
        """The same with stored overrides. The rules or the broker's settings may have changed since: an
        invalid override must not cost the topic."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, text in overrides.items():
            try:
                _set(values, name, text)
            except (ValueError, InvalidConfig) as error:
                log.warning(
                    "topic %s: the stored setting %s=%s is invalid and the default is used; set it again: %s",
                    topic,
                    name,
                    text,
                    error,
                )
        config = TopicConfig(**values)
        if config.durability is Durability.OS:
            try:
                _check_flushing(overrides)
            except InvalidConfig as error:
                log.warning("topic %s: %s", topic, error)
        return config

    @property
    def is_compacted(self) -> bool:
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention removes records by age or size."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    def text(self, name: str) -> str:
        """The value of the dotted `name`, as written in a command or a file."""
        return written(getattr(self, CONFIG_KEYS[name].attribute))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    name: str
    attribute: str
    default: Any
    type: ValueType
    doc: str


CONFIG_KEYS: Mapping[str, ConfigKey] = {
    (name := each.name.replace("_", ".")): ConfigKey(
        name=name,
        attribute=each.name,
        default=each.default,
        type=each.metadata["type"],
        doc=each.metadata["doc"],
    )
    for each in fields(TopicConfig)
}


def _set(values: dict[str, Any], name: str, text: str) -> None:
    key = CONFIG_KEYS.get(name)
    if key is not None:
        values[key.attribute] = key.type.parse(text)
    elif name in INERT_SETTINGS:
        INERT_SETTINGS[name].type.parse(text)
    else:
        near = get_close_matches(name[:100], [*CONFIG_KEYS, *INERT_SETTINGS], n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(CONFIG_KEYS))}"
        raise InvalidConfig(f"unknown topic setting {name!r}; {advice}")


def _check_flushing(overrides: Mapping[str, str]) -> None:
    for name in FLUSH_SETTINGS:
        text = overrides.get(name, INERT_SETTINGS[name].default)
        if INERT_SETTINGS[name].type.normalized(text) != INERT_SETTINGS[name].default:
            raise InvalidConfig(
                f"{name}={text} has no effect with durability=os, because the system decides when records "
                "are on disk; set durability=fsync"
            )
