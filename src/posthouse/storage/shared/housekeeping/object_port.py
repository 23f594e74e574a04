"""What housekeeping needs of the object store."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol


class FoundObject(Protocol):
    @property
    def key(self) -> str: ...


class HousekeptObjects(Protocol):
    async def put(self, key: str, data: bytes | bytearray | memoryview) -> None: ...

    async def read(self, key: str, start: int, size: int) -> bytes | memoryview: ...

    async def delete(self, keys: Sequence[str]) -> None: ...

    def list(self, prefix: str) -> AsyncIterator[FoundObject]: ...
