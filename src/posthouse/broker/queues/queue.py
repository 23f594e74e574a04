"""A queue subscription: hands messages out under a lease, and settles them one by one."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from posthouse.broker.queues.consumers import Consumer, Consumers, dealt
from posthouse.broker.queues.dead_letters import Reason, dead_letter
from posthouse.broker.queues.definition import Overflow, QueueDefinition
from posthouse.broker.queues.key_order import KeyOrder
from posthouse.broker.queues.lane import RESERVATION, Lane
from posthouse.broker.queues.leases import Leases
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.progress import Progress
from posthouse.broker.queues.reading import LaneReader, reload
from posthouse.broker.queues.recovery import find_expiries, unsettled_bytes
from posthouse.broker.queues.streams import Stream
from posthouse.model.clock import Clock
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.records.references import NEVER
from posthouse.storage.interface import Storage

if TYPE_CHECKING:
    from posthouse.broker.queues.namespace import Namespace
    from posthouse.broker.queues.settling import Settling
    from posthouse.broker.queues.wave import Wave

WINDOW = 1000
"""So many messages are kept in memory, ready to be handed out."""
WINDOW_BYTES = 4 * 1024 * 1024
LOW_WINDOW = WINDOW // 2
"""Below this, more are loaded while these are handed out."""
AT_ONCE = 256
"""So many are handed out in one turn of the event loop."""
_OFFERS = 16
"""So many rounds of loading and handing out a new consumer is waited for."""
RETRY_SECONDS = 1.0
"""What storage refused is tried again after so long."""
LEASED_BYTES = 16 * 1024 * 1024
"""Beyond this, the bodies of messages that are handed out are let go and read again if they come back."""


class Host(Protocol):
    """What queues need of the broker."""

    @property
    def storage(self) -> Storage: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settling(self) -> "Settling": ...

    def transaction(self) -> "Wave": ...

    def topic_name(self, topic: TopicId) -> str: ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it in the background; what goes wrong is logged."""


