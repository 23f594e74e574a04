"""Long polling: readers that wait for records to arrive."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.storage.arrivals import Arrived, Awaited
from posthouse.storage.partition_view import PartitionView

Subscribe = Callable[[Arrived, Awaited], None]
"""See `Storage.subscribe`."""


class Waiter:
    """One waiting reader: woken once `missing` more bytes have arrived on its partitions."""

    __slots__ = ("missing", "woken")

    def __init__(self, missing: int, woken: asyncio.Future[None]) -> None:
        self.missing = missing
        self.woken = woken

    def arrived(self, partition: PartitionId, size: int) -> None:
        self.missing -= size
        if self.missing <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class StableWaiter(Waiter):
    """Counts bytes only when the last open transaction of their partition has ended."""

    __slots__ = ("_held", "_stable", "_view")

    def __init__(
        self,
        missing: int,
        woken: asyncio.Future[None],
        view: PartitionView,
        partitions: Iterable[PartitionId],
    ) -> None:
        super().__init__(missing, woken)
        self._view = view
        self._held: dict[PartitionId, int] = {}
        self._stable = {partition: view.bounds(partition).stable for partition in partitions}

    def arrived(self, partition: PartitionId, size: int) -> None:
        try:
            bounds = self._view.bounds(partition)
        except UnknownPartition:
            self.wake()
            return
        held = self._held.pop(partition, 0) + size
        if bounds.stable == bounds.end:
            super().arrived(partition, held)
            return
        self._held[partition] = held
        if self._stable[partition] != bounds.stable:
            self.wake()  # one of several transactions has ended: how many bytes became readable is unknown


class LongPoll:
    """The waiting readers by partition. Owned by the event loop."""

    def __init__(self, view: PartitionView, subscribe: Subscribe) -> None:
        """`subscribe` is called once, when the first reader waits: a broker without long polls pays nothing
        for them."""
        self._view = view
        self._subscribe: Subscribe | None = subscribe
        self._waiters: defaultdict[PartitionId, dict[Waiter, None]] = defaultdict(dict)
        """In order of arrival; they are woken in this order."""

    async def wait(
        self, partitions: Iterable[PartitionId], missing: int, seconds: float, *, stable_only: bool = False
    ) -> None:
        """Return when `missing` bytes have arrived on `partitions`, at the latest after `seconds`.

        With `stable_only`, bytes count once no open transaction holds them back.
        """
        if self._subscribe is not None:
            self._subscribe(self.arrived, self._waiters.keys)
            self._subscribe = None
        loop = asyncio.get_running_loop()
        watched = list(partitions)
        waiter = Waiter(missing, loop.create_future())
        if stable_only:
            waiter = StableWaiter(missing, waiter.woken, self._view, watched)
        for partition in watched:
            self._waiters[partition][waiter] = None
        deadline = loop.call_later(seconds, waiter.wake)
        try:
            await waiter.woken
        finally:
            deadline.cancel()
            for partition in watched:
                waiters = self._waiters[partition]
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[partition]

    def arrived(self, partition: PartitionId, size: int) -> None:
        for waiter in self._waiters.get(partition, ()):
            waiter.arrived(partition, size)

    def wake(self, partition: PartitionId) -> None:
        """Wake all readers of a partition that changed in another way, for example was deleted."""
        for waiter in self._waiters.get(partition, ()):
            waiter.wake()

    def wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()
