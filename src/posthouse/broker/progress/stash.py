"""The stash: messages of a lane that were copied out of the log, because they alone kept it from shrinking.

In the log such a position counts as settled, so that the floor rises past it and the log can be trimmed. The
copy is a record in the queue's stash, a partition of its internal topic behind those of its lanes.

Storage has one entry for each in `Space.QUEUE_PROGRESS`, numbers big-endian:

    key    queue id 16 bytes | lane u16 | position u64 | u8 = 1
    value  version u8 = 1 | offset in the stash i64 | expires i64 | deliveries u16 | bytes of its value u32 |
           id of the topic it was published to 16 bytes

Invariant: a copy is durable before its entry is made, and the entry is stored in one commit with the progress
in which its position counts as settled. So a message is always in the log or in the stash.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import TopicId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_VERSION = 1
_KEY = Struct(">16sHQB")
_KIND = 1
_VALUE = Struct(">BqqHI16s")
_MOST_DELIVERIES = 0xFFFF

KEY_SIZE = _KEY.size


@dataclass(slots=True)
class Stashed:
    offset: int
    """Offset of the copy in the stash."""
    expires_ms: int
    size: int
    topic: TopicId
    deliveries: int = 0


class Stash:
    """The stashed messages of one lane, by position. Owned by the event loop, part of the lane's progress."""

    def __init__(self, queue_id: bytes, lane: int, space: Space) -> None:
        self._queue_id = queue_id
        self._lane = lane
        self._space = space
        self._live: dict[int, Stashed] = {}
        self._gone: dict[int, Stashed] = {}
        """Settled, but a commit that fails may yet take that back."""
        self.changed: set[int] = set()
        """Positions whose entries storage does not have yet."""
        self._stored: set[int] = set()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, position: object) -> bool:
        return position in self._live

    def __iter__(self) -> Iterator[int]:
        return iter(self._live)

    def __getitem__(self, position: int) -> Stashed:
        return self._live[position]

    def get(self, position: int) -> Stashed | None:
        return self._live.get(position)

    def add(self, position: int, stashed: Stashed) -> None:
        self._live[position] = stashed
        self.changed.add(position)

    def move(self, position: int, offset: int) -> bool:
        """Record the offset of a new copy. False if the message is not in the stash."""
        stashed = self._live.get(position)
        if stashed is None:
            return False
        stashed.offset = offset
        self.changed.add(position)
        return True

    def settle(self, position: int) -> bool:
        """Settle a message; False if it is not in the stash."""
        stashed = self._live.pop(position, None)
        if stashed is None:
            return False
        self._gone[position] = stashed
        self.changed.add(position)
        return True

    def unsettle(self, position: int) -> bool:
        """Undo `settle`; False if the message was not in the stash."""
        stashed = self._gone.pop(position, None)
        if stashed is None:
            return False
        self.add(position, stashed)
        return True

    def came_back(self, position: int) -> int | None:
        """Count one more delivery; None if the message is not in the stash."""
        stashed = self._live.get(position)
        if stashed is None:
            return None
        stashed.deliveries += 1
        self.changed.add(position)
        return stashed.deliveries

    @property
    def size(self) -> int:
        """Bytes of the values of these messages."""
        return sum(stashed.size for stashed in self._live.values())

    @property
    def lowest(self) -> int | None:
        """The lowest offset of the stash that this lane needs; None if it needs none."""
        both = (*self._live.values(), *self._gone.values())
        return min((stashed.offset for stashed in both), default=None)

    @property
    def gone(self) -> list[int]:
        return list(self._gone)

    def forget(self, gone: Iterable[int]) -> None:
        """The settlement of these messages is durable."""
        for position in gone:
            self._gone.pop(position, None)

    def puts(self) -> list[Put]:
        """What storage does not have yet; it counts as stored from now on."""
        puts = []
        for position in self.changed:
            stashed = self._live.get(position)
            if stashed is not None:
                puts.append(self._put(position, _encoded(stashed)))
                self._stored.add(position)
            elif position in self._stored:
                puts.append(self._put(position, None))
                self._stored.discard(position)
        self.changed.clear()
        return puts

    def not_stored(self) -> None:
        """The last `puts` did not become durable."""
        self.changed.update(self._live, self._gone)
        self._stored.update(self._gone)

    def removals(self) -> list[Put]:
        return [self._put(position, None) for position in {*self._stored, *self._gone}]

    def _put(self, position: int, value: bytes | None) -> Put:
        return Put(self._space, _KEY.pack(self._queue_id, self._lane, position, _KIND), value)

    def load(self, key: bytes, value: bytes) -> None:
        """Load one stored entry."""
        position = _KEY.unpack(key)[2]
        version, offset, expires_ms, deliveries, size, topic = _VALUE.unpack(value)
        if version != _VERSION:
            raise DataDamaged(f"a message in the stash has the unknown version {version}")
        self._live[position] = Stashed(offset, expires_ms, size, TopicId(topic), deliveries)
        self._stored.add(position)


def _encoded(stashed: Stashed) -> bytes:
    deliveries = min(stashed.deliveries, _MOST_DELIVERIES)
    return _VALUE.pack(_VERSION, stashed.offset, stashed.expires_ms, deliveries, stashed.size, stashed.topic)
