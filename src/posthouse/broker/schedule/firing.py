"""Fires due messages: appends them to their topics and moves the marks of their buckets, in one commit."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from posthouse.broker.schedule import entry, keys
from posthouse.broker.schedule.bucket import Bucket, Mark
from posthouse.broker.schedule.buckets import Buckets
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.keys import PLACE_SIZE
from posthouse.broker.schedule.recalls import Recalls
from posthouse.broker.schedule.window import ScheduleWindow
from posthouse.broker.stored_records import read_records
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put

log = logging.getLogger(__name__)

Fire = Callable[[Sequence[Scheduled], Sequence[Put]], Awaitable[None]]
"""Publishes the messages and commits the puts with them; if it raises, neither has happened."""


AHEAD_BYTES = 8 * 1024 * 1024
"""Bytes to read ahead if more messages are due than are fired at once. Messages that are due in sequence may
lie anywhere in the log, and scanning it for each firing would take far longer."""


class _Room:
    """Limit on entries and bytes of one firing, but always one entry. Once it has refused, it takes no
    more."""

    def __init__(self, most: int, most_bytes: int, taken: Iterable[bytes] = ()) -> None:
        self._left = most
        self._bytes_left = most_bytes
        self._is_empty = True
        for key in taken:
            self.takes(key)

    def takes(self, key: bytes) -> bool:
        self._left -= 1
        self._bytes_left -= keys.size_of(key)
        fits = self._left >= 0 and self._bytes_left >= 0
        took, self._is_empty = fits or self._is_empty, False
        return took


class Firing:
    def __init__(
        self,
        storage: Storage,
        buckets: Buckets,
        window: ScheduleWindow,
        recalls: Recalls,
        fire: Fire,
        *,
        most: int,
        most_bytes: int,
    ) -> None:
        self._storage = storage
        self._buckets = buckets
        self._window = window
        self._recalls = recalls
        self._fire = fire
        self._most = most
        self._most_bytes = most_bytes
        self._ahead: dict[bytes, bytes] = {}
        """Bodies that were read ahead, by key."""

    async def fire_some(self, now_ms: int) -> bool:
        """Fire the first due messages, up to the limits. False if none is due."""
        room = _Room(self._most, self._most_bytes)
        limit = min((bucket.bound for bucket in self._buckets), default=keys.END)
        limit = min(limit, keys.before(now_ms + 1))
        late = self._late(now_ms, room)
        taken = self._from_window(limit, room)
        if not late and not taken:
            return False
        try:
            await self._fire_all([*late, *taken], await self._bodies(late, taken, limit))
        except BaseException:
            self._window.put_back(taken)
            raise
        return True

    def _late(self, now_ms: int, room: _Room) -> list[bytes]:
        """Of each bucket the late entries with the lowest offsets: see `bucket`."""
        return [
            key
            for bucket in self._buckets
            for key in takewhile(lambda key: keys.due_of(key) <= now_ms and room.takes(key), bucket.late)
        ]

    def _from_window(self, limit: bytes, room: _Room) -> list[bytes]:
        """Due entries in order, up to the first entry that is not loaded yet."""
        taken: list[bytes] = []
        window = self._window
        while (first := window.first) is not None and first < limit and room.takes(first):
            taken.append(window.pop())
        return taken

    async def _fire_all(self, chosen: Sequence[bytes], bodies: Mapping[bytes, bytes]) -> None:
        fired = self._recalls.apply(chosen, bodies)
        messages = [entry.decode(keys.due_of(key), bodies[key]) for key in fired.keys]
        of_log = _by_log(chosen)
        marks: dict[int, Mark] = {}
        puts = [self._recalls.put(fired)]
        for number, in_log in of_log.items():
            bucket = self._buckets.of_log(number)
            marks[number] = self._mark_after(bucket, in_log)
            puts.append(bucket.put(marks[number], bucket.fired + len(in_log)))
        if messages:
            await self._fire(messages, puts)
        else:
            await self._storage.commit(puts)
        self._recalls.fired(fired)
        for number, in_log in of_log.items():
            self._fired(self._buckets.of_log(number), in_log, marks[number])

    async def _bodies(
        self, late: Sequence[bytes], taken: Sequence[bytes], limit: bytes
    ) -> dict[bytes, bytes]:
        """The bodies of all readable entries; the others are damaged."""
        bodies = await self._read(late)
        if any(key not in self._ahead for key in taken):
            room = _Room(self._window.limit, AHEAD_BYTES, taken)
            more = takewhile(room.takes, self._window.upcoming(limit))
            self._ahead = await self._read([*taken, *more])
        return bodies | {key: self._ahead.pop(key) for key in taken if key in self._ahead}

    async def _read(self, wanted: Sequence[bytes]) -> dict[bytes, bytes]:
        bodies: dict[bytes, bytes] = {}
        for number, in_log in _by_log(wanted).items():
            bucket = self._buckets.of_log(number)
            by_offset = {keys.unpack(key).offset: key for key in in_log}
            records = await read_records(self._storage, bucket.partition, sorted(by_offset))
            bodies |= {by_offset[offset]: record.value for offset, record in records.items()}
            if lost := len(by_offset) - len(records):
                log.error(
                    "schedule, log %d: %d delayed messages are damaged and cannot be published", number, lost
                )
        return bodies

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


def _by_log(chosen: Sequence[bytes]) -> dict[int, list[bytes]]:
    of_log: dict[int, list[bytes]] = {}
    for key in chosen:
        of_log.setdefault(keys.log_of(key), []).append(key)
    return of_log
