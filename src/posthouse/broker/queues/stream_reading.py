"""One consumer's way through a stream: a position of its own, and credit for what comes next."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from posthouse.broker.queues.consumers import Consumer
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.stream_window import StreamWindow

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.lane import Lane
    from posthouse.broker.queues.stream_queue import StreamQueue
    from posthouse.broker.queues.wave import Wave

AT_ONCE = 256
"""So many are delivered in one turn of the event loop."""
_OFFERS = 16
"""So many rounds of loading and delivering a new consumer is waited for."""


class StreamReading:
    """Owned by the event loop. Settles nothing: an acknowledgement is only credit for the next message."""

    def __init__(self, queue: "StreamQueue", host: "QueuesHost", start: int) -> None:
        self.name = queue.name
        self._queue = queue
        self._host = host
        self._consumer: Consumer | None = None
        self._lane = queue.lanes[0]
        self._reader = LaneReader(host.storage, host.topic_name, self, self._lane, start)
        self._window = StreamWindow(host.stream_memory)
        self._filling: asyncio.Task[None] | None = None
        self._is_planned = False
        self._is_waiting = False
        """For credit, since the last look: then the window is memory that does nothing."""

    def subscribe(self, consumer: Consumer) -> None:
        """It gets everything, as far as it has credit."""
        self._consumer = consumer
        self._queue.begin(self)
        self.plan()

    @property
    def _credit(self) -> int:
        return 0 if self._consumer is None else self._consumer.credit

    # Delivering

    def plan(self) -> None:
        """Deliver what there is at the end of this turn of the event loop."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_planned = False
        consumer = self._consumer
        if consumer is None or self._queue.is_deleted:
            return
        if (credit := consumer.credit) <= 0:
            if self._host.stream_memory.is_short:
                self._forget_window()
            return
        self._is_waiting = False
        if messages := self._window.take(min(credit, AT_ONCE)):
            consumer.deliver(messages)
            for message in messages:
                message.value = None  # of what it holds, a consumer needs no more than the place
            self.plan()  # there may be more
        if self._window.is_low and self._has_more:
            self._start_filling()

    @property
    def _has_more(self) -> bool:
        return self._reader.position < self._lane.end

    def _start_filling(self) -> None:
        if self._filling is None:
            self._filling = self._host.start(self._fill())
            self._filling.add_done_callback(self._filled)

    async def _fill(self) -> None:
        reader, lane = self._reader, self._lane
        while self._consumer is not None and not self._queue.is_deleted and self._has_more:
            room = self._window.room(self._consumer.credit)
            if room <= 0:
                return
            run = await reader.next_run(min(lane.end, reader.position + room))
            if run is None:
                continue
            messages = await reader.load(*run)
            if self._consumer is None:
                return
            self._window.extend(messages)
            self.plan()

    def _filled(self, task: asyncio.Task[None]) -> None:
        self._filling = None
        if task.cancelled() or self._consumer is None:
            return
        if task.exception() is None:
            self.plan()
        else:
            asyncio.get_running_loop().call_later(self._queue.retry_seconds, self.plan)

    async def offer(self) -> None:
        for _ in range(_OFFERS):
            if self._credit <= 0:
                return
            self._pump()
            if self._filling is not None:
                await asyncio.wait([self._filling])
            elif not self._window:
                return

    def relax(self) -> None:
        """Free the memory of a reader that has had no credit since the last call."""
        if self._is_waiting:
            self._forget_window()
        self._is_waiting = True

    def _forget_window(self) -> None:
        """It is read again when there is credit."""
        if self._filling is None and (first := self._window.clear()) is not None:
            self._reader.seek(first)

    # What consumers do with messages

    def credit_raised(self) -> None:
        self.plan()

    def ack(self, messages: Sequence[Message], wave: "Wave | None" = None) -> None:
        """The credit is the consumer's own affair; the stream keeps the messages."""

    def release(self, messages: Sequence[Message], *, count: bool = True, delay_ms: int = 0) -> None:
        """Nothing comes again: whoever wants to read on from an offset says so when it subscribes."""

    def reject(self, messages: Sequence[Message]) -> None:
        """There are no dead letters: the message stays in the stream."""

    def settled(self, messages: Sequence[Message]) -> None:
        """Never happens: nothing is settled in a stream."""

    def progressed(self, lane: "Lane") -> None:
        """Records were found to be gone, and are passed over by everybody from now on."""
        self._queue.progressed(lane)

    # The end

    def unsubscribe(self, consumer: Consumer) -> None:
        self.stop()
        self._queue.end(self)

    def stop(self) -> None:
        """Nothing more is delivered."""
        self._consumer = None
        self._window.clear()

    def cancel(self) -> None:
        """The stream is gone."""
        consumer = self._consumer
        self.stop()
        if consumer is not None:
            consumer.cancelled()
