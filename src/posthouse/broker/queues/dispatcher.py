"""The cycle of a queue's messages: load, lease, deliver; then settle, requeue, expire or overflow.

Each of these has a part of its own, which knows of the others only what its port says. The parts report here
what has happened, and this decides what happens next:

    Loader      messages from disk into the windows of the lanes; reserves positions before they are leased
    Settlement  acknowledged messages and dead letters leave the queue
    Requeue     messages that consumers release or reject with requeue
    Expiry      messages at the end of their time to live
    Overflow    the oldest messages of a queue beyond its length limit
"""

import asyncio
from collections.abc import Callable, Sequence

from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.broker.queues.consumers import Consumers, dealt
from posthouse.broker.queues.counters import QueueCounters
from posthouse.broker.queues.dead_letters import DeathReason, Routing
from posthouse.broker.queues.definition import OverflowPolicy, QueueDefinition
from posthouse.broker.queues.effects import Effects
from posthouse.broker.queues.expiry import Expiry
from posthouse.broker.queues.key_order import KeyOrder
from posthouse.broker.queues.loader import Loader
from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.broker.queues.overflow import Overflow
from posthouse.broker.queues.pulling import Pulling
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.recovery import find_expiries, unsettled_bytes
from posthouse.broker.queues.requeue import Requeue
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.room import Room
from posthouse.broker.queues.settlement import Settlement
from posthouse.broker.queues.taking import take_oldest, take_one
from posthouse.broker.queues.throttle import Throttle, throttle_with
from posthouse.records.references import NEVER
from posthouse.storage.operations import Run

AT_ONCE = 256
"""Messages that are delivered in one turn of the event loop."""
_OFFERS = 16
"""Rounds of loading and delivering that the subscription of a new consumer waits for."""


