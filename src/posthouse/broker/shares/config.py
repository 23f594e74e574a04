"""The settings of a share group, each declared once."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from posthouse.broker.shares.leases import Terms
from posthouse.model.errors import InvalidConfig

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?\Z", re.IGNORECASE)
_BY_DURATION = "by_duration:"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class Reset:
    """Where a group begins that has no progress yet: at the end, at the start, or some time ago."""

    text: str
    ago_ms: int | None = None

    @property
    def is_latest(self) -> bool:
        return self.text == "latest"

    def __str__(self) -> str:
        return self.text


def _reset(text: str) -> Reset:
    wanted = text.strip().lower()
    if wanted in ("latest", "earliest"):
        return Reset(wanted)
    if wanted.startswith(_BY_DURATION):
        duration = text.strip()[len(_BY_DURATION) :].upper()
        found = _DURATION.match(duration)
        if found and any(found.groups()):
            days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
            ago = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
            return Reset(_BY_DURATION + duration, ago * 1000)
    raise ValueError


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError
        return number

    return parse


def _setting(default: object, parse: Callable[[str], object], form: str, doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "form": form, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConfig:
    """Named as in Kafka, with underscores for dots."""

    share_auto_offset_reset: Reset = _setting(
        Reset("latest"),
        _reset,
        "latest, earliest or by_duration:<ISO 8601>",
        "Where the group begins in a partition that is new to it.",
    )
    share_delivery_count_limit: int = _setting(
        5, _between(1, 0xFFFF), "1 to 65535", "How often a record is delivered at most."
    )
    share_heartbeat_interval_ms: int = _setting(
        5000, _between(100, 60_000), "100 to 60000", "How often members report."
    )
    share_isolation_level: Isolation = _setting(
        Isolation.READ_UNCOMMITTED,
        lambda text: Isolation(text.strip().lower()),
        "read_uncommitted or read_committed",
        "Whether records of open and aborted transactions are delivered.",
    )
    share_partition_max_record_locks: int = _setting(
        2000, _between(1, 1_000_000), "1 to 1000000", "How many records of a partition can be held at once."
    )
    share_record_lock_duration_ms: int = _setting(
        30_000, _between(1000, 3_600_000), "1000 to 3600000", "How long a member may hold a record."
    )
    share_session_timeout_ms: int = _setting(
        45_000, _between(1000, 3_600_000), "1000 to 3600000", "How long a member may be silent."
    )

    @property
    def terms(self) -> Terms:
        return Terms(
            lock_seconds=self.share_record_lock_duration_ms / 1000,
            max_deliveries=self.share_delivery_count_limit,
            max_leases=self.share_partition_max_record_locks,
        )

    def text(self, name: str) -> str:
        return str(getattr(self, name.replace(".", "_")))

    def with_overrides(self, overrides: Mapping[str, str]) -> "ShareConfig":
        """Raises InvalidConfig for what is unknown or makes no sense."""
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            known = SHARE_CONFIG_KEYS.get(name)
            if known is None:
                raise InvalidConfig(f"unknown setting of groups {name!r}")
            try:
                changes[name.replace(".", "_")] = known["parse"](text)
            except ValueError:
                raise InvalidConfig(f"{name} must be {known['form']}, not {text!r}") from None
        config = replace(self, **changes)
        if config.share_session_timeout_ms <= config.share_heartbeat_interval_ms:
            raise InvalidConfig("share.session.timeout.ms must be above share.heartbeat.interval.ms")
        return config


SHARE_CONFIG_KEYS: Mapping[str, Mapping[str, Any]] = {
    each.name.replace("_", "."): each.metadata for each in fields(ShareConfig)
}
"""By dotted name: how each setting is parsed, what is allowed and what it is for."""


def default_config(session_ms: int) -> ShareConfig:
    """With the broker's own session timeout, and time for three reports in it."""
    heartbeat_ms = min(ShareConfig().share_heartbeat_interval_ms, max(session_ms // 3, 1))
    return ShareConfig(share_session_timeout_ms=session_ms, share_heartbeat_interval_ms=heartbeat_ms)
