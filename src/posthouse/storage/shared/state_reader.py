"""State as the database has it now, of some owners."""

from collections.abc import Sequence
from typing import Any

from posthouse.model.scopes import shard_of
from posthouse.storage.shared.readers import Readers
from posthouse.storage.spaces import Space

_OF_SHARD = "SELECT key, value FROM state WHERE space = %s AND shard_of(owner) = %s"
_OF_OWNERS = (
    "SELECT key, value FROM state WHERE space = %s AND shard_of(owner) = ANY (%s) AND owner = ANY (%s)"
)


class StateReader:
    """Implements `SharedState`."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def of_shard(self, space: Space, shard: int) -> dict[bytes, bytes]:
        return await self._ask(_OF_SHARD, [int(space), shard])

    async def of_owners(self, space: Space, owners: Sequence[bytes]) -> dict[bytes, bytes]:
        shards = {shard_of(owner) for owner in owners}  # the index begins with them
        return await self._ask(_OF_OWNERS, [int(space), list(shards), list(owners)])

    async def _ask(self, statement: str, values: list[Any]) -> dict[bytes, bytes]:
        async with self._readers.connection("reading state") as connection:
            rows = await (await connection.execute(statement.encode(), values)).fetchall()
        return {bytes(key): bytes(value) for key, value in rows}
