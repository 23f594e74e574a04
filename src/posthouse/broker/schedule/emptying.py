"""Moves entries from longer periods to shorter ones, and removes empty buckets."""

from collections.abc import Sequence

from posthouse.broker.schedule.bucket import Bucket
from posthouse.broker.schedule.buckets import BucketEntry, Buckets
from posthouse.broker.schedule.logs import ScheduleLogs
from posthouse.broker.schedule.periods import MOST_PARTS
from posthouse.broker.stored_records import read_piece, records_in
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Trim


class Emptying:
    def __init__(self, storage: Storage, buckets: Buckets, logs: ScheduleLogs) -> None:
        self._storage = storage
        self._buckets = buckets
        self._logs = logs

    async def move_some(self, bucket: Bucket, now_ms: int) -> None:
        """Move one piece of a longer period to shorter ones, in one commit; the last piece removes the
        bucket."""
        await self._buckets.close([bucket])
        await self._logs.reserve(MOST_PARTS)
        bounds = self._storage.bounds(bucket.partition)
        operations: list[Operation] = []
        following = bounds.end
        if bounds.start < bounds.end:
            piece = await read_piece(self._storage, bucket.partition, bounds.start, bounds.end)
            following = piece.following
            entries = (
                BucketEntry(
                    bucket.period.part(record.timestamp), record.timestamp, record.key or b"", record.value
                )
                for record in records_in(piece, bounds.start)
            )
            operations += self._buckets.store(entries, now_ms)
        operations.append(Trim(bucket.partition, following))
        if following == bounds.end:
            operations.append(bucket.removal())
        await self._storage.commit(operations)
        if following == bounds.end:
            self._buckets.remove(bucket)

    async def remove(self, finished: Sequence[Bucket]) -> None:
        """Remove the finished buckets that got no entry meanwhile."""
        await self._buckets.close(finished)
        finished = [bucket for bucket in finished if self.is_finished(bucket)]
        operations: list[Operation] = []
        for bucket in finished:
            operations += [Trim(bucket.partition, bucket.read_to), bucket.removal()]
        await self._storage.commit(operations)
        for bucket in finished:
            self._buckets.remove(bucket)

    def is_finished(self, bucket: Bucket) -> bool:
        """Whether all of its entries have been fired."""
        return (
            bucket.is_open
            and not bucket.misses_something
            and not bucket.loaded
            and not bucket.late
            and bucket.read_to == self._storage.bounds(bucket.partition).end
        )
