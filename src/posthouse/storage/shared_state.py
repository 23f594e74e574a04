"""State in a storage that several brokers share. It is read when a broker takes a scope, not at `open`."""

from collections.abc import Sequence
from typing import Protocol

from posthouse.storage.spaces import Space


class SharedState(Protocol):
    """Both return what is stored when they are called, and raise Unavailable."""

    async def of_shard(self, space: Space, shard: int) -> dict[bytes, bytes]:
        """The values whose owner belongs to the shard: see `model.scopes.shard_of`."""

    async def of_owners(self, space: Space, owners: Sequence[bytes]) -> dict[bytes, bytes]: ...
