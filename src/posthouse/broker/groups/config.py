"""The settings that can be overridden per group, each declared once, with Kafka's names and limits.

The broker's own default is always within the limits: a broker with a session timeout of 2 seconds accepts 2
seconds for a group, too.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from posthouse.broker.funnel.limits import HIGHEST_CONCURRENCY, UNLIMITED, DeliveryLimits
from posthouse.broker.subscriptions.leases import LeaseTerms
from posthouse.broker.subscriptions.rules import SubscriptionRules
from posthouse.model.errors import InvalidConfig, InvalidTopicName
from posthouse.model.rates import FORM, parse_rate
from posthouse.model.topics import check_topic_name
from posthouse.settings import Settings

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?\Z", re.IGNORECASE)
DEAD_LETTER_PREFIXES = ("dlq.", ".DLQ.")
_BY_DURATION = "by_duration:"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


UNLIMITED_RATE = "unlimited"
RATE = "posthouse.delivery.rate"
CONCURRENCY = "posthouse.delivery.concurrency"


@dataclass(frozen=True, slots=True)
class DeliveryRate:
    text: str
    per_second: float | None = None

    def __str__(self) -> str:
        return self.text


def _rate(text: str) -> DeliveryRate:
    wanted = text.strip().lower()
    if wanted == UNLIMITED_RATE:
        return DeliveryRate(wanted)
    return DeliveryRate(wanted, parse_rate(wanted))


@dataclass(frozen=True, slots=True)
class Reset:
    """Where a new group begins: at the end, at the start, or at a time before now."""

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


def _dead_letter_topic(text: str) -> str:
    """Of a fixed prefix: who may set it could otherwise have the broker write into any topic."""
    if text:
        try:
            check_topic_name(text)
        except InvalidTopicName as error:
            raise ValueError from error
        if not text.startswith(DEAD_LETTER_PREFIXES):
            raise ValueError
    return text


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigKey:
    """One setting: how it is parsed, its limits and its documentation."""

    parse: Callable[[str], object]
    form: str
    doc: str
    low: int = 0
    high: int = 0
    """For numbers: the limits of a Kafka broker with its defaults. Those of share groups are wider: they are
    configurable in Kafka, and its clients' tests use short locks."""
    broker_name: str | None = None
    """The Kafka broker setting that is the default of this one."""

    def range(self, default: int) -> tuple[int, int]:
        return min(self.low, default), max(self.high, default)


def _number(default: int, low: int, high: int, doc: str) -> Any:
    key = {"parse": int, "form": f"{low} to {high}", "low": low, "high": high, "doc": doc}
    return field(default=default, metadata=key)


def _text(default: object, parse: Callable[[str], object], form: str, doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "form": form, "doc": doc})


