"""The positions of one log, a lane of a queue or a partition of a subscription: ready, leased or settled.

Everything below the *floor* is settled. Above it, settled positions are kept in chunks of 4,096. Only chunks
with changes exist: one old message that stays unsettled costs one chunk, not a record of everything that was
settled behind it.

Settled positions are stored, by `progress`. Leases are not: after a restart, leased positions are ready.
"""

from typing import Generic, TypeVar

from posthouse.broker.progress.chunk import CHUNK, CHUNK_BITS, Chunk
from posthouse.broker.progress.stash import Stash, Stashed

_MASK = CHUNK - 1


class Positions:
    """Which positions are settled, and how often the others were delivered. Owned by the event loop."""

    def __init__(self, floor: int, stash: Stash) -> None:
        self.floor = floor
        self.settled_above = 0
        """Number of settled positions above the floor."""
        self.handed_out_to = floor
        """Positions below were delivered before, or may have been."""
        self.stash = stash
        """Messages that live on in the stash; their positions count as settled."""
        self.is_changed = False
        self._chunks: dict[int, Chunk] = {}
        self._changed_chunks: set[int] = set()

    def is_settled(self, position: int) -> bool:
        if position < self.floor:
            return True
        chunk = self._chunks.get(position >> CHUNK_BITS)
        return chunk is not None and chunk.settled[position & _MASK] == 1

    def next_unsettled(self, position: int) -> int:
        """The first unsettled position from `position` on."""
        position = max(position, self.floor)
        while (chunk := self._chunks.get(position >> CHUNK_BITS)) is not None:
            at = chunk.settled.find(0, position & _MASK)
            if at >= 0:
                return (position & ~_MASK) + at
            position = (position & ~_MASK) + CHUNK
        return position

    def settle(self, position: int) -> bool:
        """Settle a position; False if it was settled already."""
        self.is_changed = True
        if position == self.floor:
            if self._chunks:
                self._raise_floor(position + 1)
            else:
                self.floor = position + 1
            return True
        if position < self.floor:
            return self.stash.settle(position)
        number = position >> CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = Chunk()
        if not chunk.settle(position & _MASK):
            return self.stash.settle(position)
        self.settled_above += 1
        self._changed_chunks.add(number)
        return True

    def settle_range(self, first: int, end: int) -> None:
        """Settle all positions from `first` to before `end`."""
        self.is_changed = True
        first = max(first, self.floor)
        if first >= end:
            return
        for number in range(first >> CHUNK_BITS, (end - 1 >> CHUNK_BITS) + 1):
            chunk = self._chunks.get(number)
            low = max(first - (number << CHUNK_BITS), 0)
            high = min(end - (number << CHUNK_BITS), CHUNK)
            if first > self.floor:
                if chunk is None:
                    chunk = self._chunks[number] = Chunk()
                self.settled_above += chunk.settle_range(low, high)
                self._changed_chunks.add(number)
            elif chunk is not None:
                self.settled_above -= chunk.settled.count(1, low, high)
        if first == self.floor:
            self._raise_floor(end)

    def _count_settled(self) -> None:
        """Chunks were loaded."""
        self.settled_above = 0
        for number, chunk in self._chunks.items():
            low = max(self.floor - (number << CHUNK_BITS), 0)
            self.settled_above += chunk.settled.count(1, low) if low < CHUNK else 0

    def _raise_floor(self, floor: int) -> None:
        """Raise the floor to `floor` and over settled positions from there; chunks below it are dropped."""
        before = self.floor >> CHUNK_BITS
        while (chunk := self._chunks.get(floor >> CHUNK_BITS)) is not None:
            at = floor & _MASK
            end = chunk.settled.find(0, at)
            stepped = (CHUNK if end < 0 else end) - at
            self.settled_above -= stepped
            floor += stepped
            if end >= 0:
                break
        self.floor = floor
        if floor >> CHUNK_BITS != before:
            for number in [number for number in self._chunks if number < floor >> CHUNK_BITS]:
                self._forget(number)

    def _forget(self, number: int) -> None:
        if self._chunks.pop(number, None) is not None:
            self._changed_chunks.add(number)

    def unsettle(self, position: int) -> None:
        """Undo `settle`: the operations to be stored with it failed."""
        self.is_changed = True
        if self.stash.unsettle(position):
            return
        if position >= self.floor:
            chunk = self._chunks[position >> CHUNK_BITS]
            chunk.unsettle(position & _MASK)
            self.settled_above -= 1
            self._changed_chunks.add(position >> CHUNK_BITS)
            return
        end, self.floor = self.floor, position
        for number in range(position >> CHUNK_BITS, (end - 1 >> CHUNK_BITS) + 1):
            stale = self._chunks.get(number)
            if stale is not None:  # chunks below the floor are not maintained
                stale.clear(
                    max(position - (number << CHUNK_BITS), 0), min(end - (number << CHUNK_BITS), CHUNK)
                )
                self._changed_chunks.add(number)
        self.settle_range(position + 1, end)

    def deliveries(self, position: int) -> int:
        """How often the position was delivered and requeued."""
        stashed = self.stash.get(position)
        if stashed is not None:
            return stashed.deliveries
        chunk = self._chunks.get(position >> CHUNK_BITS)
        return 0 if chunk is None else chunk.deliveries.get(position & _MASK, 0)

    def came_back(self, position: int) -> int:
        """Count one more delivery."""
        self.is_changed = True
        stashed = self.stash.came_back(position)
        if stashed is not None:
            return stashed
        number = position >> CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = Chunk()
        count = chunk.deliveries[position & _MASK] = chunk.deliveries.get(position & _MASK, 0) + 1
        self._changed_chunks.add(number)
        return count

    def put_aside(self, position: int, stashed: Stashed) -> None:
        """Move an unsettled position to the stash."""
        stashed.deliveries = self.deliveries(position)
        self.settle(position)
        self.stash.add(position, stashed)
        if position >= self.handed_out_to:  # unknown after a restart
            self.handed_out_to = position + 1

    def stragglers(self, most: int) -> tuple[int, int]:
        """The end of a range from the floor on with at most `most` unsettled positions, and their number.

        The last position of the range is settled, so what follows it is not held back by those before.
        """
        end, found = self.floor, 0
        while (settled := self._next_settled(end)) is not None and found + settled - end <= most:
            found += settled - end
            end = self.next_unsettled(settled)
        return end, found

    def _next_settled(self, position: int) -> int | None:
        """The first settled position from `position` on; None if a chunk without any lies in between."""
        while (chunk := self._chunks.get(position >> CHUNK_BITS)) is not None:
            at = chunk.settled.find(1, position & _MASK)
            if at >= 0:
                return (position & ~_MASK) + at
            position = (position & ~_MASK) + CHUNK
        return None

    def unsettled(self, end: int, most: int) -> list[int]:
        """The first `most` unsettled positions below `end`."""
        positions: list[int] = []
        position = self.next_unsettled(self.floor)
        while position < end and len(positions) < most:
            positions.append(position)
            position = self.next_unsettled(position + 1)
        return positions


