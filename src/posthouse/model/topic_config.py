"""What can be set on a topic: each key declared once, with its type, default, limits and meaning."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    """Forget records that are too old or too many."""
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
        "What happens to old records: 'delete' forgets them, 'compact' keeps the latest of each key, "
        "'compact,delete' does both, and empty keeps all.",
    )
    delete_retention_ms: int = _key(
        DAY_MS,
        int64(0),
        "How long compaction keeps a record without a value, which deletes its key, for readers to see.",
    )
    min_cleanable_dirty_ratio: float = _key(
        0.5, ratio(), "Compaction begins when this part of what it could look at has not been compacted yet."
    )
    min_compaction_lag_ms: int = _key(
        0, int64(0), "How long a record stays as it is before compaction may remove it."
    )
    max_compaction_lag_ms: int = _key(
        INT64_MAX,
        int64(1),
        "After this time a record is compacted, however little there is to compact.",
    )
    durability: Durability = _key(
        Durability.FSYNC,
        choice(Durability),
        "When a write is acknowledged: 'fsync' when it is on disk, 'os' when the system has it.",
    )
    retention_ms: int = _key(
        7 * DAY_MS,
        int64(-1),
        "How long records are kept, in ms; -1 keeps them for ever.",
    )
    retention_bytes: int = _key(
        -1, int64(INT64_MIN), "How many bytes each partition keeps; -1 sets no limit."
    )
    retention_consumed: bool = _key(
        False,
        boolean(),
        "Whether records are let go as soon as every queue that they went to is done with them.",
    )
    retention_local_ms: int = _key(
        -1,
        int64(-1),
        "How long the broker keeps records that are archived, in ms; -1 as long as the others.",
    )
    retention_local_bytes: int = _key(
        -1,
        int64(-1),
        "Beyond how many bytes a partition lets go of records that are archived; -1 sets no limit.",
    )
    segment_bytes: int = _key(
        256 * 1024 * 1024,
        int32(14),
        "A segment is closed when it would grow beyond this.",
    )
    segment_ms: int = _key(7 * DAY_MS, int64(1), "A segment is closed when it is this old.")
    max_message_bytes: int = _key(
        1_048_588,
        int32(0),
        "The largest batch of records that is accepted, as it arrives and as it is stored.",
    )
    index_interval_bytes: int = _key(4096, int32(0), "How many bytes of log lie between two index entries.")
    compression_type: CompressionType = _key(
        CompressionType.PRODUCER,
        choice(CompressionType),
        "How batches are stored: as their 'producer' compressed them, 'uncompressed', or with 'gzip', "
        "'snappy', 'lz4' or 'zstd'.",
    )
    compression_gzip_level: int = _key(
        -1,
        int32(1, 9, or_else=-1),
        "How hard gzip tries where the broker compresses; -1 takes the usual level.",
    )
    compression_lz4_level: int = _key(
        9,
        int32(1, 17),
        "How hard lz4 tries where the broker compresses; 9 is the fast mode, as in Kafka.",
    )
    compression_zstd_level: int = _key(
        3, int32(-131072, 22), "How hard zstd tries where the broker compresses."
    )
    message_timestamp_type: TimestampType = _key(
        TimestampType.CREATE_TIME,
        choice(TimestampType),
        "Whose time a record carries: the producer's ('CreateTime') or the broker's ('LogAppendTime').",
    )
    message_timestamp_before_max_ms: int = _key(
        INT64_MAX, int64(0), "How far in the past a producer's timestamp may lie."
    )
    message_timestamp_after_max_ms: int = _key(
        3_600_000, int64(0), "How far in the future a producer's timestamp may lie."
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
        """The same with settings that were accepted once. The rules may have changed since, or the broker's
        own settings: a topic must not be lost for that."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, text in overrides.items():
            try:
                _set(values, name, text)
            except (ValueError, InvalidConfig) as error:
                log.warning(
                    "topic %s: %s=%s is ignored, the default counts; set it anew: %s",
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
        """Whether records that are too old or too many are forgotten."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    def text(self, name: str) -> str:
        """The value of the dotted `name`, as it would be written in a command or a file."""
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
        known = ", ".join(sorted([*CONFIG_KEYS, *INERT_SETTINGS]))
        raise InvalidConfig(f"unknown topic setting {name!r}; known are {known}")


def _check_flushing(overrides: Mapping[str, str]) -> None:
    for name in FLUSH_SETTINGS:
        text = overrides.get(name, INERT_SETTINGS[name].default)
        if INERT_SETTINGS[name].type.normalized(text) != INERT_SETTINGS[name].default:
            raise InvalidConfig(
                f"{name}={text} is not kept with durability=os, where the system decides when records are "
                "on disk; set durability=fsync"
            )
