"""Objects in memory, for tests and for a broker that keeps nothing."""

from collections.abc import AsyncIterator, Sequence

from posthouse.model.clock import Clock
from posthouse.storage.shared.objects.probe import probe
from posthouse.storage.shared.objects.store import (
    Buffer,
    ObjectDamaged,
    ObjectMissing,
    StoredObject,
    check_key,
    check_prefix,
)


class MemoryObjectStore:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, tuple[bytes, int]] = {}
        """Content and time of writing."""

    @property
    def name(self) -> str:
        return "memory"

    @property
    def sign(self) -> None:
        """There are no addresses."""

    async def put(self, key: str, data: Buffer) -> None:
        check_key(key)
        self._objects[key] = bytes(data), self._clock.now_ms()

    async def read(self, key: str, start: int, size: int) -> bytes:
        check_key(key)
        if key not in self._objects:
            raise ObjectMissing(f"object {key} is missing in memory")
        found = self._objects[key][0][start : start + size]
        if len(found) != size:
            raise ObjectDamaged(f"object {key} in memory has no {size} bytes from {start}")
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
            self._objects.pop(key, None)

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        check_prefix(prefix)
        for key, (data, modified_ms) in list(self._objects.items()):
            if not prefix or key.startswith(f"{prefix}/"):
                yield StoredObject(key=key, size=len(data), modified_ms=modified_ms)

    async def check(self) -> None:
        await probe(self, "this is a fault of the broker")

    async def close(self) -> None:
        """No-op: there is nothing to release. The objects stay, for another broker of the same test."""