H = TypeVar("H")


class LeaseTable(Generic[H]):
    """Which positions are leased, and to whom. Owned by the event loop.

    A holder is compared by identity: one that has lost its lease cannot settle a position that another one
    holds by now. Invariant: a position has at most one holder, and a leased one is not settled.
    """

    __slots__ = ("_positions", "holders")

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.holders: dict[int, H] = {}
        """By position. Owners lease by adding to it: a call for each message would be slower."""

    def settle(self, position: int, holder: H) -> bool:
        """End the lease and settle the position. False where the holder has lost its lease."""
        holders = self.holders
        if holders.get(position) is not holder:
            return False
        del holders[position]
        self._positions.settle(position)
        return True

    def unsettle(self, position: int, holder: H) -> None:
        """Undo `settle`: what had to be stored with it failed."""
        self._positions.unsettle(position)
        self.holders[position] = holder

    def settle_range(self, first: int, end: int) -> None:
        """End the leases on all positions from `first` to before `end`, and settle them."""
        for position in range(first, end):
            del self.holders[position]
        self._positions.settle_range(first, end)

    def settle_unleased(self, first: int, end: int) -> None:
        """Settle all positions from `first` to before `end` that are not leased."""
        if first >= end:
            return
        for position in sorted(position for position in self.holders if first <= position < end):
            self._positions.settle_range(first, position)
            first = position + 1
        self._positions.settle_range(first, end)

    def release(self, position: int, holder: H) -> bool:
        """End the lease: the position is ready. False where the holder has lost its lease."""
        if self.holders.get(position) is not holder:
            return False
        del self.holders[position]
        return True

    def drop_below(self, start: int) -> None:
        """End the leases on all positions below `start`: their records are gone."""
        for position in [position for position in self.holders if position < start]:
            del self.holders[position]
