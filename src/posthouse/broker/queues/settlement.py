"""Settles messages of a queue, by acknowledgement or as dead letters, and counts the bytes in the queue."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

from posthouse.broker.queues.counters import QueueCounters
from posthouse.broker.queues.dead_letters import DeathReason, Routing, publish_dead_letter
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.effects import Effects
from posthouse.broker.queues.key_order import KeyOrder
from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.broker.queues.pulling import Pulling
from posthouse.broker.queues.rereading import Rereading
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.errors import PosthouseError

_is_redelivered = attrgetter("redelivered")
LEASED_BYTES = 16 * 1024 * 1024
"""Beyond this, the bodies of leased messages are dropped from memory, and read again if they are requeued."""


class SettlementOwner(Protocol):
    """What settlement needs of the dispatcher."""

    def left(self) -> None:
        """Messages have left the queue."""

    def retry(self, messages: Sequence[Message]) -> None:
        """Dead-lettering or moving failed: requeue the messages after a while."""


class Settlement:
    """Of one queue."""

    def __init__(
        self,
        owner: SettlementOwner,
        source: MessageSource,
        effects: Effects,
        resources: QueueResources,
        routing: Routing,
        definition: QueueDefinition,
        keys: KeyOrder | None,
        pulling: Pulling,
        counters: QueueCounters,
    ) -> None:
        self._owner = owner
        self._source = source
        self._effects = effects
        self._resources = resources
        self._routing = routing
        self._definition = definition
        self._keys = keys
        self._pulling = pulling
        self._counters = counters
        self.bytes = 0
        """Bytes of unsettled messages, estimated: references have one size for all records of a run."""
        self.leased_bytes = 0

    def lease(self, messages: Sequence[Message]) -> None:
        """Count messages that were taken from their lanes."""
        self.leased_bytes += sum(message.size for message in messages)

    def hand_out(self, messages: Sequence[Message]) -> None:
        """Count messages that a client gets now."""
        self.leased_bytes += self._resources.traffic.deliver(messages)
        self._counters.redelivered += sum(map(_is_redelivered, messages))

    def drop_bodies(self, messages: Sequence[Message]) -> None:
        """Drop the bodies of delivered messages where leased messages hold much memory."""
        if self.leased_bytes > LEASED_BYTES:
            for message in messages:
                if message.is_leased:
                    message.value = None

    def ack(self, messages: Sequence[Message]) -> int:
        """Settle those of the messages that are leased; returns their number."""
        lane: MessageLane | None = None
        settled: list[Message] = []
        for message in messages:
            if message.lane.leases.settle(message.position, message):
                if message.lane is not lane:
                    lane = message.lane
                    self._resources.progress_writer.changed(lane)
                settled.append(message)
        self.settled(settled)
        return len(settled)

    def settled(self, messages: Sequence[Message]) -> None:
        """Leased messages have left the queue."""
        self.leased_bytes -= (size := sum(message.size for message in messages))
        self.bytes -= size
        self._free(messages)
        self._owner.left()

    def released(self, message: Message) -> None:
        """A leased message is ready again."""
        self.leased_bytes -= message.size
        self._free((message,))

    def _free(self, messages: Sequence[Message]) -> None:
        if self._keys is not None:
            for message in messages:
                self._keys.free(message)
        if self._pulling.is_used:
            for message in messages:
                self._pulling.drop(message)

    # Moving

    def move(self, messages: Sequence[Message], wave: TransactionWave) -> asyncio.Future[None]:
        """Lease messages, and settle them with the commit of `wave`, which has their copies."""
        self._take_out(messages)

        def ended(error: PosthouseError | None) -> None:
            if error is not None:
                self._owner.retry(messages)

        wave.settle(messages)
        wave.on_end(ended)
        return wave.commit()

    def _take_out(self, messages: Sequence[Message]) -> None:
        """Lease messages that are ready, wherever in their lanes they are."""
        for message in messages:
            message.lane.leases.holders[message.position] = message
        self.lease(messages)

    # Dead letters

    def die_soon(self, messages: Sequence[Message], reason: DeathReason) -> None:
        """Dead-letter leased messages in the background. Copy and settlement are one commit."""
        if self._definition.dead_letter_exchange is None or not messages or messages[0].lane.is_gone:
            self._drop(messages, reason)
        else:
            self._effects.start(self.dead_letter(messages, reason), self._source)

    async def die(self, messages: Sequence[Message], reason: DeathReason) -> None:
        """Lease and dead-letter messages; returns when that is durable."""
        self._take_out(messages)
        if self._definition.dead_letter_exchange is None:
            self._drop(messages, reason)
        elif messages:
            await self.dead_letter(messages, reason)

    def _drop(self, messages: Sequence[Message], reason: DeathReason) -> None:
        count = self.ack(messages)
        if reason is DeathReason.EXPIRED:
            self._counters.expired += count

    async def dead_letter(self, messages: Sequence[Message], reason: DeathReason) -> None:
        try:
            rereading = Rereading(self._resources.storage)
            there = [
                message
                for message in messages
                if message.value is not None or await rereading.reload(message)
            ]
            wave = self._resources.transaction()
            now = self._resources.clock.now_ms()
            for message in there:
                publish_dead_letter(self._routing, self._definition, message, reason, now, wave)
            wave.settle(messages)
            await wave.commit()
        except BaseException:
            self._owner.retry(messages)
            raise
        self._counters.dead_lettered += len(there)
        if reason is DeathReason.EXPIRED:
            self._counters.expired += len(messages)
