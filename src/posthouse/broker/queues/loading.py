"""Brings what a queue hands out next into memory, a window at a time."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from heapq import heappush
from typing import TYPE_CHECKING

from posthouse.broker.queues.lane import RESERVATION, Lane
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.rereading import Rereading
from posthouse.model.errors import DataDamaged

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.queue import Queue

log = logging.getLogger(__name__)

WINDOW = 1000
"""So many messages of a lane are kept in memory, ready to be handed out."""
WINDOW_BYTES = 4 * 1024 * 1024
LOW_WINDOW = WINDOW // 2
"""Below this, more are loaded while these are handed out."""


class Loading:
    """Of one queue. One task fills the windows, another notes ahead of time what will be handed out."""

    def __init__(self, queue: "Queue", host: "QueuesHost") -> None:
        self._queue = queue
        self._host = host
        self._readers = {lane: self.new_reader(lane, lane.pass_over) for lane in queue.lanes}
        self.filling: asyncio.Task[None] | None = None
        self.reserving: asyncio.Task[None] | None = None

    def new_reader(
        self, lane: Lane, pass_over: Callable[[int, int], None] = lambda first, end: None
    ) -> LaneReader:
        storage, topic_name, start = self._host.storage, self._host.topic_name, lane.progress.floor
        return LaneReader(storage, topic_name, self._queue, lane, start, pass_over)

    def begin_at(self, lane: Lane, position: int) -> None:
        lane.loaded_to = position
        self._readers[lane].seek(position)

    def plan(self) -> None:
        """Load more where little is left in memory."""
        if self.filling is not None:
            return
        for lane in reversed(self._queue.lanes):
            is_low = len(lane.window) < LOW_WINDOW and lane.window_bytes < WINDOW_BYTES // 2
            if lane.is_drained or (is_low and lane.loaded_to < lane.end):
                self._start_filling(None)
                return
            if lane.window:
                return  # no others are loaded before these are handed out

    async def filled(self, only: Lane | None = None) -> None:
        """Return when more is in memory, if there is more. Raises Unavailable."""
        await self._done(self._start_filling(only))

    def _start_filling(self, only: Lane | None) -> asyncio.Task[None]:
        if self.filling is None:
            self.filling = self._host.start(self._fill(only))
            self.filling.add_done_callback(self._filled)
        return self.filling

    def _filled(self, task: asyncio.Task[None]) -> None:
        self.filling = None
        if task.cancelled():
            return
        if task.exception() is not None or any(lane.window or lane.returned for lane in self._queue.lanes):
            self._queue.handing_out.plan_after(task)

    async def _fill(self, only: Lane | None) -> None:
        lanes = self._queue.lanes
        for lane in reversed(lanes):
            if only is not None and lane is not only:
                continue
            await self._reload(lane)
            await self._fill_window(lane, self._readers[lane])
            if lane.window and lane is not lanes[0]:
                break  # the most urgent first

    async def _fill_window(self, lane: Lane, reader: LaneReader) -> None:
        while (
            lane.loaded_to < lane.end
            and len(lane.window) < WINDOW
            and lane.window_bytes < WINDOW_BYTES
            and not self._queue.is_deleted
        ):
            lane.loaded_to = max(lane.loaded_to, lane.progress.floor)
            run = await reader.next_run(min(lane.end, lane.loaded_to + WINDOW - len(lane.window)))
            if run is None:
                lane.loaded_to = max(lane.loaded_to, reader.position)
                continue
            messages = await reader.load(*run)
            lane.loaded(messages)
            lane.loaded_to = reader.position
            if messages:
                self._queue.handing_out.plan()

    async def _reload(self, lane: Lane) -> None:
        """What came back and was let go from memory meanwhile; as much as fits a window, if it comes next."""
        count = size = 0
        if not lane.is_drained:
            return
        rereading = Rereading(self._host.storage)
        while count < WINDOW and size < WINDOW_BYTES and (message := lane.next_bodiless()) is not None:
            try:
                is_there = await rereading.reload(message)
            except DataDamaged as error:
                if lane.reloading is message:
                    lane.reloading = None
                    lane.unreadable += 1
                    self._warn(message, error)
                continue
            except BaseException:
                if lane.reloading is message:
                    lane.reloading = None
                    heappush(lane.bodiless, message)
                raise
            if lane.reloading is not message:
                continue  # it was purged
            lane.reloading = None
            if is_there:
                lane.reloaded(message)
            else:
                lane.progress.settle(message.position)
                self._queue.progressed(lane)
            count += 1
            size += message.size

    def _warn(self, message: Message, error: DataDamaged) -> None:
        log.error(
            "queue %r (vhost %r): message %d cannot be read again and stays in the queue until a restart: %s",
            self._queue.name,
            self._queue.namespace.name,
            message.position,
            error,
        )

    def plan_reservation(self) -> None:
        """Note that more may be handed out, mostly well before that is needed."""
        if self.reserving is None:
            lanes = [lane for lane in self._queue.lanes if lane.needs_reservation]
            if lanes:
                self.reserving = self._host.start(self._reserve(lanes))
                self.reserving.add_done_callback(self._reserved)

    async def reserved(self) -> None:
        """Return when what is being noted is durable. Raises Unavailable."""
        if self.reserving is not None:
            await self._done(self.reserving)

    async def _reserve(self, lanes: Sequence[Lane]) -> None:
        marks = {lane: at + RESERVATION for lane in lanes if (at := lane.next_in_memory) is not None}
        puts = [put for lane, to in marks.items() for put in lane.progress.reserve(to)]
        await asyncio.shield(self._host.settling.store(marks, puts))
        for lane, to in marks.items():
            lane.progress.reserved_to = max(to, lane.progress.reserved_to)

    def _reserved(self, task: asyncio.Task[None]) -> None:
        self.reserving = None
        if not task.cancelled():
            self._queue.handing_out.plan_after(task)

    async def _done(self, task: asyncio.Task[None]) -> None:
        """Raises what went wrong with it, unless that is because the queue is gone."""
        await asyncio.wait([task])
        if not self._queue.is_deleted and not task.cancelled() and (error := task.exception()) is not None:
            raise error
