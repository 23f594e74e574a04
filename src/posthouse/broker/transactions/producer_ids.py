"""Numbers for producers, never given out twice, not even after a crash.

A block is made durable before its first number is used; numbers left in it at a stop are lost.
"""

import asyncio

from posthouse.storage.interface import Put, Space, Storage

BLOCK = 1000
_KEY = b"next"


class ProducerIds:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    def load(self) -> None:
        stored = self._storage.take_state(Space.PRODUCER_IDS).get(_KEY)
        self._next = self._end = int.from_bytes(stored, "big") if stored else 0

    async def take(self) -> int:
        async with self._lock:
            if self._next == self._end:
                end = self._end + BLOCK
                await self._storage.commit([Put(Space.PRODUCER_IDS, _KEY, end.to_bytes(8, "big"))])
                self._end = end
            self._next += 1
            return self._next - 1
