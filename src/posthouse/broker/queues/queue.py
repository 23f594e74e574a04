"""A queue subscription: hands messages out under a lease, and settles them one by one."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.consumers import Consumer, Consumers
from posthouse.broker.queues.dead_letters import Reason, publish_dead_letter
from posthouse.broker.queues.definition import Overflow, QueueDefinition
from posthouse.broker.queues.excess import Excess
from posthouse.broker.queues.expiring import Expiring
from posthouse.broker.queues.handing_out import AT_ONCE, HandingOut
from posthouse.broker.queues.key_order import KeyOrder
from posthouse.broker.queues.lane import Lane
from posthouse.broker.queues.leases import Leases
from posthouse.broker.queues.loading import Loading
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.polling import Polling
from posthouse.broker.queues.recovery import find_expiries, unsettled_bytes
from posthouse.broker.queues.rereading import Rereading
from posthouse.broker.queues.returns import Returns
from posthouse.broker.queues.room import Room
from posthouse.model.topics import Topic
from posthouse.records.references import NEVER

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.namespace import Namespace
    from posthouse.broker.queues.wave import Wave


class Queue(LogQueue):
    """Owned by the event loop."""

    def __init__(
        self,
        host: "QueuesHost",
        namespace: "Namespace",
        queue_id: bytes,
        definition: QueueDefinition,
        log: Topic,
        backing: BackingTopic,
        session: object | None = None,
    ) -> None:
        super().__init__(host, namespace, queue_id, definition, log, backing, session)
        self._consumers = Consumers(single_active=definition.single_active)
        self._keys = KeyOrder() if definition.ordered_by_key else None
        self._loading = Loading(self, host)
        self._expiring = Expiring(self, host, self._loading.new_reader)
        self._excess = Excess(self, host, self._loading)
        self.returns = Returns(self, host)
        self.handing_out = HandingOut(self, host, self._consumers, self._keys, self._loading, self._excess)
        self._bytes = 0
        """Of all that is not settled, roughly: nobody knows the bytes of each record in a batch."""
        self.leased_bytes = 0
        self.room = Room(self)
        self._leases = Leases(host.clock, self._leases_ended)
        self._polling = Polling()

    def loaded(self) -> None:
        super().loaded()
        for lane in self.lanes:
            lane.load_stash()
            self._loading.begin_at(lane, lane.progress.floor)

    async def recover(self) -> None:
        """Learn again what only the references tell: when messages expire, and how many bytes there are."""
        for lane in self.lanes:
            await find_expiries(self._host.storage, lane)
            if self.definition.max_bytes is not None:
                self._bytes += await unsettled_bytes(self._loading.new_reader(lane), lane)
        self._expiring.plan()
        self._excess.drop()

    # What there is

    @property
    def message_count(self) -> int:
        """Ready to be handed out, now or when they can be read again."""
        ready, unreadable = self._ready, sum(lane.unreadable for lane in self.lanes)
        limit = self.definition.max_length
        if limit is not None and self.definition.overflow is Overflow.DROP_HEAD:
            ready = min(ready, limit)  # the rest is on its way out
        return ready + unreadable

    @property
    def _ready(self) -> int:
        return sum(lane.ready for lane in self.lanes) + len(self.returns)

    @property
    def ready_bytes(self) -> int:
        return self._bytes - self.leased_bytes

    @property
    def waiting(self) -> int:
        """Ready, and not about to be taken: what a free consumer gets is no queue."""
        return self.waiting_with(0)

    def waiting_with(self, more: int) -> int:
        """The same if so many more were there."""
        ready = self._ready + more
        if not ready or not len(self._consumers) or self._keys is not None:
            return ready  # those that wait for others of their key are taken by nobody
        return max(ready - self._consumers.credit, 0)

    @property
    def leased_count(self) -> int:
        return sum(len(lane.leased) for lane in self.lanes) - len(self.returns)

    @property
    def consumer_count(self) -> int:
        return len(self._consumers)

    def time_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """When a message that is published now goes; the earlier of what it says and what the queue says."""
        ttl = self.definition.message_ttl_ms
        if ttl is None:
            return NEVER if expires_in_ms is None else now_ms + expires_in_ms
        return now_ms + (ttl if expires_in_ms is None else min(ttl, expires_in_ms))

    # Messages come in

    def arrived(self, lane: Lane, count: int, size: int) -> None:
        """`count` more positions of a lane are durable."""
        self._bytes += size
        if self._polling:
            self._polling.wake()
        if not self.handing_out.is_planned:
            self.handing_out.plan()
        if lane.expiries.earliest is not None:
            # One that waits for others of its key may wait for long, whoever has credit.
            if len(self._consumers) and self._keys is None:
                self._claim(lane, count)
            self._expiring.plan()
        self._excess.drop()

    def _claim(self, lane: Lane, count: int) -> None:
        """As many of those that have just arrived as there are consumers that wait for more than is ready."""
        credit = self._consumers.credit
        # A consumer that can take very many tells of no more than it takes at once.
        claimed = count if credit >= AT_ONCE else min(count, credit - (self._ready - count))
        if claimed > 0:
            first = lane.end - count
            lane.claim(first, first + claimed)

    @property
    def has_credit(self) -> bool:
        """Whether a consumer could take a message now."""
        return self._consumers.have_credit

    # Messages go out

    def subscribe(self, consumer: Consumer, *, exclusive: bool = False, priority: int = 0) -> None:
        """Raises InUse where one of the consumers wants to be alone."""
        self._consumers.add(consumer, exclusive=exclusive, priority=priority)
        self.touch()
        self.handing_out.plan()

    def unsubscribe(self, consumer: Consumer) -> None:
        """What it holds stays leased until it is settled or released."""
        if not self._consumers.remove(consumer):
            return
        self.touch()
        if not self._consumers and self.definition.auto_delete and not self.is_deleted:
            self.namespace.delete_unused(self)
        self._excess.drop()
        self.handing_out.plan()

    async def offer(self) -> None:
        await self.handing_out.offer()

    def credit_raised(self) -> None:
        """A consumer can take more."""
        if not self.handing_out.is_planned:
            self.handing_out.plan()

    async def get(self) -> Message | None:
        """One message, leased; None when there is none. Raises Unavailable."""
        self.touch()
        return await self.handing_out.get()

    async def poll(self, most: int, seconds: float, *, lease_seconds: float) -> list[Message]:
        """Up to `most` messages, leased for `lease_seconds`; none only when none came within `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            first = await self.get()
            if first is not None:
                taken = [first, *self.handing_out.take(most - 1)]
                self._leases.set(taken, lease_seconds)
                return taken
            if self.is_deleted:
                return []
            if not await self._polling.wait(deadline - loop.time()):
                return []

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
        self.leased_bytes -= message.size
        self._bytes -= message.size
        if self._keys is not None:
            self._keys.free(message)
        if self._leases:
            self._leases.drop(message)

    def _settled(self) -> None:
        if self._keys is not None:
            self.handing_out.plan()
            self._polling.wake()
        if not self.leased_bytes and not any(lane.ready for lane in self.lanes):
            self._bytes = 0
        self.room.tell()

    def release(self, messages: Sequence[Message], *, count: bool = True, delay_ms: int = 0) -> None:
        """Ready again, in the order of their publishing; after `delay_ms` if that is given."""
        if delay_ms > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(delay_ms / 1000, lambda: self.release(messages, count=count))
            return
        self.returns.take(messages, count=count)

    def given_back(self, message: Message) -> None:
        """One that was leased is ready."""
        self.leased_bytes -= message.size
        if self._keys is not None:
            self._keys.free(message)
        if self._leases:
            self._leases.drop(message)
        if NEVER < message.expires_ms <= self._host.clock.now_ms():  # while nobody could look at it
            message.lane.expiries.add_span(message.expires_ms, message.position, message.position + 1)
            self._expiring.plan()

    def returned(self) -> None:
        """All that was given back is ready."""
        self._excess.drop()
        if self._polling:
            self._polling.wake()
        self.handing_out.plan()
        if len(self._consumers):
            self.handing_out.plan_loading()

    def reject(self, messages: Sequence[Message]) -> None:
        """A dead letter, or gone where there is no place for those."""
        self.die_soon(messages, Reason.REJECTED)

    def die_soon(self, messages: Sequence[Message], reason: Reason) -> None:
        """They are leased. The copy and the end of the original are one commit."""
        if self.definition.dead_letter_exchange is None or self.lanes[0].is_gone:
            self.ack(messages)
        else:
            self.namespace.effects.start(self.dead_letter(messages, reason))

    async def die(self, messages: Sequence[Message], reason: Reason) -> None:
        """The same for those that nobody holds: they are leased to be let go. Returns when that is done."""
        for message in messages:
            message.lane.leased[message.position] = message
            self.leased_bytes += message.size
        if self.definition.dead_letter_exchange is None:
            self.ack(messages)
        elif messages:
            await self.dead_letter(messages, reason)

    async def dead_letter(self, messages: Sequence[Message], reason: Reason) -> None:
        try:
            rereading = Rereading(self._host.storage)
            there = [
                message
                for message in messages
                if message.value is not None or await rereading.reload(message)
            ]
            wave = self._host.transaction()
            now = self._host.clock.now_ms()
            for message in there:
                publish_dead_letter(self, message, reason, now, wave)
            wave.settle(messages)
            await wave.commit()
        except BaseException:
            self.release(messages, count=False, delay_ms=int(self.retry_seconds * 1000))
            raise

    def purge(self) -> int:
        """Forget everything that is ready; how many that were."""
        self.returns.finish()
        count = 0
        for lane in self.lanes:
            count += lane.purge()
            self._loading.begin_at(lane, lane.end)
            self.progressed(lane)
        self._bytes = self.leased_bytes
        self._settled()
        return count

    def progressed(self, lane: Lane) -> None:
        super().progressed(lane)
        self.room.tell()

    def free_keys(self) -> None:
        """What waits for others of its key is as ready as anything."""
        if self._keys is not None:
            self._keys.free_all()

    def put_aside(self) -> None:
        """Messages are in the stash now, where some of them have yet to be read."""
        self._expiring.plan()
        self.handing_out.plan()

    # The end

    def stop(self) -> None:
        """Nothing more is handed out."""
        self.returns.finish()
        self.is_deleted = True
        self._expiring.stop()

    def close(self) -> None:
        super().close()
        self._leases.close()
        self._polling.wake()
        self.room.tell_all()

    def cancel_consumers(self) -> None:
        for consumer in self._consumers.all():
            self._consumers.remove(consumer)
            consumer.cancelled()
