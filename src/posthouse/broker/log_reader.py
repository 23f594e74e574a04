"""The read path of the log: whole batches, in turns of the event loop, or a wait until there are some."""

from collections.abc import Iterable

from posthouse.broker.long_poll import LongPoll
from posthouse.broker.reading_turns import SHORT, ReadingTurns, reaches_end
from posthouse.model.errors import OffsetOutOfRange
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.storage.bounds import Slice
from posthouse.storage.contract import Storage


class LogReader:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, long_poll: LongPoll) -> None:
        self._storage = storage
        self._long_poll = long_poll
        self._turns = ReadingTurns()

    async def read(
        self,
        topic: Topic,
        partition: int,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        stable_only: bool = False,
    ) -> Slice:
        """Whole batches from the one that holds `offset`; empty at the end. See `Storage.read`.

        An offset above the end may be one that another broker has written: storage is asked before it is
        refused.
        """
        id = topic.existing_partition(partition)
        turns = self._turns
        try:
            if max_bytes > SHORT and turns.is_spent:
                found = await self._storage.read(
                    id, offset, SHORT, at_least_one=False, stable_only=stable_only
                )
                if reaches_end(found, offset, stable_only=stable_only):
                    return found
                await turns.next()
            found = await self._storage.read(
                id, offset, max_bytes, at_least_one=at_least_one, stable_only=stable_only
            )
        except OffsetOutOfRange:
            if offset < self._storage.bounds(id).start:
                raise
            await self._storage.refresh([id])
            if offset > self._storage.bounds(id).end:
                raise
            found = await self._storage.read(
                id, offset, max_bytes, at_least_one=at_least_one, stable_only=stable_only
            )
        if len(found.data) > SHORT:
            turns.spend(len(found.data))
        return found

    async def wait(
        self,
        partitions: Iterable[tuple[PartitionId, int]],
        missing: int,
        seconds: float,
        *,
        stable_only: bool = False,
    ) -> None:
        """Wait until `missing` bytes have arrived, at most `seconds`.

        `partitions` carry the end that the caller saw; if one has moved since, this returns at once. With
        `stable_only` the end is the last stable offset.
        """
        watched = []
        for partition, seen_end in partitions:
            bounds = self._storage.bounds(partition)
            if (bounds.stable if stable_only else bounds.end) != seen_end:
                return
            watched.append(partition)
        await self._long_poll.wait(watched, missing, seconds, stable_only=stable_only)
