"""Moves messages from one queue to others: what operators do with a stuck queue, or with dead letters.

The copy in the other queue and the end of the original are one commit. So after a crash a message is in one
of the two queues, and never in both or in neither. Many messages take several commits, in their order.

A moved message keeps its routing key, headers and priority. Its own time to live begins anew; that of a dead
letter stays off.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from posthouse.broker.queues.browsing import is_ready
from posthouse.broker.queues.dead_letters import noted_deaths
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.clock import Clock
from posthouse.model.errors import CorruptBatch, InvalidDefinition, QueueFull, RecordTooLarge
from posthouse.records.header_section import decode_section

_AT_ONCE = 256
"""Messages of one commit."""
_LONGEST_MS = 10 * 365 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    to: Mapping[str, int] = field(default_factory=dict)
    """How many messages each queue got."""
    left: int = 0
    """Messages that were looked at and stay: no queue takes them, or the one that should is full."""
    reason: str = ""
    """Why the last of these stays."""

    @property
    def count(self) -> int:
        return sum(self.to.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    queue: LogQueue
    key: bytes
    envelope: Envelope


class _NoPlace(Exception):
    """Says why a message stays."""


class Mover:
    """For the queues of one namespace."""

    def __init__(
        self, namespace: Namespace, clock: Clock, transaction: Callable[[], TransactionWave]
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._transaction = transaction

    async def move(self, source: LogQueue, target: LogQueue, most: int) -> Moved:
        """Up to `most` messages. Raises InvalidDefinition, and what storage raises."""
        if source is target:
            raise InvalidDefinition("a queue's messages cannot be moved to the same queue")
        return await self._move(source, most, lambda message: self._place_in(target, message))

    async def requeue(
        self, source: LogQueue, most: int, may_reach: Callable[[LogQueue], bool] = lambda queue: True
    ) -> Moved:
        """Up to `most` dead letters, each to the queue that it died in last, if it `may_reach` it."""
        leading = self._namespace.router.leading_to(source.name)

        def has_way_here(definition: QueueDefinition) -> bool:
            """Whether dead letters of a queue can reach `source`, by the current bindings."""
            exchange, key = definition.dead_letter_exchange, definition.dead_letter_key
            if exchange == "":
                return key in (None, source.name)  # without a key of the queue, each message has its own
            return exchange in leading

        return await self._move(
            source,
            most,
            lambda message: self._place_of_death(source, message, has_way_here, may_reach),
        )

    async def _move(self, source: LogQueue, most: int, place: Callable[[Message], _Placed]) -> Moved:
        if not isinstance(source, Queue):
            raise InvalidDefinition(f"{source} keeps its messages: they can be read, and not moved")
        moved = Moved()
        async with aclosing(source.browse(min(most, _AT_ONCE))) as pieces:
            async for messages in pieces:
                piece = messages[: most - moved.count]
                # What was begun is finished, also if the caller is cancelled.
                moved = await undisturbed(
                    asyncio.create_task(self._move_undisturbed(source, piece, place, moved))
                )
                if moved.count >= most or source.is_stopped:
                    break
        return moved

    async def _move_undisturbed(
        self, source: Queue, messages: Sequence[Message], place: Callable[[Message], _Placed], moved: Moved
    ) -> Moved:
        """A queue that was deleted meanwhile would take its new messages with it."""
        async with self._namespace.undisturbed:
            return await self._move_piece(source, messages, place, moved)

    async def _move_piece(
        self, source: Queue, messages: Sequence[Message], place: Callable[[Message], _Placed], moved: Moved
    ) -> Moved:
        wave = self._transaction()
        now = self._clock.now_ms()
        going: list[Message] = []
        to, left, reason = dict(moved.to), moved.left, moved.reason
        try:
            for message in messages:
                if not is_ready(message, now):
                    continue  # a consumer got it meanwhile
                try:
                    placed = place(message)
                    value = message.value or b""
                    self._namespace.publish_to(placed.queue, placed.key, value, placed.envelope, wave)
                except (_NoPlace, QueueFull, RecordTooLarge) as error:
                    left, reason = left + 1, str(error)
                    continue
                going.append(message)
                to[placed.queue.name] = to.get(placed.queue.name, 0) + 1
        except BaseException:
            wave.abandon()
            raise
        if going:
            await source.move(going, wave)
        return replace(moved, to=to, left=left, reason=reason)

    def _place_in(self, target: LogQueue, message: Message) -> _Placed:
        if target.is_stopped:
            raise _NoPlace(f"queue {target.name!r} was deleted")
        return self._placed(target, message, message.key or b"", is_dead=bool(self._deaths(message)))

    def _place_of_death(
        self,
        source: LogQueue,
        message: Message,
        has_way_here: Callable[[QueueDefinition], bool],
        may_reach: Callable[[LogQueue], bool],
    ) -> _Placed:
        # Not what a publisher tells in x-death: it could name any queue.
        deaths = _noted(message)
        if not deaths:
            raise _NoPlace("the message is not a dead letter")
        last = deaths[0]
        name = str(last.get("queue"))
        queue = self._namespace.queues.get(name)
        if queue is None:
            raise _NoPlace(f"there is no queue {name!r}")
        if queue is source:
            raise _NoPlace(f"the message died in queue {name!r} itself")
        if not has_way_here(queue.definition):
            # A producer of Kafka can write the note itself.
            raise _NoPlace(f"dead letters of queue {name!r} do not come to queue {source.name!r}")
        if not may_reach(queue):
            raise _NoPlace(f"publishing to queue {name!r} is not permitted")
        keys = last.get("keys")
        key = str(keys[0]).encode(errors="replace") if isinstance(keys, list) and keys else message.key or b""
        return self._placed(queue, message, key, is_dead=True)

    def _placed(self, queue: LogQueue, message: Message, key: bytes, *, is_dead: bool) -> _Placed:
        attributes = self._namespace.attributes_of(message.headers)
        expiration = None if is_dead else attributes.expiration
        envelope = Envelope(
            headers=message.headers,
            attributes=attributes.headers,
            priority=attributes.priority,
            expires_in_ms=_milliseconds(expiration),
        )
        return _Placed(queue=queue, key=key, envelope=envelope)

    def _deaths(self, message: Message) -> Sequence[Mapping[str, Any]]:
        """The newest first: what the broker has noted, or what a publisher tells."""
        noted = _noted(message)
        return self._namespace.attributes_of(message.headers).deaths if noted is None else noted


def _noted(message: Message) -> Sequence[Mapping[str, Any]] | None:
    """What the broker has noted of its deaths, the newest first; None where it has noted nothing."""
    try:
        return noted_deaths(decode_section(message.headers))
    except CorruptBatch:
        return ()


def _milliseconds(expiration: str | None) -> int | None:
    """None where `expiration` is not a number: a producer may have written anything."""
    if expiration is None or not (expiration.isascii() and expiration.isdigit()):
        return None
    return min(int(expiration), _LONGEST_MS)
