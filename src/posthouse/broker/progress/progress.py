"""Progress of a lane: which positions are settled, and how often the others were delivered.

Everything below the *floor* is settled. Above it, positions are kept in chunks of 4,096. Only chunks with
changes exist: one old message that stays unsettled costs one chunk, not a record of everything that was
settled behind it.

Storage has these entries in `Space.QUEUE_PROGRESS` (of subscriptions in `Space.SHARE_PROGRESS`), numbers
big-endian:

    key    queue id 16 bytes | lane u16               value  version u8 = 1 | floor i64 | handed out to i64
    key    queue id 16 bytes | lane u16 | chunk u64   value  see `chunk`

and those of the stash (see `stash`). A commit that stores one of them stores all that have changed.

Invariant: storage is never ahead of what was settled. After a crash the last settled messages may be
redelivered; an unsettled message is never lost.
"""

from struct import Struct
from struct import error as StructError

from posthouse.broker.progress.chunk import CHUNK, CHUNK_BITS, Chunk
from posthouse.broker.progress.stash import KEY_SIZE as STASH_KEY_SIZE
from posthouse.broker.progress.stash import Stash, Stashed
from posthouse.model.errors import DataDamaged
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_MASK = CHUNK - 1
_VERSION = 1

_LANE_KEY = Struct(">16sH")
_CHUNK_KEY = Struct(">16sHQ")
_VALUE = Struct(">Bqq")
_NO_RESERVATION = 2**63


class Progress:
    """Progress of one lane. Owned by the event loop."""

    def __init__(
        self,
        queue_id: bytes,
        lane: int,
        floor: int = 0,
        *,
        space: Space = Space.QUEUE_PROGRESS,
        is_stored: bool = True,
    ) -> None:
        """Without `is_stored`, for queues that do not survive the broker, there is nothing to put."""
        self._is_stored = is_stored
        self._space = space
        self._queue_id = queue_id
        self._lane = lane
        self.floor = floor
        self.handed_out_to = floor
        """Positions below were delivered before, or may have been."""
        self.reserved_to = floor if is_stored else _NO_RESERVATION
        """Storage has recorded that positions below may have been delivered: only those may be delivered."""
        self._reserving_to = floor
        self.settled_above = 0
        """Number of settled positions above the floor."""
        self.stash = Stash(queue_id, lane, space)
        """Messages that live on in the stash; their positions count as settled."""
        self.failures = 0
        """Counts how often something did not become durable."""
        self._chunks: dict[int, Chunk] = {}
        self._stored_chunks: set[int] = set()
        self._changed_chunks: set[int] = set()
        self.is_changed = False

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

    def puts(self) -> list[Put]:
        """The changes since the last call; they count as stored from now on."""
        if not self.is_changed:
            return []
        self.is_changed = False
        if not self._is_stored:
            self._changed_chunks.clear()
            self.stash.puts()
            return []
        puts = [self._lane_put(max(self.handed_out_to, self._reserving_to))]
        for number in self._changed_chunks:
            chunk = self._chunks.get(number)
            if chunk is not None:
                puts.append(self._chunk_put(number, chunk.encode()))
                self._stored_chunks.add(number)
            elif number in self._stored_chunks:
                puts.append(self._chunk_put(number, None))
                self._stored_chunks.discard(number)
        self._changed_chunks.clear()
        if self.stash.changed:
            puts += self.stash.puts()
        return puts

    def reserve(self, to: int) -> list[Put]:
        """`puts` before a delivery: records in storage that all positions below `to` may have been
        delivered."""
        self._reserving_to = max(to, self._reserving_to)
        self.is_changed = True
        return self.puts()

    def exact(self) -> list[Put]:
        """`puts` for a clean shutdown: drop the reservation, because what was not delivered is known."""
        self.is_changed = True
        if self._is_stored:
            self._reserving_to = self.reserved_to = self.handed_out_to
        return self.puts()

    def _lane_put(self, handed_out_to: int) -> Put:
        value = _VALUE.pack(_VERSION, self.floor, handed_out_to)
        return Put(self._space, _LANE_KEY.pack(self._queue_id, self._lane), value)

    def not_stored(self) -> None:
        """The last `puts` failed: everything has to be stored again."""
        self.is_changed = True
        self.failures += 1
        self._changed_chunks.update(self._chunks, self._stored_chunks)
        self.stash.not_stored()

    def removals(self) -> list[Put]:
        """The operations that remove all stored progress."""
        puts = [Put(self._space, _LANE_KEY.pack(self._queue_id, self._lane), None)]
        puts += [self._chunk_put(number, None) for number in self._stored_chunks]
        return puts + self.stash.removals()

    def _chunk_put(self, number: int, value: bytes | None) -> Put:
        return Put(self._space, _CHUNK_KEY.pack(self._queue_id, self._lane, number), value)

    def load(self, key: bytes, value: bytes) -> None:
        """Load one stored entry of this lane."""
        try:
            self._load(key, value)
        except StructError as error:
            raise DataDamaged(f"the progress of a queue cannot be read: {error}") from None

    def _load(self, key: bytes, value: bytes) -> None:
        if len(key) == STASH_KEY_SIZE:
            self.stash.load(key, value)
            return
        if len(key) == _LANE_KEY.size:
            version, self.floor, self.handed_out_to = _VALUE.unpack(value)
            if version != _VERSION:
                raise DataDamaged(f"the progress of a queue has the unknown version {version}")
            if self.floor < 0:
                raise DataDamaged(f"the progress of a queue begins at {self.floor}")
            self.reserved_to = self._reserving_to = self.handed_out_to
            return
        number = _CHUNK_KEY.unpack(key)[2]
        self._chunks[number] = Chunk.decode(value)
        self._stored_chunks.add(number)

    def loaded(self, start: int, end: int | None = None) -> None:
        """All entries are loaded. `start` and `end` are those of the lane's log: positions outside are
        dropped."""
        if end is not None and end < self.handed_out_to:  # positions that do not exist were not delivered
            self.handed_out_to = self.reserved_to = self._reserving_to = max(end, self.floor)
        self.settled_above = 0
        for number, chunk in self._chunks.items():
            low = max(self.floor - (number << CHUNK_BITS), 0)
            self.settled_above += chunk.settled.count(1, low) if low < CHUNK else 0
        if start > self.floor:
            self.settle_range(self.floor, start)


def lane_of(key: bytes) -> tuple[bytes, int]:
    """The queue and the lane of a stored entry."""
    queue_id, lane = _LANE_KEY.unpack_from(key)
    return queue_id, lane
