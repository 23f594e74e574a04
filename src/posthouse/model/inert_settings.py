"""Kafka's topic settings that have no effect here.

They are validated, stored and shown, so that tools which set them on every Kafka read them back. The defaults
are Kafka's. The text of each says why it has no effect.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from posthouse.model.setting_values import (
    INT64_MAX,
    ValueKind,
    ValueType,
    boolean,
    int32,
    int64,
    items,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InertSetting:
    type: ValueType
    default: str
    doc: str


_ONE_COPY = "No effect: a partition has one copy, on one node."
_NO_TIERS = "No effect: there is no remote storage; see retention.local.* for records that are archived."
_FLUSH = "No effect: with durability=fsync, which it needs, records are on disk before they are acknowledged."
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")


def _replicas(text: str) -> list[str]:
    given = items(text)
    if given != ["*"] and not all(_REPLICA.fullmatch(each) for each in given):
        raise ValueError("must be '*' or a list of PARTITION:BROKER")
    return given


def _without_tiers(text: str) -> bool:
    if boolean().parse(text):
        raise ValueError("there is no remote storage; see retention.local.* and the archive")
    return False


_REPLICAS = ValueType(kind=ValueKind.LIST, parse=_replicas)


def _inert(kind: ValueType, default: object, doc: str) -> InertSetting:
    return InertSetting(type=kind, default=str(default), doc=doc)


FLUSH_SETTINGS = ("flush.messages", "flush.ms")

INERT_SETTINGS: Mapping[str, InertSetting] = {
    "file.delete.delay.ms": _inert(int64(0), 60_000, "No effect: deleted records free their space at once."),
    "flush.messages": _inert(int64(1), INT64_MAX, _FLUSH),
    "flush.ms": _inert(int64(0), INT64_MAX, _FLUSH),
    "follower.replication.throttled.replicas": _inert(_REPLICAS, "", _ONE_COPY),
    "leader.replication.throttled.replicas": _inert(_REPLICAS, "", _ONE_COPY),
    "local.retention.bytes": _inert(int64(-2), -2, _NO_TIERS),
    "local.retention.ms": _inert(int64(-2), -2, _NO_TIERS),
    "min.insync.replicas": _inert(int32(1), 1, _ONE_COPY),
    "preallocate": _inert(boolean(), "false", "No effect: segments grow as records arrive."),
    "remote.log.copy.disable": _inert(boolean(), "false", _NO_TIERS),
    "remote.log.delete.on.disable": _inert(boolean(), "false", _NO_TIERS),
    "remote.storage.enable": _inert(
        ValueType(kind=ValueKind.BOOLEAN, parse=_without_tiers),
        "false",
        "Always false: there is no remote storage; see retention.local.* for records that are archived.",
    ),
    "segment.index.bytes": _inert(int32(4), 10_485_760, "No effect: an index grows with its segment."),
    "segment.jitter.ms": _inert(int64(0), 0, "No effect: segments are closed on time."),
    "unclean.leader.election.enable": _inert(boolean(), "false", _ONE_COPY),
}
