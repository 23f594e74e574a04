"""A queue: leases messages to consumers, and settles them one by one.

This is the interface for protocols and namespaces. The dispatcher does the work.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from posthouse.broker.funnel.limits import UNLIMITED, DeliveryLimits
from posthouse.broker.queues.browsing import ready_messages
from posthouse.broker.queues.consumer_info import ConsumerInfo
from posthouse.broker.queues.dead_letters import DeathReason, Routing, publish_dead_letter
from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.dispatcher import Dispatcher
from posthouse.broker.queues.effects import Effects
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.log_queue import DeclaredQueue, LogQueue
from posthouse.broker.queues.message import Consumer, Message, MessageLane, SettlingCommit
from posthouse.broker.queues.publishing import Wave
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.errors import PosthouseError
from posthouse.records.references import NEVER
from posthouse.storage.operations import Run


class Queue(LogQueue):
    """Owned by the event loop."""

    def __init__(
        self,
        resources: QueueResources,
        declared: DeclaredQueue,
        effects: Effects,
        routing: Routing,
        delete_unused: "Callable[[LogQueue], None]",
    ) -> None:
        super().__init__(resources, declared)
        self._routing = routing
        self._delete_unused = delete_unused
        self.dispatcher = Dispatcher(
            self,
            self.definition,
            self.lanes,
            resources,
            effects,
            routing,
            self.retry_seconds,
            self.counters,
        )
        self._consumers = self.dispatcher.consumers
        self._settlement = self.dispatcher.settlement
        self.room = self.dispatcher.room
        self._published_when_empty: int | None = None
        """`counters.published` when the queue was last seen empty; None if a message may have come back."""

    def loaded(self) -> None:
        super().loaded()
        self.dispatcher.load()

    async def recover(self) -> None:
        await self.dispatcher.recover()

    # Counts

    @property
    def message_count(self) -> int:
        """Ready messages, also those that cannot be read before a restart."""
        ready, unreadable = self.dispatcher.ready, 0
        for lane in self.lanes:  # nearly always one: `sum` would take longer
            unreadable += lane.unreadable
        return self._shown_ready(ready) + unreadable

    def _shown_ready(self, ready: int) -> int:
        limit = self.definition.max_length
        if limit is not None and self.definition.overflow is OverflowPolicy.DROP_HEAD:
            return min(ready, limit)  # the rest is about to be dropped
        return ready

    @property
    def ready_bytes(self) -> int:
        return self.dispatcher.ready_bytes

    @property
    def leased_bytes(self) -> int:
        return self._settlement.leased_bytes

    @property
    def leased_count(self) -> int:
        return self.dispatcher.in_flight

    @property
    def lengths(self) -> tuple[int, int]:
        """A queue that was seen empty stays so until a message is published, or `progressed` says that one
        came back. So very many empty queues are not counted again in every scrape of the metrics."""
        published = self.counters.published
        if self._published_when_empty == published:
            return 0, 0
        # The sums of `message_count` and `leased_count` in one loop: half of the time with 10,000 queues.
        back = len(self.dispatcher.requeue)
        ready, leased, unreadable = back, -back, 0
        for lane in self.lanes:
            ready += lane.ready
            leased += len(lane.leases.holders)
            unreadable += lane.unreadable
        if not ready and not leased and not unreadable:
            self._published_when_empty = published
            return 0, 0
        return self._shown_ready(ready) + unreadable, leased

    @property
    def consumer_count(self) -> int:
        return len(self._consumers)

    def described_consumers(self) -> list[ConsumerInfo]:
        return self._consumers.described()

    def browse(self, at_once: int) -> AsyncGenerator[list[Message], None]:
        return ready_messages(self._storage, self._clock, self, self.lanes, at_once)

    # Publishing

    def lane_for(self, priority: int) -> MessageLane:
        """One lane for each priority; the highest lane takes all priorities above it, too."""
        lanes = self.lanes
        return lanes[0] if len(lanes) == 1 else lanes[min(priority, len(lanes) - 1)]

    def time_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """When a message that is published now expires, by its own time to live and that of the queue."""
        ttl = self.definition.message_ttl_ms
        if ttl is None:
            return NEVER if expires_in_ms is None else now_ms + expires_in_ms
        return now_ms + (ttl if expires_in_ms is None else min(ttl, expires_in_ms))

    def arrived(self, lane: MessageLane, runs: Sequence[Run], count: int, size: int) -> None:
        self.counters.published += count
        self.dispatcher.arrived(lane, runs, count, size)

    def refuse(self, key: bytes, value: bytes, envelope: Envelope, now_ms: int, wave: Wave) -> None:
        """The queue is full: dead-letter a message that was never in it, if there is an exchange for that."""
        if self.definition.dead_letter_exchange is None:
            return
        lane = self.lane_for(envelope.priority)
        message = Message(
            queue=self,
            lane=lane,
            position=-1,
            source=lane.log,
            topic=self.backing.name,
            offset=-1,
            timestamp=now_ms,
            key=key,
            value=value,
            size=len(value),
            headers=envelope.headers,
            expires_ms=NEVER,
        )
        publish_dead_letter(self._routing, self.definition, message, DeathReason.TOO_LONG, now_ms, wave)
        self.counters.dead_lettered += 1

    # Delivering

    def subscribe(self, consumer: Consumer, *, exclusive: bool = False, priority: int = 0) -> None:
        """Raises InUse where this consumer or another one is exclusive."""
        self._consumers.add(consumer, exclusive=exclusive, priority=priority)
        self.touch()
        self.dispatcher.plan()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Messages that the consumer holds stay leased until they are settled or released."""
        if not self._consumers.remove(consumer):
            return
        self.touch()
        if not self._consumers and self.definition.auto_delete and not self.is_stopped:
            self._delete_unused(self)
        self.dispatcher.consumers_changed()

    def cancel_consumers(self) -> None:
        for consumer in self._consumers.all():
            self._consumers.remove(consumer)
            consumer.cancelled()

    async def offer(self) -> None:
        await self.dispatcher.offer()

    def credit_raised(self) -> None:
        """The credit of a consumer was raised."""
        self.dispatcher.plan()

    async def get(self) -> Message | None:
        """One message, leased; None when there is none. Raises Unavailable."""
        self.touch()
        message = await self.dispatcher.get()
        if message is not None:
            self.counters.got += 1
        return message

    async def poll(self, most: int, seconds: float, *, lease_seconds: float) -> list[Message]:
        """Up to `most` messages, leased for `lease_seconds`; none only when none came within `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            self.touch()
            first = await self.dispatcher.get()
            if first is not None:
                taken = [first, *self.dispatcher.take(most - 1)]
                self.counters.delivered += len(taken)
                self.dispatcher.pulling.lease(taken, lease_seconds)
                return taken
            if self.is_stopped:
                return []
            if not await self.dispatcher.pulling.wait(deadline - loop.time()):
                return []

    def extend(self, messages: Sequence[Message], seconds: float) -> None:
        """Lease messages that were polled for longer, from now on."""
        self.dispatcher.pulling.lease([message for message in messages if message.is_leased], seconds)

    @property
    def limits(self) -> DeliveryLimits:
        throttle = self.dispatcher.throttle
        return UNLIMITED if throttle is None else throttle.limiter.limits

    def set_limits(self, limits: DeliveryLimits) -> None:
        """On what all consumers together get, from now on."""
        self.dispatcher.set_limits(limits)

    @property
    def throttled_seconds(self) -> float:
        """How long the present limits have held messages back from consumers that would have taken them."""
        throttle = self.dispatcher.throttle
        return 0.0 if throttle is None else throttle.limiter.held_seconds

    # Settling and requeueing

    def ack(self, messages: Sequence[Message], wave: SettlingCommit | None = None) -> None:
        """Settle messages; with a wave, in its commit."""
        if wave is None:
            self.counters.acked += self._settlement.ack(messages)
        else:
            wave.settle(messages)
            wave.on_end(partial(self._acked_in, len(messages)))

    def _acked_in(self, count: int, error: PosthouseError | None) -> None:
        if error is None:
            self.counters.acked += count

    def settled(self, messages: Sequence[Message]) -> None:
        """Leased messages were settled in a durable wave."""
        self._settlement.settled(messages)

    def release(self, messages: Sequence[Message], *, count: bool = True, delay_ms: int = 0) -> None:
        """Requeue messages in the order of their publishing, after `delay_ms`."""
        self.dispatcher.requeue.add(messages, count=count, delay_ms=delay_ms)

    def reject(self, messages: Sequence[Message]) -> None:
        """Dead-letter messages, or settle them where there is no exchange for that."""
        self._settlement.die_soon(messages, DeathReason.REJECTED)

    def move(self, messages: Sequence[Message], wave: TransactionWave) -> asyncio.Future[None]:
        """Settle ready messages with the commit of `wave`, which has their copies for other queues."""
        return self._settlement.move(messages, wave)

    def purge(self) -> int:
        """Settle all ready messages, and return their number."""
        return self.dispatcher.purge()

    def progressed(self, lane: MessageLane) -> None:
        super().progressed(lane)
        self._published_when_empty = None
        self.dispatcher.tell_room()

    def put_aside(self) -> None:
        """Messages were copied to the stash: some of them have to be read from there."""
        self.dispatcher.put_aside()

    # The end

    def stop(self) -> None:
        super().stop()
        self.dispatcher.stop()

    def close(self) -> None:
        super().close()
        self.dispatcher.close()
