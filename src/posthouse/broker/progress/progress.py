"""Progress of a lane or partition as it is stored: what is settled, and how often the rest was delivered.

Storage has these entries in `Space.QUEUE_PROGRESS` (of subscriptions in `Space.SHARE_PROGRESS`), numbers
big-endian:

    key    queue id 16 bytes | lane u16               value  version u8 = 1 | floor i64 | handed out to i64
    key    queue id 16 bytes | lane u16 | chunk u64   value  see `chunk`

and those of the stash (see `stash`). A commit that stores one of them stores all that have changed.

Invariant: storage is never ahead of what was settled. Settlements are stored with a short delay, many in one
commit. After a crash the last settled messages may be redelivered; an unsettled message is never lost.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from struct import Struct
from struct import error as StructError
from typing import Protocol
from weakref import WeakSet

from posthouse.broker.progress.chunk import Chunk
from posthouse.broker.progress.positions import Positions
from posthouse.broker.progress.stash import KEY_SIZE as STASH_KEY_SIZE
from posthouse.broker.progress.stash import Stash
from posthouse.model.errors import DataDamaged, PosthouseError
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space

_VERSION = 1
_LANE_KEY = Struct(">16sH")
_CHUNK_KEY = Struct(">16sHQ")
_VALUE = Struct(">Bqq")
_NO_RESERVATION = 2**63
_DELAY_SECONDS = 0.02


class Progress(Positions):
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
        super().__init__(floor, Stash(queue_id, lane, space))
        self._is_stored = is_stored
        self._space = space
        self._queue_id = queue_id
        self._lane = lane
        self.reserved_to = floor if is_stored else _NO_RESERVATION
        """Storage has recorded that positions below may have been delivered: only those may be delivered."""
        self._reserving_to = floor
        self.failures = 0
        """Counts how often something did not become durable."""
        self._stored_chunks: set[int] = set()

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
        self._count_settled()
        if start > self.floor:
            self.settle_range(self.floor, start)


def lane_of(key: bytes) -> tuple[bytes, int]:
    """The queue and the lane of a stored entry."""
    queue_id, lane = _LANE_KEY.unpack_from(key)
    return queue_id, lane


class Progressing(Protocol):
    """A lane of a queue, or a partition of a subscription."""

    @property
    def progress(self) -> Progress: ...


class ProgressWriter:
    """Stores the progress of all lanes, a moment after it has changed. Owned by the event loop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changed: dict[Progressing, None] = {}
        """In the order of their first change."""
        self._timer: asyncio.TimerHandle | None = None
        self._left: WeakSet[Progressing] = WeakSet()
        """Another broker stores the progress of these lanes, or what replaces them: a commit that fails late
        changes nothing."""

    def changed(self, lane: Progressing) -> None:
        if lane in self._left:
            return
        self._changed[lane] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_SECONDS, self._store)

    def forget(self, lane: Progressing) -> None:
        self._changed.pop(lane, None)

    def abandon(self, lane: Progressing) -> None:
        """Its stored progress is replaced or removed: nothing of it must be stored after that."""
        self.forget(lane)
        self._left.add(lane)

    def resume(self, lane: Progressing) -> None:
        """After `abandon`: that could not be done."""
        self._left.discard(lane)
        lane.progress.not_stored()
        self.changed(lane)

    def _store(self) -> None:
        self._timer = None
        lanes, self._changed = self._changed, {}
        operations: list[Operation] = [put for lane in lanes for put in lane.progress.puts()]
        if operations:
            # Fenced or closed: settled messages are redelivered after a restart.
            with suppress(PosthouseError):
                self.store(lanes, operations)

    def store(
        self, lanes: Collection[Progressing], puts: Sequence[Operation]
    ) -> asyncio.Future[list[Outcome]]:
        """Commit the changed progress of these lanes. Failed changes are stored with the next commit."""
        try:
            storing = self._storage.commit(puts)
        except PosthouseError:
            self._again(lanes)
            raise
        storing.add_done_callback(lambda done: self._stored(lanes, done))
        return storing

    def _stored(self, lanes: Collection[Progressing], done: asyncio.Future[list[Outcome]]) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._again(lanes)

    def _again(self, lanes: Collection[Progressing]) -> None:
        for lane in lanes:
            lane.progress.not_stored()
        self._changed |= dict.fromkeys(lane for lane in lanes if lane not in self._left)

    async def leave(self, lanes: Collection[Progressing]) -> None:
        """Store the exact progress of some lanes for the last time. Failed changes are not tried again."""
        for lane in lanes:
            self.forget(lane)
            self._left.add(lane)
        operations: list[Operation] = [put for lane in lanes for put in lane.progress.exact()]
        if operations:
            await self._storage.commit(operations)

    async def close(self, lanes: Iterable[Progressing]) -> None:
        """Store the exact progress of all lanes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._changed.clear()
        operations: list[Operation] = [put for lane in lanes for put in lane.progress.exact()]
        if operations:
            await self._storage.commit(operations)
