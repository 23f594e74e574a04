"""State in a storage that several brokers share. It is read when a broker takes a scope, not at `open`."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from posthouse.storage.spaces import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffsets:
    """Offsets of groups at one moment: no transaction ends between the two parts."""

    committed: Mapping[bytes, bytes]
    """Keys and values of `Space.OFFSETS`."""
    pending: AbstractSet[bytes]
    """Keys of `Space.OFFSETS` that open transactions are about to change."""


class SharedState(Protocol):
    """All of it is about what is stored when it is called, and raises Unavailable."""

    async def of_shard(self, space: Space, shard: int) -> dict[bytes, bytes]:
        """The values whose owner belongs to the shard: see `model.scopes.shard_of`."""

    async def of_space(self, space: Space) -> dict[bytes, bytes]:
        """All values: only for spaces that are small, or are seldom looked at."""

    async def of_namespaces(self, shard: int) -> Mapping[Space, dict[bytes, bytes]]:
        """Exchanges, bindings and queues of the namespaces of this scope."""

    async def of_owners(self, space: Space, owners: Sequence[bytes]) -> dict[bytes, bytes]: ...

    async def offsets_of_shard(self, shard: int) -> StoredOffsets:
        """Of all groups of the shard."""

    async def offsets_of_groups(self, groups: Sequence[bytes]) -> StoredOffsets: ...

    async def keys_of_topics(self, space: Space, topics: Sequence[bytes]) -> list[bytes]:
        """The keys that begin with one of these ids of topics, in `Space.OFFSETS` or `Space.SHARE_GROUPS`."""

    async def reserve_producer_ids(self, count: int, end: int) -> int | None:
        """The first of `count` ids that no broker got before, from now on none gets, and that a crash does
        not give back; None if they do not all lie below `end`. Kept in `Space.PRODUCER_IDS`."""
