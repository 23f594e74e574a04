"""Resources with settings in Kafka's admin API, and the description of one setting."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.nodes import Node


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


RESOURCE_TYPES = frozenset(map(int, ResourceType))


class ConfigOperation(IntEnum):
    """What happens to one setting; lists can be appended to and subtracted from."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value comes from."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """One of the sources of a value."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    read_only: bool
    doc: str
    synonyms: tuple[Synonym, ...] = ()
    """From the effective source to the one with the lowest precedence."""


def check_broker_name(name: str, node: Node) -> None:
    """The empty name stands for all brokers. They share what can be set for one of them."""
    if name and name not in (str(each.id) for each in node.all()):
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}; this one is {node.id}")


def check_alterable(resource_type: int, names: Sequence[str]) -> None:
    """Raises Refused unless the resource has settings that can change, and each is named once."""
    if resource_type == ResourceType.BROKER_LOGGER:
        raise Refused(
            ErrorCode.INVALID_CONFIG, "log levels cannot change at run time; set log_level at the start"
        )
    if resource_type not in RESOURCE_TYPES:
        raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, f"setting {twice[0]!r} is named more than once")