class Queue:
    """Owned by the event loop."""

    def __init__(
        self,
        host: Host,
        namespace: "Namespace",
        queue_id: bytes,
        definition: QueueDefinition,
        log: Topic,
        stream: Stream,
        session: object | None = None,
    ) -> None:
        self._host = host
        self.namespace = namespace
        self.id = queue_id
        self.definition = definition
        self.name = definition.name
        self.session = session
        """The only one that may use it, for an exclusive queue."""
        self.log = log
        self.stream = stream
        """Where the default exchange writes what is for this queue alone."""
        *lane_logs, self.stash = log.partition_ids()
        bounds = host.storage.bounds
        self.lanes = [
            Lane(self, each, self.stash, Progress(queue_id, each.index, bounds(each).start), bounds(each).end)
            for each in lane_logs
        ]
        self._readers = [self._reader(lane) for lane in self.lanes]
        self._consumers = Consumers(single_active=definition.single_active)
        self._keys = KeyOrder() if definition.ordered_by_key else None
        self._filling: asyncio.Task[None] | None = None
        self._reserving: asyncio.Task[None] | None = None
        self._pump_planned = False
        self._bytes = 0
        """Of all that is not settled, roughly: nobody knows the bytes of each record in a batch."""
        self._leased_bytes = 0
        self._expected = self._expected_bytes = 0
        """On their way here; counted only where there is a limit."""
        self.was_used = False
        self.used_at = host.clock.monotonic()
        self.is_deleted = False
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._expiring = False
        self._trimming: asyncio.Task[None] | None = None
        self._when_room: list[Callable[[], None]] = []
        self._leases = Leases(host.clock, self._leases_ended)
        self._polling: list[asyncio.Future[None]] = []

    def _reader(self, lane: Lane) -> LaneReader:
        return LaneReader(self._host.storage, self._host.topic_name, self, lane, lane.progress.floor)

    def loaded(self) -> None:
        """Progress was taken in from storage."""
        for lane, reader in zip(self.lanes, self._readers, strict=True):
            bounds = self._host.storage.bounds(lane.log)
            lane.progress.loaded(bounds.start, bounds.end)
            lane.loaded_to = lane.progress.floor
            lane.load_stash()
            reader.seek(lane.progress.floor)

    async def recover(self) -> None:
        """Learn again what only the references tell: when messages expire, and how many bytes there are."""
        for lane in self.lanes:
            await find_expiries(self._host.storage, lane)
            if self.definition.max_bytes is not None:
                self._bytes += await unsettled_bytes(self._reader(lane), lane)
        self._plan_expiry()
        self._drop_excess()

    def topic_name(self, topic: TopicId) -> str:
        return self._host.topic_name(topic)

    # What there is

    @property
    def message_count(self) -> int:
        """Ready to be handed out."""
        ready = sum(lane.ready for lane in self.lanes)
        limit = self.definition.max_length
        if limit is not None and self.definition.overflow is Overflow.DROP_HEAD:
            return min(ready, limit)  # the rest is on its way out
        return ready

    @property
    def ready_bytes(self) -> int:
        return self._bytes - self._leased_bytes

    @property
    def leased_count(self) -> int:
        return sum(len(lane.leased) for lane in self.lanes)

    @property
    def consumer_count(self) -> int:
        return len(self._consumers)

    def lane_for(self, priority: int) -> Lane:
        lanes = self.lanes
        return lanes[0] if len(lanes) == 1 else lanes[min(priority, len(lanes) - 1)]

    def expiry_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """When a message that is published now goes; the earlier of what it says and what the queue says."""
        ttl = self.definition.message_ttl_ms
        if ttl is None:
            return NEVER if expires_in_ms is None else now_ms + expires_in_ms
        return now_ms + (ttl if expires_in_ms is None else min(ttl, expires_in_ms))

    def has_room_for(self, size: int) -> bool:
        """Whether one more message of so many bytes may come."""
        definition = self.definition
        if definition.max_length is not None:
            if sum(lane.ready for lane in self.lanes) + self._expected >= definition.max_length:
                return False
        if definition.max_bytes is None:
            return True
        return self.ready_bytes + self._expected_bytes + size <= definition.max_bytes

    # Messages come in

    def arrived(self, lane: Lane, count: int, size: int) -> None:
        """`count` more positions of a lane are durable."""
        self._bytes += size
        if self._polling:
            self._wake_polling()
        if not self._pump_planned:
            self._plan_pump()
        if lane.expiries.earliest is not None:
            self._plan_expiry()
        self._drop_excess()

    # Messages go out

    def subscribe(self, consumer: Consumer, *, exclusive: bool = False, priority: int = 0) -> None:
        """Raises InUse where one of the consumers wants to be alone."""
        self._consumers.add(consumer, exclusive=exclusive, priority=priority)
        self.was_used = True
        self.touch()
        self._plan_pump()

    def unsubscribe(self, consumer: Consumer) -> None:
        """What it holds stays leased until it is settled or released."""
        if not self._consumers.remove(consumer):
            return
        self.touch()
        if not self._consumers and self.definition.auto_delete and not self.is_deleted:
            self.namespace.delete_unused(self)
        self._plan_pump()

    def touch(self) -> None:
        self.used_at = self._host.clock.monotonic()

    def credit_raised(self) -> None:
        """A consumer can take more."""
        if not self._pump_planned:
            self._plan_pump()

    def _plan_pump(self) -> None:
        if len(self._consumers) and not self._pump_planned:
            self._pump_planned = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Hand out what is in memory, as far as there is credit."""
        self._pump_planned = False
        if self.is_deleted or self._trimming is not None:  # what is too much goes before anybody gets it
            return
        consumers = self._consumers.next_in_turn()
        if not consumers:
            return
        self._plan_reservation()
        credit = (
            consumers[0].credit if len(consumers) == 1 else sum(consumer.credit for consumer in consumers)
        )
        messages = self._take(min(credit, AT_ONCE))
        if messages:
            for consumer, hand in dealt(messages, consumers):
                consumer.deliver(hand)
            self._let_bodies_go(messages)
            self._tell_of_room()
            self._plan_pump()  # there may be more, for these or for others
        self._plan_filling()

    async def hand_out(self) -> None:
        """Return when what is ready was offered to the consumers, as far as they have credit."""
        for _ in range(_OFFERS):
            if self.is_deleted or not self._consumers.next_in_turn():
                return
            self._pump()
            waiting = [task for task in (self._trimming, self._reserving, self._filling) if task is not None]
            if waiting:
                await asyncio.wait(waiting)
            elif not any(lane.window or lane.returned for lane in self.lanes):
                return

    def _plan_reservation(self) -> None:
        """Note that more may be handed out, mostly well before that is needed."""
        if self._reserving is None:
            lanes = [lane for lane in self.lanes if lane.needs_reservation]
            if lanes:
                self._reserving = self._host.start(self._reserve(lanes))
                self._reserving.add_done_callback(self._reserved)

    async def _reserve(self, lanes: Sequence[Lane]) -> None:
        marks = {lane: at + RESERVATION for lane in lanes if (at := lane.next_in_memory) is not None}
        puts = [put for lane, to in marks.items() for put in lane.progress.reserve(to)]
        await asyncio.shield(self._host.settling.store(set(marks), puts))
        for lane, to in marks.items():
            lane.progress.reserved_to = max(to, lane.progress.reserved_to)

    def _reserved(self, task: asyncio.Task[None]) -> None:
        self._reserving = None
        if not task.cancelled():
            self._plan_pump_after(task)

    def _plan_pump_after(self, task: asyncio.Task[None]) -> None:
        """At once, or some time later where it failed: nobody else may come to see to it."""
        if task.exception() is None:
            self._plan_pump()
        elif not self.is_deleted:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._plan_pump)

    def _take(self, most: int) -> list[Message]:
        while leased := self._lease(most):
            alive = self._alive(leased)
            admitted = alive if self._keys is None else self._keys.admit(alive)
            self._leased_bytes += sum(message.size for message in admitted)
            if admitted:
                return admitted
        return []

    def _lease(self, most: int) -> list[Message]:
        taken: list[Message] = []
        for lane in reversed(self.lanes):
            taken += lane.take(most - len(taken))
            if len(taken) >= most:
                break
            if (lane.has_more or lane.window) and lane.ready > 0:
                break  # lower priorities wait until these are in memory and may be handed out
        return taken

    def _alive(self, leased: list[Message]) -> list[Message]:
        """Without those whose time has come."""
        now: int | None = None
        expired: list[Message] = []
        for message in leased:
            if message.expires_ms:
                now = now or self._host.clock.now_ms()
                if message.expires_ms <= now:
                    expired.append(message)
        if not expired:
            return leased
        self._leased_bytes += sum(message.size for message in expired)
        self._die(expired, Reason.EXPIRED)
        gone = set(expired)
        return [message for message in leased if message not in gone]

    def _let_bodies_go(self, messages: Sequence[Message]) -> None:
        if self._leased_bytes > LEASED_BYTES:
            for message in messages:
                if message.lane.leased.get(message.position) is message:
                    message.value = None

    def _plan_filling(self) -> None:
        if self._filling is None and self._wants_more():
            self._start_filling()

    def _start_filling(self, only: Lane | None = None) -> asyncio.Task[None]:
        if self._filling is None:
            self._filling = self._host.start(self._fill(only))
            self._filling.add_done_callback(self._filled)
        return self._filling

    def _wants_more(self) -> bool:
        if self._keys is not None and self._keys.is_crowded:
            return False
        return any(
            lane.has_more and len(lane.window) < LOW_WINDOW and lane.window_bytes < WINDOW_BYTES // 2
            for lane in self.lanes
        )

    def _filled(self, task: asyncio.Task[None]) -> None:
        self._filling = None
        if task.cancelled():
            return
        if task.exception() is not None or any(lane.window or lane.returned for lane in self.lanes):
            self._plan_pump_after(task)

    async def _fill(self, only: Lane | None) -> None:
        for lane, reader in zip(reversed(self.lanes), reversed(self._readers), strict=True):
            if only is not None and lane is not only:
                continue
            await self._reload(lane)
            while (
                lane.loaded_to < lane.end
                and len(lane.window) < WINDOW
                and lane.window_bytes < WINDOW_BYTES
                and not self.is_deleted
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
                    self._plan_pump()
            if lane.window and lane is not self.lanes[0]:
                break  # the most urgent first

    async def _reload(self, lane: Lane) -> None:
        while lane.bodiless:
            message = lane.bodiless.pop()
            if await reload(self._host.storage, message):
                lane.reloaded(message)
            else:
                lane.progress.settle(message.position)
                self.progressed(lane)

    async def get(self) -> Message | None:
        """One message, leased; None when there is none. Raises Unavailable."""
        self.touch()
        while True:
            if self.is_deleted:
                return None
            if self._trimming is not None:
                await asyncio.wait([self._trimming])
                continue
            self._plan_reservation()
            taken = self._take(1)
            if taken:
                self._tell_of_room()
                return taken[0]
            if self._reserving is not None:
                await self._done(self._reserving)
            elif self._filling is not None or self._has_more_to_take:
                await self._done(self._start_filling())
            else:
                return None

    @property
    def _has_more_to_take(self) -> bool:
        if self._keys is not None and self._keys.is_crowded:
            return False
        return any(lane.has_more for lane in self.lanes)

    async def _done(self, task: asyncio.Task[None]) -> None:
        """Raises what went wrong with it, unless that is because the queue is gone."""
        await asyncio.wait([task])
        if not self.is_deleted and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def poll(self, most: int, seconds: float, *, lease_seconds: float) -> list[Message]:
        """Up to `most` messages, leased for `lease_seconds`; none only when none came within `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            first = await self.get()
            if first is not None:
                taken = [first, *self._take(most - 1)]
                self._leases.set(taken, lease_seconds)
                return taken
            if self.is_deleted:
                return []
            waiting: asyncio.Future[None] = loop.create_future()
            self._polling.append(waiting)
            try:
                await asyncio.wait_for(waiting, deadline - loop.time())
            except TimeoutError:
                return []
            finally:
                if waiting in self._polling:
                    self._polling.remove(waiting)

    def extend(self, messages: Sequence[Message], seconds: float) -> None:
        """Lease what was polled for longer, from now on."""
        there = [message for message in messages if message.lane.leased.get(message.position) is message]
        self._leases.set(there, seconds)

    def _leases_ended(self, messages: Sequence[Message]) -> None:
        """Whoever held them may still try to settle them: what goes back are others."""
        again = []
        for message in messages:
            lane = message.lane
            if lane.leased.get(message.position) is message:
                lane.leased[message.position] = other = message.copy()
                again.append(other)
                if self._keys is not None:
                    self._keys.free(message)
        self.release(again)

    def _wake_polling(self) -> None:
        polling, self._polling = self._polling, []
        for waiting in polling:
            if not waiting.done():
                waiting.set_result(None)

    # Messages are settled

    def ack(self, messages: Sequence[Message], wave: "Wave | None" = None) -> None:
        """Done with. With a wave, as soon as that is durable."""
        if wave is not None:
            wave.settle(messages)
            return
        lane: Lane | None = None
        for message in messages:
            if message.lane.settle(message):
                if message.lane is not lane:
                    lane = message.lane
                    self._host.settling.changed(lane)
                self._let_go(message)
        self._settled()

    def settled(self, messages: Sequence[Message]) -> None:
        """These were leased, and are gone for good."""
        for message in messages:
            self._let_go(message)
        self._settled()

    def _let_go(self, message: Message) -> None:
        self._leased_bytes -= message.size
        self._bytes -= message.size
        if self._keys is not None:
            self._keys.free(message)
        if self._leases:
            self._leases.drop(message)

    def _settled(self) -> None:
        if self._keys is not None:
            self._plan_pump()
            self._wake_polling()
        if not self._leased_bytes and not any(lane.ready for lane in self.lanes):
            self._bytes = 0
        self._tell_of_room()

    def expect(self, count: int, size: int) -> None:
        """More messages are on their way here; or, below zero, they have come or will not."""
        self._expected += count
        self._expected_bytes += size
        if count < 0:
            self._tell_of_room()

    def _tell_of_room(self) -> None:
        if self._when_room and self.has_room_for(1):
            waiting, self._when_room = self._when_room, []
            for callback in waiting:
                callback()

    def on_room(self, callback: Callable[[], None]) -> None:
        """Call it once when the queue is not full any more, or gone."""
        self._when_room.append(callback)

    def release(self, messages: Sequence[Message], *, count: bool = True, delay_ms: int = 0) -> None:
        """Ready again, in the order of their publishing; after `delay_ms` if that is given."""
        if delay_ms > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(delay_ms / 1000, lambda: self.release(messages, count=count))
            return
        limit = self.definition.delivery_limit
        exhausted: list[Message] = []
        now = self._host.clock.now_ms()
        for message in messages:
            lane = message.lane
            if lane.leased.get(message.position) is not message:
                continue
            if count:
                message.deliveries = lane.progress.came_back(message.position)
                self._host.settling.changed(lane)
            message.redelivered = True
            if limit is not None and message.deliveries > limit:
                exhausted.append(message)
                continue
            lane.give_back(message)
            self._leased_bytes -= message.size
            if self._keys is not None:
                self._keys.free(message)
            if self._leases:
                self._leases.drop(message)
            if NEVER < message.expires_ms <= now:  # its time came while nobody could look at it
                lane.expiries.add_span(message.expires_ms, message.position, message.position + 1)
                self._plan_expiry()
        if exhausted:
            self._die(exhausted, Reason.DELIVERY_LIMIT)
        self._drop_excess()
        if self._polling:
            self._wake_polling()
        self._plan_pump()
        self._plan_filling_if_consumed()

    def _plan_filling_if_consumed(self) -> None:
        if len(self._consumers):
            self._plan_filling()

    def reject(self, messages: Sequence[Message]) -> None:
        """A dead letter, or gone where there is no place for those."""
        self._die(messages, Reason.REJECTED)

    def _die(self, messages: Sequence[Message], reason: Reason) -> None:
        """They are leased. The copy and the end of the original are one commit."""
        if self.definition.dead_letter_exchange is None or self.is_deleted:
            self.ack(messages)
        else:
            self._host.start(self._dead_letter(messages, reason))

    async def _dead_letter(self, messages: Sequence[Message], reason: Reason) -> None:
        try:
            there: list[Message] = []
            for message in messages:
                if message.value is not None or await reload(self._host.storage, message):
                    there.append(message)
            wave = self._host.transaction()
            now = self._host.clock.now_ms()
            for message in there:
                dead_letter(self, message, reason, now, wave)
            wave.settle(messages)
            await wave.commit()
        except BaseException:
            self.release(messages, count=False, delay_ms=int(RETRY_SECONDS * 1000))
            raise

    def purge(self) -> int:
        """Forget everything that is ready; how many that were."""
        count = 0
        for lane, reader in zip(self.lanes, self._readers, strict=True):
            count += lane.purge()
            reader.seek(lane.end)
            self.progressed(lane)
        self._bytes = self._leased_bytes
        self._settled()
        return count

    def progressed(self, lane: Lane) -> None:
        self._host.settling.changed(lane)
        self._tell_of_room()

    def put_aside(self) -> None:
        """Messages are in the stash now, where some of them have yet to be read."""
        self._plan_expiry()
        self._plan_pump()

    def _drop_excess(self) -> None:
        """The oldest go when there are more than may be."""
        definition = self.definition
        if not definition.is_limited or definition.overflow is not Overflow.DROP_HEAD:
            return
        if self._trimming is None and not self.is_deleted and self._excess():
            self._trimming = self._host.start(self._drop())
            self._trimming.add_done_callback(self._dropped)

    def _excess(self) -> int:
        """How many have to go; for a limit in bytes one by one."""
        definition = self.definition
        if definition.max_length is not None:
            excess = sum(lane.ready for lane in self.lanes) - definition.max_length
            if excess > 0:
                return excess
        if definition.max_bytes is not None and self.ready_bytes > definition.max_bytes:
            return 1 if sum(lane.ready for lane in self.lanes) else 0
        return 0

    def _dropped(self, task: asyncio.Task[None]) -> None:
        self._trimming = None
        if task.cancelled() or self.is_deleted:
            return
        if task.exception() is None:
            self._drop_excess()
        else:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._drop_excess)
        self._plan_pump()

    async def _drop(self) -> None:
        while (excess := self._excess()) and not self.is_deleted:
            oldest = await self._oldest(min(excess, AT_ONCE))
            if not oldest:
                return
            if self.definition.dead_letter_exchange is None:
                self.ack(oldest)
            else:
                await self._dead_letter(oldest, Reason.TOO_LONG)

    async def _oldest(self, most: int) -> list[Message]:
        """Of the lowest priority first."""
        for lane in self.lanes:
            if lane.ready <= 0:
                continue
            if self._keys is not None:
                self._keys.free_all()  # those that wait for others of their key may be the oldest
            while not lane.window and not lane.returned and lane.has_more and not self.is_deleted:
                await self._done(self._start_filling(lane))
            self._plan_reservation()
            if self._reserving is not None:
                await self._done(self._reserving)
            taken = lane.take(most)
            self._leased_bytes += sum(message.size for message in taken)
            return taken
        return []

    # Messages expire

    def _plan_expiry(self) -> None:
        if self._expiring or self.is_deleted:
            return
        earliest = min(
            (at for lane in self.lanes if (at := lane.expiries.earliest) is not None), default=None
        )
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        if earliest is not None:
            seconds = max(0, earliest - self._host.clock.now_ms()) / 1000
            self._expiry_timer = asyncio.get_running_loop().call_later(seconds, self._begin_expiring)

    def _begin_expiring(self) -> None:
        self._expiry_timer = None
        if not self._expiring and not self.is_deleted:
            self._expiring = True
            self._host.start(self._expire()).add_done_callback(self._expired)

    def _expired(self, task: asyncio.Task[None]) -> None:
        self._expiring = False
        self._plan_expiry()

    async def _expire(self) -> None:
        """Look at every span of messages whose time may have come, wherever in the queue it is."""
        for lane in self.lanes:
            while (span := lane.expiries.due(now := self._host.clock.now_ms())) is not None:
                try:
                    await self._expire_span(lane, *span, now)
                except BaseException:
                    lane.expiries.add_span(now + int(RETRY_SECONDS * 1000), *span)
                    raise

    async def _expire_span(self, lane: Lane, first: int, end: int, now: int) -> None:
        await self._expire_messages(lane, lane.expired_in_stash(first, end, now))
        reader = self._reader(lane)
        reader.seek(max(first, lane.progress.floor))
        earliest = NEVER
        kept = first
        while (run := await reader.next_run(end)) is not None:
            position, reference = run
            if reference.expires_ms == NEVER or reference.expires_ms > now:
                if reference.expires_ms and (earliest == NEVER or reference.expires_ms < earliest):
                    earliest, kept = reference.expires_ms, min(kept, position)
                continue
            messages = [
                message
                for message in await reader.load(position, reference)
                if message.position not in lane.leased and not lane.progress.is_settled(message.position)
            ]
            await self._expire_messages(lane, messages)
        if earliest != NEVER:
            lane.expiries.add_span(earliest, max(kept, lane.progress.floor), end)

    async def _expire_messages(self, lane: Lane, messages: Sequence[Message]) -> None:
        for message in messages:
            lane.leased[message.position] = message
            self._leased_bytes += message.size
        if self.definition.dead_letter_exchange is None:
            self.ack(messages)
        elif messages:
            await self._dead_letter(messages, Reason.EXPIRED)

    # The end

    def stop(self) -> None:
        """Nothing more is handed out."""
        self.is_deleted = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()

    def close(self) -> None:
        """It is deleted."""
        self.stop()
        self._leases.close()
        self._wake_polling()
        for lane in self.lanes:
            self._host.settling.forget(lane)
            lane.leased.clear()
            lane.is_gone = True
        waiting, self._when_room = self._when_room, []
        for callback in waiting:
            callback()

    def cancel_consumers(self) -> None:
        for consumer in self._consumers.all():
            self._consumers.remove(consumer)
            consumer.cancelled()
