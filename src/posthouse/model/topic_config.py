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


def _key(default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    cleanup_policy: CleanupPolicy = _key(
        CleanupPolicy.DELETE,
        _choice(CleanupPolicy),
        "What happens to old records: 'delete' forgets them.",
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
    segment_bytes: int = _key(
        256 * 1024 * 1024,
        _integer(14, INT32_MAX),
        "A segment is closed when it would grow beyond this.",
    )
    segment_ms: int = _key(7 * DAY_MS, _integer(1, INT64_MAX), "A segment is closed when it is this old.")
    max_message_bytes: int = _key(
        1_048_588, _integer(0, INT32_MAX), "The largest batch of records that is accepted, as it arrives."
    )
    index_interval_bytes: int = _key(
        4096, _integer(0, INT32_MAX), "How many bytes of log lie between two index entries."
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
        return TopicConfig(**values)

    def text(self, name: str) -> str:
        """The value of the dotted `name`, as it would be written in a command or a file."""
        return str(getattr(self, CONFIG_KEYS[name].attribute))


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
