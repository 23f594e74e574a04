"""Loads the next messages of a queue into memory, a window at a time."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from heapq import heappush
from typing import Protocol

from posthouse.broker.progress.progress import ProgressWriter
from posthouse.broker.queues.background import Background
from posthouse.broker.queues.lane import RESERVATION
from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.broker.queues.publishing import PublishedRun
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.rereading import Rereading
from posthouse.model.errors import DataDamaged
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Run

log = logging.getLogger(__name__)

WINDOW = 1000
"""Messages of a lane that are kept in memory, ready to be delivered."""
WINDOW_BYTES = 4 * 1024 * 1024
LOW_WINDOW = WINDOW // 2
"""Below this, more messages are loaded while these are delivered."""


class LoaderOwner(Protocol):
    """What the loader needs of the dispatcher."""

    def plan(self) -> None:
        """Deliver at the end of the turn."""

    def load_ended(self, task: asyncio.Task[None]) -> None:
        """More messages are in memory, or `task` has failed."""


class Loader:
    """Of one queue. One task fills the windows. Another one reserves positions: it stores that they may have
    been delivered, before they are."""

    def __init__(
        self,
        owner: LoaderOwner,
        source: MessageSource,
        background: Background,
        storage: Storage,
        progress_writer: ProgressWriter,
        lanes: Sequence[MessageLane],
        readers: Mapping[MessageLane, LaneReader],
    ) -> None:
        """`source` is the queue, as log lines name it. `lanes` are in the order of their priority, the lowest
        first; `readers` has one for each."""
        self._owner = owner
        self._source = source
        self._background = background
        self._storage = storage
        self._progress_writer = progress_writer
        self._readers = readers
        self._lanes = lanes
        self.filling: asyncio.Task[None] | None = None
        self.reserving: asyncio.Task[None] | None = None
        self._is_stopped = False

    def load_stash(self) -> None:
        """After a restart, before anything is loaded."""
        for lane, reader in self._readers.items():
            lane.load_stash([reader.stashed(position) for position in lane.progress.stash])

    def begin_at(self, lane: MessageLane, position: int) -> None:
        lane.loaded_to = position
        self._readers[lane].seek(position)

    def stop(self) -> None:
        self._is_stopped = True

    def take_in(self, lane: MessageLane, runs: Sequence[Run], count: int, size: int) -> None:
        """Consumers wait for messages that have arrived. These need not be read if they are still in memory
        and follow those that are loaded."""
        published = [run for run in runs if isinstance(run, PublishedRun)]
        first = lane.end - count
        if (
            self.filling is None  # a fill under way owns `loaded_to`
            and max(lane.loaded_to, lane.progress.floor) >= first
            and len(published) == len(runs)
            and len(lane.window) + count <= WINDOW
            and lane.window_bytes + size <= WINDOW_BYTES
        ):
            lane.loaded(self._messages(lane, first, published))
            lane.loaded_to = lane.end

    def _messages(self, lane: MessageLane, first: int, runs: Sequence[PublishedRun]) -> list[Message]:
        """The same messages that `LaneReader` would read."""
        messages: list[Message] = []
        queue, at = self._source, first
        for run in runs:
            assert run.append is not None, "the run is durable"
            source, topic, expires = run.partition, run.topic, run.expires_ms
            time = run.append.header.max_timestamp  # all records of a wave have this time
            offset = run.append.base_offset + run.first
            for _, _, key, value, envelope in run.published[run.first : run.first + run.count]:
                size, headers = len(value), envelope.headers
                messages.append(
                    Message(queue, lane, at, source, topic, offset, time, key, value, size, headers, expires)
                )
                at += 1
                offset += 1
        return messages

    def plan(self) -> None:
        """Load more where little is left in memory."""
        if self.filling is not None:
            return
        for lane in reversed(self._lanes):
            is_low = len(lane.window) < LOW_WINDOW and lane.window_bytes < WINDOW_BYTES // 2
            if lane.is_drained or (is_low and lane.loaded_to < lane.end):
                self._start_filling(None)
                return
            if lane.window:
                return  # no others are loaded before these are handed out

    async def filled(self, only: MessageLane | None = None) -> None:
        """Return when more is in memory, if there is more. Raises Unavailable."""
        await self._done(self._start_filling(only))

    def _start_filling(self, only: MessageLane | None) -> asyncio.Task[None]:
        if self.filling is None:
            self.filling = self._background.start(self._fill(only), self._source)
            self.filling.add_done_callback(self._filled)
        return self.filling

    def _filled(self, task: asyncio.Task[None]) -> None:
        self.filling = None
        if task.cancelled():
            return
        if task.exception() is not None or any(lane.window or lane.returned for lane in self._lanes):
            self._owner.load_ended(task)

    async def _fill(self, only: MessageLane | None) -> None:
        lanes = self._lanes
        for lane in reversed(lanes):
            if only is not None and lane is not only:
                continue
            await self._reload(lane)
            await self._fill_window(lane, self._readers[lane])
            if lane.window and lane is not lanes[0]:
                break  # the most urgent first

    async def _fill_window(self, lane: MessageLane, reader: LaneReader) -> None:
        if reader.position < lane.loaded_to:
            reader.seek(lane.loaded_to)
        while (
            lane.loaded_to < lane.end
            and len(lane.window) < WINDOW
            and lane.window_bytes < WINDOW_BYTES
            and not self._is_stopped
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
                self._owner.plan()

    async def _reload(self, lane: MessageLane) -> None:
        """Read dropped bodies of requeued messages again, up to one window, if these are next in order."""
        count = size = 0
        if not lane.bodiless or not lane.is_drained:
            return
        rereading = Rereading(self._storage)
        while count < WINDOW and size < WINDOW_BYTES and (message := lane.next_bodiless()) is not None:
            try:
                is_there = await rereading.reload(message)
            except DataDamaged as error:
                if lane.reloading is message:
                    lane.reloading = None
                    lane.unreadable += 1
                    log.error(
                        "%s: message %d cannot be read again and stays in the queue until a restart: %s",
                        message.queue,
                        message.position,
                        error,
                    )
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
                lane.lose_message(message)
            count += 1
            size += message.size

    def plan_reservation(self) -> None:
        """Reserve more positions, mostly long before they are needed."""
        if self.reserving is None:
            lanes = [lane for lane in self._lanes if lane.needs_reservation]
            if lanes:
                self.reserving = self._background.start(self._reserve(lanes), self._source)
                self.reserving.add_done_callback(self._reserved)

    async def reserved(self) -> None:
        """Return when the reservation under way is durable. Raises Unavailable."""
        if self.reserving is not None:
            await self._done(self.reserving)

    async def _reserve(self, lanes: Sequence[MessageLane]) -> None:
        marks = {lane: at + RESERVATION for lane in lanes if (at := lane.next_in_memory) is not None}
        puts = [put for lane, to in marks.items() for put in lane.progress.reserve(to)]
        await asyncio.shield(self._progress_writer.store(marks, puts))
        for lane, to in marks.items():
            lane.progress.reserved_to = max(to, lane.progress.reserved_to)

    def _reserved(self, task: asyncio.Task[None]) -> None:
        self.reserving = None
        if not task.cancelled():
            self._owner.load_ended(task)

    async def _done(self, task: asyncio.Task[None]) -> None:
        """Raises the error of the task, unless the queue is stopped."""
        await asyncio.wait([task])
        if not self._is_stopped and not task.cancelled() and (error := task.exception()) is not None:
            raise error
