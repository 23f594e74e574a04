"""What can be set on a topic: each key declared once, with its type, default, limits and meaning."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from posthouse.model.errors import InvalidConfig

DAY_MS = 86_400_000
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


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
    """One or both of them; as text, a list with commas."""

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


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def _choice(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(text: str) -> StrEnum:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(kind)}") from None

    return parse


def _policies(text: str) -> CleanupPolicies:
    try:
        policies = CleanupPolicies(CleanupPolicy(each.strip()) for each in text.split(","))
    except ValueError:
        raise ValueError(f"must be one or more of {', '.join(CleanupPolicy)}") from None
    return policies


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be between 0 and 1")
    return value


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _key(default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    cleanup_policy: CleanupPolicies = _key(
        CleanupPolicies({CleanupPolicy.DELETE}),
        _policies,
        "What happens to old records: 'delete' forgets them, 'compact' keeps the latest of each key, "
        "'compact,delete' does both.",
    )
    delete_retention_ms: int = _key(
        DAY_MS,
        _integer(0, INT64_MAX),
        "How long compaction keeps a record without a value, which deletes its key, for readers to see.",
    )
    min_cleanable_dirty_ratio: float = _key(
        0.5, _ratio, "Compaction begins when this part of what it could look at has not been compacted yet."
    )
    min_compaction_lag_ms: int = _key(
        0, _integer(0, INT64_MAX), "How long a record stays as it is before compaction may remove it."
    )
    max_compaction_lag_ms: int = _key(
        INT64_MAX,
        _integer(1, INT64_MAX),
        "After this time a record is compacted, however little there is to compact.",
    )
    durability: Durability = _key(
        Durability.FSYNC,
        _choice(Durability),
        "When a write is acknowledged: 'fsync' when it is on disk, 'os' when the system has it.",
    )
    retention_ms: int = _key(
        7 * DAY_MS,
        _integer(-1, INT64_MAX),
        "How long records are kept, in ms; -1 keeps them for ever.",
    )
    retention_bytes: int = _key(
        -1, _integer(-1, INT64_MAX), "How many bytes each partition keeps; -1 sets no limit."
    )
    retention_consumed: bool = _key(
        False,
        _boolean,
        "Whether records are let go as soon as every queue that they went to is done with them.",
    )
    retention_local_ms: int = _key(
        -1,
        _integer(-1, INT64_MAX),
        "How long the broker keeps records that are archived, in ms; -1 as long as the others.",
    )
    retention_local_bytes: int = _key(
        -1,
        _integer(-1, INT64_MAX),
        "Beyond how many bytes a partition lets go of records that are archived; -1 sets no limit.",
    )
    segment_bytes: int = _key(
        256 * 1024 * 1024,
        _integer(14, INT32_MAX),
        "A segment is closed when it would grow beyond this.",
    )
    segment_ms: int = _key(7 * DAY_MS, _integer(1, INT64_MAX), "A segment is closed when it is this old.")
    max_message_bytes: int = _key(
        1_048_588,
        _integer(0, INT32_MAX),
        "The largest batch of records that is accepted, as it arrives and as it is stored.",
    )
    index_interval_bytes: int = _key(
        4096, _integer(0, INT32_MAX), "How many bytes of log lie between two index entries."
    )
    compression_type: CompressionType = _key(
        CompressionType.PRODUCER,
        _choice(CompressionType),
        "How batches are stored: as their 'producer' compressed them, 'uncompressed', or with 'gzip', "
        "'snappy', 'lz4' or 'zstd'.",
    )
    message_timestamp_type: TimestampType = _key(
        TimestampType.CREATE_TIME,
        _choice(TimestampType),
        "Whose time a record carries: the producer's ('CreateTime') or the broker's ('LogAppendTime').",
    )
    message_timestamp_before_max_ms: int = _key(
        INT64_MAX, _integer(0, INT64_MAX), "How far in the past a producer's timestamp may lie."
    )
    message_timestamp_after_max_ms: int = _key(
        3_600_000, _integer(0, INT64_MAX), "How far in the future a producer's timestamp may lie."
    )

    def with_overrides(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """These settings, changed by `overrides`: texts under dotted names such as 'retention.ms'."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, text in overrides.items():
            key = CONFIG_KEYS.get(name)
            if key is None:
                raise InvalidConfig(
                    f"unknown topic setting {name!r}; known are {', '.join(sorted(CONFIG_KEYS))}"
                )
            try:
                values[key.attribute] = key.parse(text)
            except ValueError as error:
                raise InvalidConfig(f"{name}={text}: {error}") from None
        config = TopicConfig(**values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig("min.compaction.lag.ms is greater than max.compaction.lag.ms")
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
        value = getattr(self, CONFIG_KEYS[name].attribute)
        return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    name: str
    attribute: str
    default: Any
    parse: Callable[[str], Any]
    doc: str


CONFIG_KEYS: Mapping[str, ConfigKey] = {
    (name := each.name.replace("_", ".")): ConfigKey(
        name=name,
        attribute=each.name,
        default=each.default,
        parse=each.metadata["parse"],
        doc=each.metadata["doc"],
    )
    for each in fields(TopicConfig)
}
