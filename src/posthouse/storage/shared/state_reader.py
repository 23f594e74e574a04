"""State as the database has it now, of some owners."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from posthouse.model.scopes import owner_shards, shard_of
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared_state import StoredOffsets
from posthouse.storage.spaces import Space

_OF_SHARD = "SELECT key, value FROM state WHERE space = %s AND shard_of(owner) = %s"
_OF_SPACE = "SELECT key, value FROM state WHERE space = %s"
_OF_NAMESPACES = (
    "SELECT space, key, value FROM state WHERE space IN (8, 9, 10) AND shard_of(owner) = ANY (%s)"
)
_OF_OWNERS = (
    "SELECT key, value FROM state "
    "WHERE space = %s AND shard_of(owner) = ANY (%s) AND sha256(owner) = ANY (%s)"
)
# One statement is one moment. Spaces are literals, as in the conditions of the indexes.
_OFFSETS_OF_SHARD = (
    "SELECT key, value FROM state WHERE space = 1 AND shard_of(owner) = %s "
    "UNION ALL SELECT key, NULL FROM state WHERE space = 3 AND shard_of(pending_group(key)) = %s"
)
_OFFSETS_OF_GROUPS = (
    "SELECT key, value FROM state "
    "WHERE space = 1 AND shard_of(owner) = ANY (%s) AND sha256(owner) = ANY (%s) "
    "UNION ALL SELECT key, NULL FROM state "
    "WHERE space = 3 AND shard_of(pending_group(key)) = ANY (%s) AND pending_group(key) = ANY (%s)"
)
_KEYS_OF_TOPICS = (
    "SELECT key FROM state WHERE space IN (1, 13) AND substr(key, 1, 16) = ANY (%s) AND space = %s"
)


class StateReader:
    """Implements `SharedState`."""

    def __init__(
        self, readers: Readers, reserve_producer_ids: Callable[[int, int], Awaitable[int | None]]
    ) -> None:
        self._readers = readers
        self._reserve_producer_ids = reserve_producer_ids

    async def of_shard(self, space: Space, shard: int) -> dict[bytes, bytes]:
        return _by_key(await self._ask(_OF_SHARD, [int(space), shard]))

    async def of_space(self, space: Space) -> dict[bytes, bytes]:
        return _by_key(await self._ask(_OF_SPACE, [int(space)]))

    async def of_namespaces(self, shard: int) -> Mapping[Space, dict[bytes, bytes]]:
        found: dict[Space, dict[bytes, bytes]] = {Space.EXCHANGES: {}, Space.BINDINGS: {}, Space.QUEUES: {}}
        for space, key, value in await self._ask(_OF_NAMESPACES, [list(owner_shards(shard))]):
            found[Space(space)][bytes(key)] = bytes(value)
        return found

    async def of_owners(self, space: Space, owners: Sequence[bytes]) -> dict[bytes, bytes]:
        return _by_key(await self._ask(_OF_OWNERS, [int(space), _shards(owners), _hashes(owners)]))

    async def offsets_of_shard(self, shard: int) -> StoredOffsets:
        return _offsets(await self._ask(_OFFSETS_OF_SHARD, [shard, shard]))

    async def offsets_of_groups(self, groups: Sequence[bytes]) -> StoredOffsets:
        shards = _shards(groups)
        return _offsets(await self._ask(_OFFSETS_OF_GROUPS, [shards, _hashes(groups), shards, list(groups)]))

    async def keys_of_topics(self, space: Space, topics: Sequence[bytes]) -> list[bytes]:
        return [bytes(key) for (key,) in await self._ask(_KEYS_OF_TOPICS, [list(topics), int(space)])]

    async def reserve_producer_ids(self, count: int, end: int) -> int | None:
        return await self._reserve_producer_ids(count, end)

    async def _ask(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        async with self._readers.connection("reading state") as connection:
            return await (await connection.execute(statement.encode(), values)).fetchall()


def _shards(owners: Sequence[bytes]) -> list[int]:
    """The index on owners begins with them."""
    return list({shard_of(owner) for owner in owners})


def _hashes(owners: Sequence[bytes]) -> list[bytes]:
    return [sha256(owner).digest() for owner in owners]


def _by_key(rows: list[tuple[Any, ...]]) -> dict[bytes, bytes]:
    return {bytes(key): bytes(value) for key, value in rows}


def _offsets(rows: list[tuple[Any, ...]]) -> StoredOffsets:
    return StoredOffsets(
        committed={bytes(key): bytes(value) for key, value in rows if value is not None},
        pending={_pending(bytes(key)) for key, value in rows if value is None},
    )


def _pending(key: bytes) -> bytes:
    """The key of the offset, behind the size and the name of the transactional id."""
    return key[2 + int.from_bytes(key[:2], "big") :]
