"""Consumers of gRPC: simple ones, with leases of their choosing, and push consumers, whose leases the broker
renews. They acknowledge most messages, give some back, and make some dead letters."""

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Message, MessageQueue, Resource
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from tests.checker.history import Ack, Bury, ChangeLease, Lease, Outcome
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.rocket_grpc.link import GrpcLink, NotStored, check
from tests.torture.stream.links import decode_value
from tests.torture.workloads import RETRY_SECONDS

_POLL: Final = Duration.from_ms(50)
_MILLISECOND: Final = 1_000_000
_RENEWED_MS: Final = 60_000
"""What the broker renews leases for is much longer; nobody waits for it here."""
_LEASES_MS: Final = (300, 1000, 3000)
_POISON: Final = 19
"""Each message with a number of this kind is given back until the broker gives it up."""
_ANY_QUEUE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    name: str
    topic: str
    queues: int
    most_deliveries: int
    is_ordered: bool = False

    @property
    def queue(self) -> str:
        """What the history calls it."""
        return f"{self.name} of {self.topic}"


@dataclass(slots=True)
class Held:
    value: int
    id: str
    lane: str
    receipt: str


def lease_of(
    group: Group, process: int, invoked: int, now: int, message: Message, lock_ms: int
) -> tuple[Lease, Held]:
    system = message.system_properties
    assert system is not None and system.receipt_handle and system.queue_offset is not None
    value, lane = decode_value(message.body), system.message_group or ""
    lease = Lease(
        *(process, invoked, now, group.queue, value, (group.topic, system.queue_id), system.queue_offset),
        lane if group.is_ordered else None,
        system.delivery_attempt or 0,
        lock_ms * _MILLISECOND,
    )
    return lease, Held(value, system.message_id, lane, system.receipt_handle)


