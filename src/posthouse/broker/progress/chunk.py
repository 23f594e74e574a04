"""4,096 consecutive positions of a lane: which are settled, and how often the others were delivered.

Stored as, numbers big-endian:

    settled ranges  count u16, then first u16 | last u16 for each, in rising order
    deliveries      position in the chunk u16 | count u16 for each, to the end
"""

from collections.abc import Iterator
from struct import Struct

from posthouse.model.errors import DataDamaged

CHUNK_BITS = 12
CHUNK = 1 << CHUNK_BITS

_PAIR = Struct(">HH")
_COUNT = Struct(">H")
_MOST_DELIVERIES = 0xFFFF
_FULL = bytearray(b"\x01" * CHUNK)


class Chunk:
    """Owned by the event loop."""

    __slots__ = ("count", "deliveries", "settled")

    def __init__(self) -> None:
        self.settled = bytearray(CHUNK)
        self.count = 0
        self.deliveries: dict[int, int] = {}

    def settle(self, at: int) -> bool:
        if self.settled[at]:
            return False
        self.settled[at] = 1
        self.count += 1
        if self.deliveries:
            self.deliveries.pop(at, None)
        if self.count == CHUNK:
            # Shared: one unsettled position far below may leave thousands of full chunks.
            self.settled = _FULL
        return True

    def settle_range(self, first: int, end: int) -> int:
        """Settle a range; returns how many positions were not settled before."""
        if self.settled is _FULL:
            return 0
        new = self.settled.count(0, first, end)
        self.settled[first:end] = b"\x01" * (end - first)
        self.count += new
        self.deliveries = {at: count for at, count in self.deliveries.items() if not first <= at < end}
        if self.count == CHUNK:
            self.settled = _FULL
        return new

    def unsettle(self, at: int) -> None:
        if self.settled is _FULL:
            self.settled = bytearray(_FULL)
        self.settled[at] = 0
        self.count -= 1

    def clear(self, first: int, end: int) -> None:
        if self.settled is _FULL:
            self.settled = bytearray(_FULL)
        self.count -= self.settled.count(1, first, end)
        self.settled[first:end] = bytes(end - first)

    def encode(self) -> bytes:
        ranges = list(self._ranges())
        parts = [_COUNT.pack(len(ranges)), *(_PAIR.pack(first, last) for first, last in ranges)]
        parts += [_PAIR.pack(at, min(count, _MOST_DELIVERIES)) for at, count in self.deliveries.items()]
        return b"".join(parts)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        settled = self.settled
        first = settled.find(1)
        while first >= 0:
            end = settled.find(0, first)
            yield first, (CHUNK if end < 0 else end) - 1
            first = -1 if end < 0 else settled.find(1, end)

    @classmethod
    def decode(cls, data: bytes) -> "Chunk":
        chunk = cls()
        [ranges] = _COUNT.unpack_from(data)
        pairs = list(_PAIR.iter_unpack(data[_COUNT.size :]))
        edges = [edge for first, last in pairs[:ranges] for edge in (first, last + 1)]
        if edges != sorted(edges) or edges[-1:] > [CHUNK] or any(at >= CHUNK for at, _ in pairs[ranges:]):
            raise DataDamaged("settled ranges of a queue are not in rising order, or exceed their chunk")
        for first, last in pairs[:ranges]:
            chunk.settled[first : last + 1] = b"\x01" * (last + 1 - first)
            chunk.count += last + 1 - first
        chunk.deliveries = dict(pairs[ranges:])
        if chunk.count == CHUNK:
            chunk.settled = _FULL
        return chunk