class Dispatcher:
    """Of one queue. Owned by the event loop."""

    def __init__(
        self,
        source: MessageSource,
        definition: QueueDefinition,
        lanes: Sequence[MessageLane],
        resources: QueueResources,
        effects: Effects,
        routing: Routing,
        retry_seconds: float,
        counters: QueueCounters,
    ) -> None:
        """`source` is the queue, as messages and log lines name it."""
        self._source = source
        self._definition = definition
        self.lanes = lanes
        self._resources = resources
        self._clock = resources.clock
        self._tracer = resources.tracer
        self._retry_seconds = retry_seconds
        self._counters = counters
        self.consumers = Consumers(single_active=definition.single_active)
        self.keys = KeyOrder() if definition.ordered_by_key else None
        self.pulling = Pulling(resources.clock, self._leases_ended)
        readers = {lane: self.new_reader(lane, lane.pass_over) for lane in lanes}
        background, writer = resources.background, resources.progress_writer
        self.loader = Loader(self, source, background, resources.storage, writer, lanes, readers)
        self.settlement = Settlement(
            self, source, effects, resources, routing, definition, self.keys, self.pulling, counters
        )
        self.requeue = Requeue(self, source, background, writer, definition.delivery_limit, retry_seconds)
        self.expiry = Expiry(self, source, definition, effects, resources.clock, lanes, retry_seconds)
        self.overflow = Overflow(self, source, definition, effects, retry_seconds)
        self.room = Room(definition, self)
        self._is_limited = definition.is_limited
        self._drops_head = definition.is_limited and definition.overflow is OverflowPolicy.DROP_HEAD
        self.throttle: Throttle | None = None
        """None while the queue has no limits: then they cost nothing."""
        self._is_planned = False
        self.is_stopped = False

    def new_reader(
        self, lane: MessageLane, pass_over: Callable[[int, int], None] = lambda first, end: None
    ) -> LaneReader:
        storage, floor = self._resources.storage, lane.progress.floor
        return LaneReader(storage, self._source, lane, floor, pass_over)

    def load(self) -> None:
        """Progress was loaded from storage."""
        self.loader.load_stash()
        for lane in self.lanes:
            self.loader.begin_at(lane, lane.progress.floor)

    async def recover(self) -> None:
        """Read from the references when messages expire, and how many bytes the queue holds."""
        for lane in self.lanes:
            await find_expiries(self._resources.storage, lane)
            if self._definition.max_bytes is not None:
                found = await unsettled_bytes(self.new_reader(lane), lane)
                self.settlement.bytes += found  # not in one line: messages come and go while they are counted
        self.expiry.plan()
        self._check_overflow()

    # Counts

    @property
    def ready(self) -> int:
        ready = len(self.requeue)
        for lane in self.lanes:
            ready += lane.ready
        return ready

    @property
    def ready_bytes(self) -> int:
        return self.settlement.bytes - self.settlement.leased_bytes

    def waiting_with(self, more: int) -> int:
        """Ready messages and `more`, minus the free credit of the consumers."""
        ready = self.ready + more
        if not ready or not len(self.consumers) or self.keys is not None:
            return ready  # no consumer may take messages that wait for others of their key
        return max(ready - self._credit, 0)

    @property
    def in_flight(self) -> int:
        """Messages that are handed out and not settled, of all consumers together."""
        leased = -len(self.requeue)
        for lane in self.lanes:
            leased += len(lane.leases.holders)
        return leased

    @property
    def _credit(self) -> int:
        """Messages that the consumers would take now, as far as the limits allow."""
        credit = self.consumers.credit
        return credit if self.throttle is None else min(credit, self.throttle.room)

    @property
    def has_credit(self) -> bool:
        """Whether a consumer could take a message now."""
        return self.consumers.have_credit

    @property
    def is_held_back(self) -> bool:
        return self.throttle is not None and self.throttle.room < 1

    def set_limits(self, limits: DeliveryLimits) -> None:
        """They apply to the next delivery; what is handed out already stays so."""
        self.throttle = throttle_with(limits, self.throttle, self, self._clock)
        self.room_came()

    def room_came(self) -> None:
        if self.pulling.is_used:
            self.pulling.wake()
        self.plan()

    # Events

    def arrived(self, lane: MessageLane, runs: Sequence[Run], count: int, size: int) -> None:
        """`count` more positions of a lane are durable, with `size` bytes of values: those of `runs`."""
        self.settlement.bytes += size
        if self.consumers.have_credit:
            self.loader.take_in(lane, runs, count, size)
        if self.pulling.is_used:
            self.pulling.wake()
        self.plan()
        if lane.expiries.earliest is not None:
            # With an order by key, a message may wait long although there is credit.
            if len(self.consumers) and self.keys is None:
                self._claim(lane, count)
            self.expiry.plan()
        self._check_overflow()

    def _claim(self, lane: MessageLane, count: int) -> None:
        """Claim as many of the new messages as the consumers have credit for."""
        credit = self._credit
        # The credit of a consumer is capped: it tells of at most what it takes at once.
        claimed = count if credit >= AT_ONCE else min(count, credit - (self.ready - count))
        if claimed > 0:
            first = lane.end - count
            lane.claim(first, first + claimed)

    def consumers_changed(self) -> None:
        self._check_overflow()
        self.plan()

    def left(self) -> None:
        """Messages have left the queue."""
        if self.keys is not None:
            self.plan()
            self.pulling.wake()
        if self.throttle is not None:
            self.throttle.limiter.freed()
        settlement = self.settlement
        if not settlement.leased_bytes and settlement.bytes and not any(lane.ready for lane in self.lanes):
            settlement.bytes = 0
        self.tell_room()

    def tell_room(self) -> None:
        if self._is_limited:
            self.room.tell()

    def load_ended(self, task: asyncio.Task[None]) -> None:
        """Deliver, or try again later where loading failed: no other event may follow."""
        if task.exception() is None:
            self.plan()
        elif not self.is_stopped:
            asyncio.get_running_loop().call_later(self._retry_seconds, self.plan)

    def requeued(self, message: Message) -> None:
        """A leased message is ready again."""
        self.settlement.released(message)
        if NEVER < message.expires_ms <= self._clock.now_ms():  # while it was leased
            message.lane.expiries.add_span(message.expires_ms, message.position, message.position + 1)
            self.expiry.plan()

    def requeue_ended(self) -> None:
        self._check_overflow()
        self.room_came()
        if len(self.consumers):
            self._plan_loading()

    def retry(self, messages: Sequence[Message]) -> None:
        self.requeue.retry(messages)

    def exhausted(self, messages: Sequence[Message]) -> None:
        self.settlement.die_soon(messages, DeathReason.DELIVERY_LIMIT)

    async def expired(self, messages: Sequence[Message]) -> None:
        await self.settlement.die(messages, DeathReason.EXPIRED)

    async def drop(self, messages: Sequence[Message]) -> None:
        await self.settlement.die(messages, DeathReason.TOO_LONG)

    def put_aside(self) -> None:
        """Messages were copied to the stash: some of them have to be read from there."""
        self.expiry.plan()
        self.plan()

    def _check_overflow(self) -> None:
        if self._drops_head:
            self.overflow.check()

    # Delivering

    def plan(self) -> None:
        """Deliver at the end of this turn of the event loop."""
        if not self._is_planned and len(self.consumers):
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Deliver messages in memory, as far as there is credit."""
        self._is_planned = False
        if self.is_stopped or self.changing is not None:
            return
        in_memory = sum(len(lane.window) + len(lane.returned) for lane in self.lanes)
        most = max(1, min(in_memory, AT_ONCE))
        if self.throttle is not None and self.consumers.have_credit:
            most = self.throttle.admit(most)
        turns = self.consumers.turns(most)
        if not turns:
            self._check_overflow()  # messages that they were expected to take
            return
        self.loader.plan_reservation()
        messages = self.take(len(turns))
        if messages:
            served = turns[: len(messages)]
            self.consumers.served(served)
            self._counters.delivered += len(messages)
            for consumer, hand in dealt(messages, served):
                consumer.deliver(hand)
            self.settlement.drop_bodies(messages)
            self.tell_room()
            if self.consumers.have_credit:
                # Else the consumer that raises it plans: a queue that stayed in line would be ahead of others
                # that wait for the same limiter.
                self.plan()
        self._check_overflow()
        self._plan_loading()

    @property
    def changing(self) -> asyncio.Task[None] | None:
        """Overflow or requeue under way: no message is delivered before it has ended."""
        return self.overflow.task or self.requeue.task

    def _plan_loading(self) -> None:
        """Load more, unless all messages in memory wait for others of their key."""
        if self.keys is None or not self.keys.is_crowded:
            self.loader.plan()

    async def offer(self) -> None:
        """Return when what is ready was offered to the consumers, as far as they have credit."""
        for _ in range(_OFFERS):
            if self.is_stopped or not self.consumers.have_credit:
                return
            self._pump()
            if self.is_held_back:
                return
            under_way = self.overflow.task, self.requeue.task, self.loader.reserving, self.loader.filling
            if waiting := [task for task in under_way if task is not None]:
                await asyncio.wait(waiting)
            elif not any(lane.window or lane.returned for lane in self.lanes):
                return

    async def get(self) -> Message | None:
        """One message, leased; None when there is none, or the limits allow none. Raises Unavailable."""
        return await take_one(self)

    def take(self, most: int) -> list[Message]:
        """Lease up to `most` messages, those of the highest priority first, as far as the limits allow."""
        if self.throttle is not None and not (most := self.throttle.admit(most)):
            return []
        while leased := self._lease(most):
            alive = self._alive(leased)
            admitted = alive if self.keys is None else self.keys.admit(alive)
            if admitted:
                self.settlement.hand_out(admitted)
                if self.throttle is not None:
                    self.throttle.limiter.took(len(admitted))
                if self._tracer is not None:
                    self._tracer.delivered(self._source.name, admitted)
                return admitted
        self.loader.plan_reservation()  # the next message may lie far behind those that have expired
        return []

    def _lease(self, most: int) -> list[Message]:
        taken: list[Message] = []
        for lane in reversed(self.lanes):
            taken += lane.take(most - len(taken))
            if len(taken) >= most or lane is self.lanes[0]:  # the lowest priority
                break
            if (lane.has_more or lane.window) and lane.ready > 0:
                break  # lower priorities wait until these are in memory and may be handed out
        return taken

    def _alive(self, leased: list[Message]) -> list[Message]:
        """Those that have not expired; the others are dead-lettered."""
        now: int | None = None
        expired: list[Message] = []
        for message in leased:
            if message.expires_ms:
                now = now or self._clock.now_ms()
                if message.lane.has_expired(message, now):
                    expired.append(message)
        if not expired:
            return leased
        self.settlement.lease(expired)
        self.settlement.die_soon(expired, DeathReason.EXPIRED)
        gone = set(expired)
        return [message for message in leased if message not in gone]

    async def take_oldest(self, count: Callable[[], int]) -> list[Message] | None:
        return await take_oldest(self, count)

    def _leases_ended(self, messages: Sequence[Message]) -> None:
        """Requeue copies: the former holders may still try to settle the messages."""
        again = []
        for message in messages:
            if message.is_leased:
                message.lane.leases.holders[message.position] = other = message.copy()
                again.append(other)
                if self.keys is not None:
                    self.keys.free(message)
        self.requeue.add(again)

    # The end

    def purge(self) -> int:
        """Settle all ready messages, and return their number."""
        self.requeue.finish()
        count = 0
        for lane in self.lanes:
            count += lane.purge()
            self.loader.begin_at(lane, lane.end)
            self._resources.progress_writer.changed(lane)
        self.settlement.bytes = self.settlement.leased_bytes
        self.left()
        return count

    def stop(self) -> None:
        """Deliver no more messages."""
        self.requeue.finish()
        self.is_stopped = True
        self.loader.stop()
        self.overflow.stop()
        self.expiry.stop()
        if self.throttle is not None:
            self.throttle.limiter.stop()

    def close(self) -> None:
        """The queue is deleted."""
        self.pulling.close()
        self.room.tell_all()