class Consumer:
    def __init__(
        self,
        recorder: Recorder,
        random: Random,
        group: Group,
        *,
        is_push: bool = False,
        is_last: bool = False,
    ) -> None:
        """What the last one does is not in the history, but for what it has found. It acknowledges all."""
        self._recorder = recorder
        self._random = random
        self._group = group
        self._is_push = is_push
        self._is_last = is_last
        self._process = recorder.process()
        self._id = self._new_id()
        self._attempt = ""
        """Of a call whose answer was lost: its messages come again at once."""
        self._held: deque[Held] = deque()
        """What it has received and not heard of again, also on the connection before."""
        self._invisible: dict[int, Held] = {}
        """By value: what it has given back, to come again later. If it leaves that is at once."""
        self._turn = 0
        self.received: list[int] = []

    def _new_id(self) -> str:
        return f"consumer-{self._process}-{self._random.getrandbits(32):x}"

    async def live(self, addresses: Addresses) -> None:
        while True:
            async with GrpcLink(addresses, self._id) as link:
                await self._be_member(link)

    async def _be_member(self, link: GrpcLink) -> None:
        """Until it leaves."""
        while True:
            try:
                await self.work(link)
                if self._is_push and self._random.random() < 0.01:
                    return await self._leave(link)
            except NotStored:
                self._recorder.refused()
                await asyncio.sleep(RETRY_SECONDS)

    async def work(self, link: GrpcLink) -> None:
        """Receive some, and settle everything that is held."""
        if not self._held:
            await self._receive(link)
        while self._held:
            await self._settle(link)

    async def _receive(self, link: GrpcLink) -> None:
        lock_ms = _RENEWED_MS if self._is_push or self._is_last else self._random.choice(_LEASES_MS)
        self._turn += 1
        queue = self._turn % self._group.queues if self._is_push else _ANY_QUEUE
        self._attempt = self._attempt or f"{self._random.getrandbits(64):x}"
        request = ReceiveMessageRequest(
            group=Resource(name=self._group.name),
            message_queue=MessageQueue(topic=Resource(name=self._group.topic), id=queue),
            batch_size=self._random.choice((1, 4, 16)),
            invisible_duration=None if self._is_push else Duration.from_ms(lock_ms),
            auto_renew=self._is_push,
            long_polling_timeout=_POLL,
            attempt_id=self._attempt,
        )
        invoked = self._recorder.now()
        responses = await link.stream(request, ReceiveMessageResponse)
        now = self._recorder.now()
        self._attempt = ""
        for each in responses:
            if each.status is not None:
                check("ReceiveMessage", each.status, Code.OK, Code.MESSAGE_NOT_FOUND)
        for message in (each.message for each in responses if each.message is not None):
            lease, held = lease_of(self._group, self._process, invoked, now, message, lock_ms)
            if not self._is_last:
                self._recorder.add(lease)
            self._held.append(held)
            self.received.append(held.value)

    async def _settle(self, link: GrpcLink) -> None:
        """The first of those that are held, or the first few."""
        chance = self._random.random()
        first = self._held[0]
        if self._is_last or chance < 0.3:
            await self._acknowledge(link, len(self._held))
        elif not self._group.is_ordered and first.value % _POISON == 0:
            await self._give_back(link, [first], 0)
        elif chance < 0.35:
            await self._change(link, first, 2 * _RENEWED_MS if self._is_push else 3000)
            await self._acknowledge(link, 1)
        elif chance < 0.42:
            await self._give_back(link, self._behind(first), self._random.choice((0, 50, 400)))
        elif chance < 0.44:
            await self._bury(link, first)
        elif chance < 0.46 and not self._is_push:
            self._drop(self._behind(first))  # their leases expire
        else:
            await self._acknowledge(link, 1)

    def _behind(self, first: Held) -> list[Held]:
        """Who gives back a message of a message group has no right to those behind it."""
        if not self._group.is_ordered:
            return [first]
        return [each for each in self._held if each.lane == first.lane]

    def _drop(self, given_up: list[Held]) -> None:
        for each in given_up:
            self._held.remove(each)

    async def _acknowledge(self, link: GrpcLink, count: int) -> None:
        some = [self._held[number] for number in range(count)]
        invoked = self._recorder.now()
        outcomes = [Outcome.UNKNOWN] * count
        request = AckMessageRequest(
            group=Resource(name=self._group.name),
            topic=Resource(name=self._group.topic),
            entries=tuple(AckMessageEntry(message_id=each.id, receipt_handle=each.receipt) for each in some),
        )
        try:
            response = await link.ask(request, AckMessageResponse)
            for number, entry in enumerate(response.entries):
                outcomes[number] = _outcome("AckMessage", entry.status)
        finally:
            now = self._recorder.now()
            for each, outcome in zip(some, outcomes, strict=True):
                if not self._is_last:
                    ack = Ack(self._process, invoked, now, self._group.queue, each.value, outcome)
                    self._recorder.add(ack)
        self._drop(some)
        self._recorder.moved()

    async def _give_back(self, link: GrpcLink, some: list[Held], milliseconds: int) -> None:
        """The first comes again after a while, those behind it with it."""
        for each in some:
            await self._change(link, each, milliseconds)
            self._drop([each])
            if milliseconds and self._is_push:
                self._invisible[each.value] = each
            milliseconds = 0

    async def _change(self, link: GrpcLink, held: Held, milliseconds: int) -> None:
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        request = ChangeInvisibleDurationRequest(
            group=Resource(name=self._group.name),
            topic=Resource(name=self._group.topic),
            receipt_handle=held.receipt,
            invisible_duration=Duration.from_ms(milliseconds),
            message_id=held.id,
        )
        try:
            response = await link.ask(request, ChangeInvisibleDurationResponse)
            outcome = _outcome("ChangeInvisibleDuration", response.status)
            held.receipt = response.receipt_handle or held.receipt
        finally:
            self._note_change(held, invoked, milliseconds, outcome)

    def _note_change(self, held: Held, invoked: int, milliseconds: int, outcome: Outcome) -> None:
        now, lasts = self._recorder.now(), milliseconds * _MILLISECOND
        self._recorder.add(
            ChangeLease(self._process, invoked, now, self._group.queue, held.value, lasts, outcome)
        )

    async def _bury(self, link: GrpcLink, held: Held) -> None:
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        request = ForwardMessageToDeadLetterQueueRequest(
            group=Resource(name=self._group.name),
            topic=Resource(name=self._group.topic),
            receipt_handle=held.receipt,
            message_id=held.id,
        )
        try:
            response = await link.ask(request, ForwardMessageToDeadLetterQueueResponse)
            outcome = _outcome("ForwardMessageToDeadLetterQueue", response.status)
        finally:
            now = self._recorder.now()
            self._recorder.add(Bury(self._process, invoked, now, self._group.queue, held.value, outcome))
        self._drop([held])
        self._recorder.moved()

    async def _leave(self, link: GrpcLink) -> None:
        """Receive something, and say that it ends: the broker gives it to others at once."""
        await self._receive(link)
        invoked = self._recorder.now()
        request = NotifyClientTerminationRequest(group=Resource(name=self._group.name))
        try:
            response = await link.ask(request, NotifyClientTerminationResponse)
            check("NotifyClientTermination", response.status)
        finally:
            for each in (*self._held, *self._invisible.values()):
                self._note_change(each, invoked, 0, Outcome.UNKNOWN)
        self._held.clear()
        self._invisible.clear()
        self._id = self._new_id()


def _outcome(what: str, status: object) -> Outcome:
    """A receipt that has expired settles nothing. Raises NotStored and Refused."""
    code = check(what, status, Code.OK, Code.INVALID_RECEIPT_HANDLE)  # type: ignore[arg-type]
    return Outcome.OK if code == Code.OK else Outcome.FAILED
