"""What clients use of the limits that hold over all brokers of a cluster."""

from enum import IntEnum
from typing import NamedTuple


class Limited(IntEnum):
    """What is limited: connections of an address or of a user, bytes per second of an entity with a quota."""

    ADDRESS = 1
    USER = 2
    WRITTEN = 3
    READ = 4


class Use(NamedTuple):
    """Of one limit, by clients of this broker."""

    kind: Limited
    name: str
    amount: float
    limit: float
    wants_more: bool = False
    """A client waits because this broker does not grant it more."""


class ToldUse(NamedTuple):
    """Of one limit, by clients of another broker, as that one tells it."""

    key: bytes
    """The kind and the name, hashed."""
    amount: int
    wants_more: bool


KEY_BYTES = 8
