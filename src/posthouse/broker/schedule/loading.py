"""Fills the window from the logs.

An open bucket has been read up to `read_to`. Of the entries that did not fit into the window only the lowest
key is kept, the bucket's `bound`. When the window has been fired up to there, the log is read once more. So a
bucket of any size is fired in order with a window of any size, and a typical bucket is read once.
"""

import asyncio
from collections.abc import Sequence

from posthouse.broker.schedule import keys
from posthouse.broker.schedule.bucket import Bucket
from posthouse.broker.schedule.buckets import Buckets
from posthouse.broker.schedule.keys import PLACE_SIZE
from posthouse.broker.schedule.reading import keys_in
from posthouse.broker.schedule.window import ScheduleWindow
from posthouse.broker.stored_records import read_piece
from posthouse.storage.contract import Storage

FEW_OF_WINDOW = 8
"""A bucket of a long period may take this fraction of the window."""


class ScheduleLoader:
    def __init__(self, storage: Storage, buckets: Buckets, window: ScheduleWindow) -> None:
        self._storage = storage
        self._buckets = buckets
        self.window = window

    async def catch_up(self) -> None:
        """Read new entries of open buckets, unless there is no room for late entries. Then nothing else is in
        the window, so no entry is fired before an earlier one that is not read yet."""
        for bucket in [bucket for bucket in self._buckets if bucket.is_open]:
            await self._read_on(bucket)

    def can_load(self, bucket: Bucket) -> bool:
        """Whether the bucket may be loaded. Long periods only with few entries; otherwise their parts are
        loaded one by one.

        Once an entry of a bucket has been loaded or fired, the bucket is never moved.
        """
        if bucket.period.is_finest or bucket.is_open or bucket.fired:
            return True
        return self._buckets.count(bucket) <= self.window.limit // FEW_OF_WINDOW

    def is_needed(self, bucket: Bucket) -> bool:
        """Whether the window has no entry that is due before the unloaded entries of this bucket."""
        first = self.window.first
        return first > bucket.bound if first is not None else not self.window.is_full

    def fits(self, bucket: Bucket) -> bool:
        return len(self.window) + self._buckets.count(bucket) - bucket.fired <= self.window.limit

    async def load(self, bucket: Bucket) -> None:
        """Load missing entries of the bucket into the window, as many as there is room for."""
        if bucket.is_open:
            await self._read_again(bucket)
        else:
            bucket.read_to = bucket.floor = self._storage.bounds(bucket.partition).start
            bucket.bound = keys.END
            await self._read_on(bucket)

    async def _read_on(self, bucket: Bucket) -> None:
        end = self._storage.bounds(bucket.partition).end
        while bucket.read_to < end:
            piece = await read_piece(self._storage, bucket.partition, bucket.read_to, end)
            for offset, key in keys_in(piece, bucket, bucket.read_to):
                if not self._take(bucket, offset, key):
                    bucket.read_to = offset
                    return
                bucket.read_to = offset + 1
            bucket.read_to = piece.following
            await asyncio.sleep(0)

    def _take(self, bucket: Bucket, offset: int, key: bytes) -> bool:
        """False if there is no room for an entry that must not be skipped."""
        if key[:PLACE_SIZE] > bucket.mark.place:
            if key < bucket.bound:
                self._add(bucket, key)
        elif offset >= bucket.mark.to:
            self._note_dropped(self.window.make_room())
            if self.window.is_full:
                return False
            bucket.late.append(key)
            self.window.late += 1
        return True

    def _add(self, bucket: Bucket, key: bytes) -> None:
        bucket.loaded += 1
        self._note_dropped(self.window.add(key))

    def _note_dropped(self, dropped: Sequence[bytes]) -> None:
        for key in dropped:
            bucket = self._buckets.of_log(keys.log_of(key))
            bucket.loaded -= 1
            bucket.bound = min(bucket.bound, key)

    async def _read_again(self, bucket: Bucket) -> None:
        lowest, bucket.bound = bucket.bound, keys.END
        first_left: int | None = None
        offset = bucket.floor
        try:
            while offset < bucket.read_to:
                piece = await read_piece(self._storage, bucket.partition, offset, bucket.read_to)
                for at, key in keys_in(piece, bucket, offset):
                    if key[:PLACE_SIZE] <= bucket.mark.place:
                        continue  # fired, or among the late entries
                    if first_left is None:
                        first_left = at
                    if lowest <= key < bucket.bound:
                        self._add(bucket, key)
                offset = piece.following
                await asyncio.sleep(0)
        except BaseException:
            bucket.bound = min(bucket.bound, lowest)
            bucket.loaded -= self.window.forget(bucket.log, bucket.bound)
            raise
        bucket.floor = bucket.read_to if first_left is None else first_left
