"""Objects in memory, with a clock and with steps at which a test may stop the work."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from posthouse.model.clock import Clock
from posthouse.storage.shared.objects.store import ObjectDamaged, ObjectMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    key: str
    size: int
    modified_ms: int


class MemoryObjects:
    """The object store as housekeeping sees it. `step` is called before and after every change."""

    sign = None

    def __init__(self, clock: Clock, step: Callable[[str], None] = lambda name: None) -> None:
        self._clock = clock
        self.step = step
        self.stored: dict[str, tuple[bytes, int]] = {}
        self.reads = 0
        self.lists: list[str] = []

    async def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        self.step(f"before put {key}")
        stored = self.stored.get(key)
        assert stored is None or (key.startswith("damaged/") and stored[0] == data), "a key has one content"
        self.stored[key] = (bytes(data), self._clock.now_ms())
        self.step(f"after put {key}")

    async def read(self, key: str, start: int, size: int) -> bytes:
        self.reads += 1
        if key not in self.stored:
            raise ObjectMissing(f"object {key} is missing")
        found = self.stored[key][0][start : start + size]
        if len(found) != size:
            raise ObjectDamaged(f"object {key} has no {size} bytes from {start}")
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        self.step("before delete")
        for number, key in enumerate(keys):
            self.stored.pop(key, None)  # as in S3: what is not there is deleted already
            if number == 0:
                self.step("within delete")
        self.step("after delete")

    async def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        self.lists.append(prefix)
        for key in sorted(self.stored):
            if key.startswith(f"{prefix}/"):
                data, modified = self.stored[key]
                yield ListedObject(key=key, size=len(data), modified_ms=modified)
