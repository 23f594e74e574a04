"""Readers that wait for records to arrive."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from posthouse.model.ids import PartitionId


class Waiter:
    """One parked reader: woken once `missing` more bytes have arrived on the partitions it watches."""

    __slots__ = ("missing", "woken")

    def __init__(self, missing: int, woken: asyncio.Future[None]) -> None:
        self.missing = missing
        self.woken = woken

    def arrived(self, size: int) -> None:
        self.missing -= size
        if self.missing <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class LongPoll:
    """Who waits on which partition. Owned by the event loop."""

    def __init__(self) -> None:
        self._waiters: defaultdict[PartitionId, set[Waiter]] = defaultdict(set)

    async def wait(self, partitions: Iterable[PartitionId], missing: int, seconds: float) -> None:
        """Return when `missing` bytes have arrived on `partitions`, at the latest after `seconds`."""
        loop = asyncio.get_running_loop()
        waiter = Waiter(missing, loop.create_future())
        watched = list(partitions)
        for partition in watched:
            self._waiters[partition].add(waiter)
        deadline = loop.call_later(seconds, waiter.wake)
        try:
            await waiter.woken
        finally:
            deadline.cancel()
            for partition in watched:
                waiters = self._waiters[partition]
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[partition]

    def arrived(self, partition: PartitionId, size: int) -> None:
        for waiter in self._waiters.get(partition, ()):
            waiter.arrived(size)

    def wake(self, partition: PartitionId) -> None:
        """The partition changed in another way (it is gone): whoever waits must look again."""
        for waiter in self._waiters.get(partition, ()):
            waiter.wake()

    def wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()
