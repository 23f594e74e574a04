"""The messages of a queue, as one of its consumers.

Dead letters go where those of the queue go. A queue without a dead-letter exchange would drop them: they are
copied to the topic of the webhook's dead letters before they count as settled.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.record_headers import WEBHOOK
from posthouse.broker.topics import NewTopic
from posthouse.broker.webhooks.definition import Webhook
from posthouse.model.errors import CorruptBatch, PosthouseError, TopicExists, UnknownExchange, UnknownQueue
from posthouse.model.topics import Topic
from posthouse.records.header_section import decode_section, encode_section
from posthouse.webhooks.delivery import Delivery, Header

log = logging.getLogger(__name__)

_BURY_AGAIN_SECONDS: Final = 10.0
_MOST_BYTES: Final = 256 * 1024 * 1024
"""Of a dead letter: as large as any message of a queue, with its headers."""
_BEYOND_DELAY_SECONDS: Final = 60.0
_MOST_HELD: Final = 2000
"""Messages that are on their way, or wait for their next attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Until the next attempt of a message."""

    queue: Queue
    counts: bool
    timer: asyncio.TimerHandle


class QueueSource:
    """Owned by the event loop."""

    def __init__(self, broker: Broker, webhook: Webhook) -> None:
        self._broker = broker
        self._webhook = webhook
        self._held: dict[Delivery, tuple[Queue, Message]] = {}
        self._burials: set[asyncio.Task[None]] = set()
        self._waiting: dict[Message, _Waiting] = {}
        self._let_go = asyncio.Event()
        """A message is not held any more."""

    async def take(self, most: int, seconds: float, lock_seconds: float) -> list[Delivery]:
        queue = self._broker.webhooks.queue(self._webhook)
        if queue is None:
            raise UnknownQueue(f"there is no queue {self._webhook.queue!r}")
        if not self._room:
            await self._room_came(seconds)
        if not self._room:
            return []
        messages = await queue.poll(min(most, self._room), seconds, lease_seconds=lock_seconds)
        deliveries = [_delivery(each) for each in messages]
        self._held |= {each: (queue, message) for each, message in zip(deliveries, messages, strict=True)}
        return deliveries

    @property
    def _room(self) -> int:
        return max(_MOST_HELD - len(self._held) - len(self._waiting), 0)

    async def _room_came(self, seconds: float) -> None:
        """Or the time is over."""
        self._let_go.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._let_go.wait()

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            queue, message = self._held.pop(each)
            queue.ack([message])
        self._let_go.set()

    def retry(self, deliveries: Sequence[Delivery], seconds: float, *, counts: bool) -> None:
        for each in deliveries:
            queue, message = self._held.pop(each)
            if seconds > 0:
                self._wait(queue, message, seconds, counts=counts)
            else:
                queue.release([message], count=counts)
        self._let_go.set()

    def _wait(self, queue: Queue, message: Message, seconds: float, *, counts: bool) -> None:
        """It stays leased, without its body: thousands may wait for an hour."""
        queue.extend([message], seconds + _BEYOND_DELAY_SECONDS)
        message.value = None
        timer = asyncio.get_running_loop().call_later(seconds, self._release, message)
        self._waiting[message] = _Waiting(queue=queue, counts=counts, timer=timer)

    def _release(self, message: Message) -> None:
        waiting = self._waiting.pop(message)
        self._let_go.set()
        waiting.queue.release([message], count=waiting.counts)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            queue, message = self._held.pop(each)
            queue.release([message], count=False)
        self._let_go.set()

    def bury(self, delivery: Delivery, notes: Sequence[tuple[bytes, bytes]]) -> None:
        queue, message = self._held.pop(delivery)
        self._let_go.set()
        burial = asyncio.create_task(self._bury(queue, message, notes))
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)

    async def _bury(self, queue: Queue, message: Message, notes: Sequence[tuple[bytes, bytes]]) -> None:
        headers = encode_section([*_without_notes(message), *notes])
        if self._has_dead_letters(queue):
            message.headers = headers
            queue.reject([message])
            return
        queue.extend([message], _BEYOND_DELAY_SECONDS)
        try:
            await self._copied(message, headers)
        except PosthouseError as error:
            log.error(
                "webhook %s: a message of %s cannot be made a dead letter, it comes again: %s",
                *(self._webhook.name, queue, error),
            )
            self._wait(queue, message, _BURY_AGAIN_SECONDS, counts=False)
        else:
            queue.ack([message])

    def _has_dead_letters(self, queue: Queue) -> bool:
        """Dead letters for an exchange that does not exist would be dropped, too."""
        exchange = queue.definition.dead_letter_exchange
        try:
            return (
                exchange is not None
                and self._broker.namespaces.get(queue.namespace).exchange(exchange) is not None
            )
        except UnknownExchange:
            return False

    async def _copied(self, message: Message, headers: bytes) -> None:
        topic = await self._dead_letters()
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(result: int | PosthouseError) -> None:
            if written.done():
                return
            if isinstance(result, PosthouseError):
                written.set_exception(result)
            else:
                written.set_result(None)

        now = self._broker.now_ms()
        self._broker.record_waves.add(topic, 0, message.key, message.value or b"", headers, now, told)
        await written

    async def _dead_letters(self) -> Topic:
        name = self._webhook.dead_letters
        topic = self._broker.topics.find(name)
        if topic is not None:
            return topic
        overrides = {"max.message.bytes": str(_MOST_BYTES)}
        [created] = await self._broker.create_topics([NewTopic(name=name, partitions=1, overrides=overrides)])
        if isinstance(created, TopicExists):  # another dead letter was faster
            return self._broker.topic(name)
        if isinstance(created, PosthouseError):
            raise created
        return created

    async def close(self) -> None:
        while self._burials:
            await asyncio.wait(self._burials)
            await asyncio.sleep(0)  # for the callbacks
        for message, waiting in list(self._waiting.items()):
            waiting.timer.cancel()
            self._release(message)


def _delivery(message: Message) -> Delivery:
    """By its position in the queue: a message that was put aside has another place in the log."""
    try:
        headers: Sequence[Header] = decode_section(message.headers)
    except CorruptBatch:
        headers = ()  # as their producer wrote them; the value is pushed all the same
    return Delivery(
        place=message.lane.log,
        offset=message.position,
        topic=message.topic,
        key=message.key,
        value=message.value or b"",
        headers=headers,
        timestamp=message.timestamp,
        attempt=message.deliveries + 1,
    )


def _without_notes(message: Message) -> list[Header]:
    """Of a message that died before, and was moved back."""
    try:
        headers = decode_section(message.headers)
    except CorruptBatch:
        return []
    return [each for each in headers if not each[0].startswith(WEBHOOK)]
