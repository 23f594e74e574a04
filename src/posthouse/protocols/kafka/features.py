"""The features of a Kafka cluster, with the levels of Kafka 4.3.

Each is at its highest level and stays there: lower levels are not implemented.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from posthouse.protocols.kafka.errors import ErrorCode, Refused


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    min_level: int
    level: int


FEATURES: Sequence[Feature] = (
    Feature("eligible.leader.replicas.version", 0, 1),
    Feature("group.version", 0, 1),
    Feature("kraft.version", 0, 1),
    Feature("metadata.version", 7, 30),
    Feature("share.version", 0, 1),
    Feature("streams.version", 0, 1),
    Feature("transaction.version", 0, 2),
)
"""Clients that see `transaction.version` 2 take a new epoch with every transaction and add partitions by
writing to them; those that see `streams.version` 1 let the broker assign the tasks of Kafka Streams."""

_BY_NAME = {feature.name: feature for feature in FEATURES}


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def check_update(name: str, level: int, upgrade_type: int) -> None:
    """Raises Refused unless the feature already has this level: no other level is supported."""
    feature = _BY_NAME.get(name)
    if feature is None:
        raise _refused(name, level, "this broker does not know the feature")
    if upgrade_type not in set(UpgradeType):
        raise _refused(name, level, f"there is no upgrade type {upgrade_type}")
    if level < 0:
        raise _refused(name, level, "a level cannot be less than 0")
    if level != 0 and not feature.min_level <= level <= feature.level:
        raise _refused(name, level, f"levels {feature.min_level} to {feature.level} are supported")
    if level < feature.level:
        if upgrade_type == UpgradeType.UPGRADE:
            raise _refused(name, level, f"it is at {feature.level}: that is no upgrade")
        raise _refused(name, level, f"it is at {feature.level} and cannot be downgraded")


def _refused(name: str, level: int, why: str) -> Refused:
    return Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be set to {level}: {why}")
