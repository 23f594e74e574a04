"""Fires what is due: the messages go into their topics and the marks of their buckets move, in one commit."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile

from posthouse.broker.schedule import entry, keys
from posthouse.broker.schedule.bucket import Bucket, Mark
from posthouse.broker.schedule.buckets import Buckets
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.keys import PLACE_SIZE
from posthouse.broker.schedule.reading import read_records
from posthouse.broker.schedule.window import Window
from posthouse.storage.interface import Put, Storage

log = logging.getLogger(__name__)

Fire = Callable[[Sequence[Scheduled], Sequence[Put]], Awaitable[None]]
"""Publishes the messages and commits the puts with them; if it raises, neither has happened."""


class _Room:
    """What one firing takes: so many, and so many bytes, but always one. Whoever was refused ends it."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._left = most
        self._bytes_left = most_bytes
        self._is_empty = True

    def takes(self, key: bytes) -> bool:
        self._left -= 1
        self._bytes_left -= keys.size_of(key)
        fits = self._left >= 0 and self._bytes_left >= 0
        took, self._is_empty = fits or self._is_empty, False
        return took


class Firing:
    def __init__(
        self, storage: Storage, buckets: Buckets, window: Window, fire: Fire, *, most: int, most_bytes: int
    ) -> None:
        self._storage = storage
        self._buckets = buckets
        self._window = window
        self._fire = fire
        self._most = most
        self._most_bytes = most_bytes

    async def fire_some(self, now_ms: int) -> bool:
        """The first messages that are due, up to the limits. False if none is."""
        room = _Room(self._most, self._most_bytes)
        late = self._late(now_ms, room)
        taken = self._from_window(now_ms, room)
        if not late and not taken:
            return False
        try:
            await self._fire_all(late, taken)
        except BaseException:
            self._window.put_back(taken)
            raise
        return True

    def _late(self, now_ms: int, room: _Room) -> list[bytes]:
        """Of each bucket those with the lowest offsets: see `bucket` for why."""
        return [
            key
            for bucket in self._buckets
            for key in takewhile(lambda key: keys.due_of(key) <= now_ms and room.takes(key), bucket.late)
        ]

    def _from_window(self, now_ms: int, room: _Room) -> list[bytes]:
        """In order, up to what some bucket has not loaded yet."""
        limit = min((bucket.bound for bucket in self._buckets), default=keys.END)
        limit = min(limit, keys.before(now_ms + 1))
        taken: list[bytes] = []
        window = self._window
        while (first := window.first) is not None and first < limit and room.takes(first):
            taken.append(window.pop())
        return taken

    async def _fire_all(self, late: Sequence[bytes], taken: Sequence[bytes]) -> None:
        of_log: dict[int, list[bytes]] = {}
        for key in (*late, *taken):
            of_log.setdefault(keys.log_of(key), []).append(key)
        messages: dict[bytes, Scheduled] = {}
        for number, in_log in of_log.items():
            messages |= await self._read(self._buckets.of_log(number), in_log)
        marks: dict[int, Mark] = {}
        puts: list[Put] = []
        for number, in_log in of_log.items():
            bucket = self._buckets.of_log(number)
            marks[number] = self._mark_after(bucket, in_log)
            puts.append(bucket.put(marks[number], bucket.fired + len(in_log)))
        if messages:
            await self._fire([messages[key] for key in sorted(messages)], puts)
        else:
            await self._storage.commit(puts)
        for number, in_log in of_log.items():
            self._fired(self._buckets.of_log(number), in_log, marks[number])

    async def _read(self, bucket: Bucket, wanted: Sequence[bytes]) -> dict[bytes, Scheduled]:
        by_offset = {keys.unpack(key).offset: key for key in wanted}
        records = await read_records(self._storage, bucket.partition, sorted(by_offset))
        if len(records) < len(by_offset):
            lost = len(by_offset) - len(records)
            log.error("%d delayed messages in log %d are damaged and cannot be sent", lost, bucket.log)
        return {
            by_offset[offset]: entry.decode(record.timestamp, record.value)
            for offset, record in records.items()
        }

    def _mark_after(self, bucket: Bucket, fired: Sequence[bytes]) -> Mark:
        highest = max(fired)[:PLACE_SIZE]
        if highest > bucket.mark.place:
            return Mark(highest, bucket.read_to)
        remaining = bucket.late[len(fired)] if len(fired) < len(bucket.late) else None
        return Mark(bucket.mark.place, bucket.read_to if remaining is None else keys.unpack(remaining).offset)

    def _fired(self, bucket: Bucket, fired: Sequence[bytes], mark: Mark) -> None:
        late = sum(key[:PLACE_SIZE] <= bucket.mark.place for key in fired)
        for _ in range(late):
            bucket.late.popleft()
        self._window.late -= late
        bucket.loaded -= len(fired) - late
        bucket.fired += len(fired)
        bucket.mark = mark
