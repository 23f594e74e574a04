"""The owner of stored state: the group, queue, transactional job or namespace that a key names.

The position of the owner in a key is part of the stored format of its space. So the state of one owner can be
loaded alone, from data of every version, and no name is stored twice. A storage with a table for state has
the owner as a column.
"""

from collections.abc import Callable
from typing import TypeAlias

from posthouse.model.scopes import job_of
from posthouse.storage.spaces import Space

_OwnerOf: TypeAlias = Callable[[bytes], bytes]

CLUSTER = b""
"""Owner of cluster-wide state: users, permissions, broker settings, the schedule."""

_ID_SIZE = 16
_PARTITION_SIZE = 20
"""Topic id and partition number."""


def owner_of(space: int, key: bytes) -> bytes:
    return _OWNERS[Space(space)](key)


def _of_cluster(key: bytes) -> bytes:
    return CLUSTER


def _whole(key: bytes) -> bytes:
    return key


def _first(size: int) -> _OwnerOf:
    return lambda key: key[:size]


def _behind(size: int) -> _OwnerOf:
    return lambda key: key[size:]


def _sized(digits: int) -> _OwnerOf:
    """Owner of keys that begin with the size of the owner's name, then the name."""

    def owner(key: bytes) -> bytes:
        size = int.from_bytes(key[:digits], "big")
        return key[digits : digits + size]

    return owner


_sized_id = _sized(2)


def _sized_job(key: bytes) -> bytes:
    """Of keys that begin with the size of a transactional id, then the id."""
    return job_of(_sized_id(key))


_OWNERS: dict[Space, _OwnerOf] = {
    Space.OFFSETS: _behind(_PARTITION_SIZE),
    Space.TRANSACTIONS: job_of,
    Space.TRANSACTION_OFFSETS: _sized_job,
    Space.PRODUCER_IDS: _of_cluster,
    Space.GROUPS: _whole,
    Space.PRODUCERS: _first(_PARTITION_SIZE),
    Space.FENCES: _whole,
    Space.EXCHANGES: _sized(4),
    Space.BINDINGS: _sized(4),
    Space.QUEUES: _sized(4),
    Space.QUEUE_PROGRESS: _first(_ID_SIZE),
    Space.SCHEDULE: _of_cluster,
    Space.SOURCES: _of_cluster,
    Space.SHARE_GROUPS: _behind(_ID_SIZE),
    Space.SHARE_PROGRESS: _first(_ID_SIZE),
    Space.GROUP_CONFIGS: _whole,
    Space.USERS: _of_cluster,
    Space.ACLS: _of_cluster,
    Space.QUOTAS: _of_cluster,
    Space.STREAMS_GROUPS: _whole,
    Space.CLIENT_METRICS: _of_cluster,
    Space.BROKER_CONFIGS: _of_cluster,
    Space.SECRETS: _of_cluster,
    Space.ADMISSIONS: _first(_PARTITION_SIZE),
    Space.REFERRALS: _of_cluster,
    Space.DUE: _sized(4),
    Space.HALF_MESSAGES: _of_cluster,
    Space.SALVAGED: _first(_PARTITION_SIZE),
    Space.ACCESS_KEYS: _of_cluster,
    Space.GROUP_MEMBERS: _whole,
    Space.WEBHOOKS: _of_cluster,
    Space.DELIVERY_LIMITS: _sized(4),
}
