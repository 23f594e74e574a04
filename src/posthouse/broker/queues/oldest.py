"""When the oldest message of a queue was published, without taking it out.

Mostly the message is in memory, ready to be handed out. In a queue that no client consumes it is not: then
its batch is read once, and the time that was found is kept until the queue moves on.
"""

import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import MessageLane
from posthouse.model.errors import PosthouseError
from posthouse.records.batch import NO_TIMESTAMP, parse_header
from posthouse.records.references import iter_references
from posthouse.storage.contract import Storage

log = logging.getLogger(__name__)


class OldestMessages:
    """Of all queues. Owned by the event loop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._found = WeakKeyDictionary[MessageLane, tuple[int, int]]()
        """Position and time of the oldest message that had to be read, by lane."""
        self.reads = 0

    def known_ms(self, queue: LogQueue) -> int | None:
        """When it was published, as far as that is known without reading; None where it is not."""
        oldest: int | None = None
        for lane in queue.lanes:
            if lane.ready <= 0:
                continue
            time = self._known_ms(lane)
            if time is None:
                return None
            if time != NO_TIMESTAMP and (oldest is None or time < oldest):
                oldest = time
        return oldest

    async def read_ms(self, queue: LogQueue) -> int | None:
        """The same, where a lane without known messages is read. None where the queue cannot be read."""
        for lane in queue.lanes:
            if lane.ready > 0 and self._known_ms(lane) is None and not lane.is_gone:
                await self._read(lane)
        return self.known_ms(queue)

    def _known_ms(self, lane: MessageLane) -> int | None:
        """NO_TIMESTAMP where it was read in vain."""
        if lane.returned or lane.bodiless or lane.window:
            in_memory = [message.timestamp for message in (*lane.returned[:1], *lane.bodiless[:1])]
            if lane.window:
                in_memory.append(lane.window[0].timestamp)
            times = [time for time in in_memory if time != NO_TIMESTAMP]
            if times:
                return min(times)
        found = self._found.get(lane)
        return None if found is None or found[0] != _next(lane) else found[1]

    async def _read(self, lane: MessageLane) -> None:
        self.reads += 1
        position = _next(lane)
        try:
            time = await self._time_of(lane, position)
        except PosthouseError as error:
            log.debug("the oldest message of %s cannot be read: %s", lane.log, error)
            time = NO_TIMESTAMP
        self._found[lane] = position, time

    async def _time_of(self, lane: MessageLane, position: int) -> int:
        """That of the batch which the message is in. All messages of a batch were published in one turn."""
        found = await self._storage.read(lane.log, position, 1)
        view = memoryview(found.data)
        header = parse_header(view)
        for at, run in iter_references(view[: header.length], header):
            if at <= position < at + run.count:
                record = await self._storage.read(run.partition, run.first + position - at, 1)
                return parse_header(record.data).base_timestamp
        return NO_TIMESTAMP

    def forget_others(self, queues: Iterable[LogQueue]) -> None:
        """Keep what was found of these queues, and nothing of those that are gone."""
        if not self._found:
            return
        lanes = {lane for queue in queues for lane in queue.lanes}
        for lane in [each for each in self._found if each not in lanes]:
            del self._found[lane]


def _next(lane: MessageLane) -> int:
    """The first position that is not in memory and may be ready."""
    return lane.progress.next_unsettled(max(lane.loaded_to, lane.progress.floor))