_SESSION = (45_000, 60_000)
_WIDE = (1_000, 3_600_000)
_HEARTBEAT = (5_000, 15_000)
_ASSIGNMENT = (0, 15_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's names with underscores for dots."""

    consumer_assignment_interval_ms: int = _number(
        0, *_ASSIGNMENT, "The least time between two assignments of a consumer group's partitions."
    )
    consumer_heartbeat_interval_ms: int = _number(
        1000, *_HEARTBEAT, "How often the members of a consumer group (KIP-848) report."
    )
    consumer_session_timeout_ms: int = _number(
        45_000, *_SESSION, "How long a member of a consumer group (KIP-848) may be silent."
    )
    errors_deadletterqueue_topic_name: str = _text(
        "",
        _dead_letter_topic,
        'empty, or the name of a topic that begins with "dlq." or ".DLQ."',
        "The topic that gets the records which members of a share group reject, or which were delivered to "
        "them too often. Empty: they are not kept.",
    )
    posthouse_delivery_concurrency: int = _number(
        0,
        0,
        HIGHEST_CONCURRENCY,
        "How many records all members of a share group, or RocketMQ's consumers of the group (those of the "
        "gRPC protocol), may hold together; 0 for no limit.",
    )
    posthouse_delivery_rate: DeliveryRate = _text(
        DeliveryRate(UNLIMITED_RATE),
        _rate,
        f"{UNLIMITED_RATE}, or {FORM}",
        "How many records per second all members of a share group, or RocketMQ's consumers of the group, get "
        "together, redeliveries included.",
    )
    rocketmq_fifo_enable: bool = _text(
        False,
        _boolean,
        "true or false",
        "Whether RocketMQ's consumers of the group (those of the gRPC protocol) get the messages of each "
        "message group one after the other.",
    )
    rocketmq_priority_factor: int = _number(
        100,
        0,
        100,
        "In how many of 100 receives RocketMQ's consumers of the group (those of the gRPC protocol) get "
        "messages by priority, if the topic has priorities. In the others all queues have the same chance.",
    )
    share_assignment_interval_ms: int = _number(
        0, *_ASSIGNMENT, "The least time between two assignments to a member of a share group."
    )
    share_auto_offset_reset: Reset = _text(
        Reset("latest"),
        _reset,
        "latest, earliest or by_duration:<ISO 8601>",
        "Where a share group begins in a partition that is new to it.",
    )
    share_delivery_count_limit: int = _number(
        5, 1, 0xFFFF, "How often a record is delivered at most to a share group."
    )
    share_heartbeat_interval_ms: int = _number(
        5000, 100, 60_000, "How often members of a share group report."
    )
    share_isolation_level: Isolation = _text(
        Isolation.READ_UNCOMMITTED,
        lambda text: Isolation(text.strip().lower()),
        "read_uncommitted or read_committed",
        "Whether records of open and aborted transactions are delivered to a share group.",
    )
    share_partition_max_record_locks: int = _number(
        2000, 1, 1_000_000, "How many records of a partition a share group can hold at once."
    )
    share_record_lock_duration_ms: int = _number(
        30_000, *_WIDE, "How long a member of a share group may hold a record."
    )
    share_renew_acknowledge_enable: bool = _text(
        True, _boolean, "true or false", "Whether members of a share group can hold a record for longer."
    )
    share_session_timeout_ms: int = _number(
        45_000, *_WIDE, "How long a member of a share group may be silent."
    )
    streams_assignment_interval_ms: int = _number(
        0, *_ASSIGNMENT, "The least time between two assignments of a streams group's tasks."
    )
    streams_heartbeat_interval_ms: int = _number(
        1000, *_HEARTBEAT, "How often the members of a streams group (KIP-1071) report."
    )
    streams_initial_rebalance_delay_ms: int = _number(
        100, 0, 2**31 - 1, "How long a new streams group waits for more members before the first assignment."
    )
    streams_num_standby_replicas: int = _number(
        0, 0, 2, "How many copies of its state each stateful task of a streams group has besides its own."
    )
    streams_session_timeout_ms: int = _number(
        45_000, *_SESSION, "How long a member of a streams group (KIP-1071) may be silent."
    )

    @property
    def delivery_limits(self) -> DeliveryLimits:
        rate, concurrency = self.posthouse_delivery_rate.per_second, self.posthouse_delivery_concurrency
        if rate is None and not concurrency:
            return UNLIMITED
        return DeliveryLimits(rate=rate, concurrency=concurrency or None)

    @property
    def subscription_rules(self) -> SubscriptionRules:
        """The subscription rules of a share group with these settings."""
        return SubscriptionRules(
            terms=LeaseTerms(
                lock_seconds=self.share_record_lock_duration_ms / 1000,
                max_deliveries=self.share_delivery_count_limit,
                has_dead_letters=bool(self.errors_deadletterqueue_topic_name),
                max_leases=self.share_partition_max_record_locks,
            ),
            stable_only=self.share_isolation_level is Isolation.READ_COMMITTED,
            may_renew=self.share_renew_acknowledge_enable,
            begins_at_end=self.share_auto_offset_reset.is_latest,
            begins_ago_ms=self.share_auto_offset_reset.ago_ms,
            dead_letters=self.errors_deadletterqueue_topic_name or None,
        )

    def text(self, name: str) -> str:
        value = getattr(self, _attribute(name))
        return str(value).lower() if isinstance(value, bool) else str(value)

    def with_overrides(self, overrides: Mapping[str, str]) -> "GroupConfig":
        """Raises InvalidConfig for unknown names and invalid values."""
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            changes[_attribute(name)] = value = _parsed(name, text)
            low, high = self.range(name)
            if type(value) is int and not low <= value <= high:
                raise InvalidConfig(f"{name} must be between {low} and {high}, not {value}")
        config = replace(self, **changes)
        for kind in ("consumer", "share", "streams"):
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if int(config.text(session)) <= int(config.text(heartbeat)):
                raise InvalidConfig(f"{session} must be above {heartbeat}")
        return config

    def clamped(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Overrides from a broker with other limits, clamped to the limits of this one."""
        fitting = dict(overrides)
        for name, text in overrides.items():
            value = _parsed(name, text)
            low, high = self.range(name)
            if type(value) is int and not low <= value <= high:
                fitting[name] = str(min(max(value, low), high))
        return fitting

    def range(self, name: str) -> tuple[int, int]:
        """The limits of a number; `self` are the broker's defaults."""
        default = getattr(self, _attribute(name))
        return GROUP_CONFIG_KEYS[name].range(default) if type(default) is int else (0, 0)


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _parsed(name: str, text: str) -> object:
    key = GROUP_CONFIG_KEYS.get(name)
    if key is None:
        raise InvalidConfig(f"unknown setting of groups {name!r}")
    try:
        return key.parse(text)
    except (ValueError, KeyError):
        raise InvalidConfig(f"{name} must be {key.form}, not {text!r}") from None


_WITHOUT_BROKER_NAME = frozenset(
    {
        "errors_deadletterqueue_topic_name",
        "posthouse_delivery_concurrency",
        "posthouse_delivery_rate",
        "rocketmq_fifo_enable",
        "rocketmq_priority_factor",
        "share_auto_offset_reset",
        "share_isolation_level",
        "share_renew_acknowledge_enable",
    }
)

GROUP_CONFIG_KEYS: Mapping[str, GroupConfigKey] = {
    each.name.replace("_", "."): GroupConfigKey(
        **each.metadata,
        broker_name=None if each.name in _WITHOUT_BROKER_NAME else "group." + each.name.replace("_", "."),
    )
    for each in fields(GroupConfig)
}
"""By dotted name."""


def default_config(settings: Settings) -> GroupConfig:
    """The broker's own session timeout, and three heartbeats per session."""
    session_ms = settings.group_session_ms
    at_most_ms = max(session_ms // 3, 1)
    heartbeat_ms = min(settings.group_heartbeat_ms, at_most_ms)
    return GroupConfig(
        consumer_session_timeout_ms=session_ms,
        consumer_heartbeat_interval_ms=heartbeat_ms,
        share_session_timeout_ms=session_ms,
        share_heartbeat_interval_ms=min(GroupConfig().share_heartbeat_interval_ms, at_most_ms),
        streams_session_timeout_ms=session_ms,
        streams_heartbeat_interval_ms=heartbeat_ms,
        streams_initial_rebalance_delay_ms=settings.group_initial_rebalance_ms,
    )
