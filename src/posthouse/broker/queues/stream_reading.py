"""One consumer's reading of a stream: a position of its own, and credit."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from posthouse.broker.queues.consumer_info import ConsumerInfo, Described
from posthouse.broker.queues.counters import QueueCounters
from posthouse.broker.queues.message import Consumer, Message, MessageLane, SettlingCommit
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.stream_window import StreamWindow

AT_ONCE = 256
"""Messages that are delivered in one turn of the event loop."""
_OFFERS = 16
"""Rounds of loading and delivering that the subscription of a new consumer waits for."""


class Readings(Protocol):
    """What a reading needs of its stream."""

    name: str
    counters: QueueCounters
    is_stopped: bool
    retry_seconds: float

    def begin(self, reading: "StreamReading") -> None: ...

    def end(self, reading: "StreamReading") -> None: ...


class StreamReading:
    """Owned by the event loop. Settles nothing: an acknowledgement is only credit for the next message."""

    def __init__(self, stream: Readings, lane: MessageLane, resources: QueueResources, start: int) -> None:
        self.name = stream.name
        self._stream = stream
        self._background = resources.background
        self._memory = resources.stream_memory
        self._traffic = resources.traffic
        self._tracer = resources.tracer
        self._consumer: Consumer | None = None
        self._lane = lane
        self._reader = LaneReader(resources.storage, self, lane, start)
        self._window = StreamWindow(resources.stream_memory)
        self._filling: asyncio.Task[None] | None = None
        self._is_planned = False
        self._is_waiting = False
        """Whether the consumer has had no credit since the last `relax`: its window is unused memory."""

    def __str__(self) -> str:
        return str(self._stream)

    def subscribe(self, consumer: Consumer) -> None:
        """The consumer gets all messages from the start on, as far as it has credit."""
        self._consumer = consumer
        self._stream.begin(self)
        self.plan()

    @property
    def consumer_info(self) -> ConsumerInfo | None:
        consumer = self._consumer
        return consumer.info if isinstance(consumer, Described) else None

    @property
    def _credit(self) -> int:
        return 0 if self._consumer is None else self._consumer.credit

    # Delivering

    def plan(self) -> None:
        """Deliver at the end of this turn of the event loop."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_planned = False
        consumer = self._consumer
        if consumer is None or self._stream.is_stopped:
            return
        if (credit := consumer.credit) <= 0:
            if self._memory.is_short:
                self._forget_window()
            return
        self._is_waiting = False
        if messages := self._window.take(min(credit, AT_ONCE)):
            self._stream.counters.delivered += len(messages)
            self._traffic.deliver(messages)
            if self._tracer is not None:
                self._tracer.delivered(self.name, messages)
            consumer.deliver(messages)
            for message in messages:
                message.value = None  # a consumer needs only the place of a message that it holds
            self.plan()  # there may be more
        if self._window.is_low and self._has_more:
            self._start_filling()

    @property
    def _has_more(self) -> bool:
        return self._reader.position < self._lane.end

    def _start_filling(self) -> None:
        if self._filling is None:
            self._filling = self._background.start(self._fill(), self._stream)
            self._filling.add_done_callback(self._filled)

    async def _fill(self) -> None:
        reader, lane = self._reader, self._lane
        while self._consumer is not None and not self._stream.is_stopped and self._has_more:
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
            asyncio.get_running_loop().call_later(self._stream.retry_seconds, self.plan)

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
        """Drop the window; it is read again when there is credit."""
        if self._filling is None and (first := self._window.clear()) is not None:
            self._reader.seek(first)

    # What consumers do with messages

    def credit_raised(self) -> None:
        self.plan()

    def ack(self, messages: Sequence[Message], wave: SettlingCommit | None = None) -> None:
        """Counts only: consumers raise their own credit, and the stream keeps the messages."""
        self._stream.counters.acked += len(messages)

    def release(self, messages: Sequence[Message], *, count: bool = True, delay_ms: int = 0) -> None:
        """Nothing is redelivered: a consumer names the offset to read from when it subscribes."""

    def reject(self, messages: Sequence[Message]) -> None:
        """There are no dead letters: the message stays in the stream."""

    def settled(self, messages: Sequence[Message]) -> None:
        """Never happens: nothing is settled in a stream."""

    # The end

    def unsubscribe(self, consumer: Consumer) -> None:
        self.stop()
        self._stream.end(self)

    def stop(self) -> None:
        """Deliver no more messages."""
        self._consumer = None
        self._window.clear()

    def cancel(self) -> None:
        """The stream is deleted."""
        consumer = self._consumer
        self.stop()
        if consumer is not None:
            consumer.cancelled()
