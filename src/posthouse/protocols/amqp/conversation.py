"""Executes the requests of one client, in the order in which they were sent.

Publishes and acknowledgements are executed at once. A method that has to wait, and a publish to a full queue
with `x-overflow: block`, hold up all later requests of the connection.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

from pamqp.base import Frame as Command
from pamqp.commands import Connection as Methods

from posthouse.broker.queues.queue import Queue
from posthouse.model.errors import PosthouseError, QueueBlocked, StorageFull
from posthouse.model.proven_user import ProvenUser
from posthouse.protocols.amqp.acknowledgements import CollectedAcks, Unfinished
from posthouse.protocols.amqp.blocking import Blocking, BlockReason
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.channels import Channels
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.errors import FrameError
from posthouse.protocols.amqp.codec.events import ACK, METHOD, OVERSIZED, PROTOCOL_HEADER, PUBLISH, Event
from posthouse.protocols.amqp.codec.framing import BASIC_ACK, BASIC_PUBLISH, CHANNEL_CLOSE
from posthouse.protocols.amqp.errors import (
    INTERNAL,
    Refused,
    ReplyCode,
    channel_error,
    precondition_failed,
    refused_frame,
    translated,
)
from posthouse.protocols.amqp.host import LOST_HOST, ConversationHost
from posthouse.protocols.amqp.negotiation import Credentials, State
from posthouse.protocols.amqp.opening import Opening
from posthouse.protocols.amqp.others_turns import TURN_BYTES, OthersTurns
from posthouse.protocols.amqp.session import Session
from posthouse.protocols.amqp.shared import Shared
from posthouse.protocols.amqp.throttle import Throttle
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.stopwatch import Timed
from posthouse.protocols.throttle_timer import ThrottleTimer

log = logging.getLogger(__name__)

FAULT: Final = -1
Fault: TypeAlias = tuple[Literal[-1], int, FrameError]
"""A frame that could not be decoded; it follows the events that could."""
Asked: TypeAlias = Event | Fault


class Conversation:
    def __init__(
        self,
        shared: Shared,
        host: ConversationHost,
        identity: PeerIdentity,
        loop: asyncio.AbstractEventLoop,
        flow: FlowControl,
        decoder: Decoder,
    ) -> None:
        self._shared = shared
        self._methods = shared.methods
        self._host = host
        self._peer = identity.peer
        self._loop = loop
        self._outbox = flow.outbox
        self._decoder = decoder
        self._opening = Opening(shared, identity, lambda refusal: host.close_because(refusal, 0))
        self.negotiation = self._opening.negotiation
        self.unfinished = Unfinished(shared.publishing, shared.methods.publish, self._wave_ended)
        self.blocking = Blocking(flow.outbox)
        self.throttle = Throttle(
            shared.access.quotas, reading=flow.throttle, deliveries=ThrottleTimer(loop, self.deliver_again)
        )
        self.session: Session | None = None
        self.waiting: deque[Asked] = deque()
        self.is_over = False
        """No more requests are executed. Those that were begun are finished."""
        self._acks = CollectedAcks(shared.methods.ack)
        self._channels: Channels | None = None
        self._by_number: dict[int, Channel] = {}
        self._task: asyncio.Task[None] | None = None
        """The method that all later requests wait for."""
        self._is_held = False
        self.others_turns = OthersTurns(loop)

    @property
    def is_idle(self) -> bool:
        """Whether all requests have been answered."""
        return self._task is None and not self.unfinished.parts

    @property
    def is_behind(self) -> bool:
        """Whether reading must pause."""
        return (
            len(self.waiting) > 0
            or self.others_turns.left > 0
            or (self._is_held and (bool(self.blocking) or self._opening.is_logging_in))
        )

    def take(self, asked: Sequence[Asked], size: int) -> None:
        """Execute the requests of one read of `size` bytes."""
        if self.is_over:
            asked = [event for event in asked if event[1] == 0 or event[0] == ACK]
        if not self.throttle.quotas.is_empty and self.session is not None:
            self._meter(asked)
        if self._is_held:
            self.waiting.extend(asked)
        else:
            self._work(asked)
        if size > TURN_BYTES and not self.others_turns.left:
            self.others_turns.begin(self._regulate)
        self._host.regulate()

    def _regulate(self) -> None:
        self._host.regulate()

    def _meter(self, asked: Iterable[Asked]) -> None:
        size = sum(len(event[5]) + len(event[6]) for event in asked if event[0] == PUBLISH)
        if size:
            self.throttle.written(size)

    def _work(self, asked: Iterable[Asked]) -> None:
        """Execute the requests in order, until one has to wait: then the rest waits, too."""
        line = iter(asked)
        channels = self._by_number
        event: Any
        for event in line:
            kind, number = event[0], event[1]
            index = 0
            try:
                if kind == PUBLISH:
                    index = BASIC_PUBLISH
                    channel = channels.get(number)
                    if channel is None or channel.is_closed:
                        self._without_channel(number)
                    else:
                        channel.publish(event)
                elif kind == ACK:
                    index = BASIC_ACK
                    channel = channels.get(number)
                    if channel is None or channel.is_closed:
                        self._without_channel(number)
                    else:
                        channel.ack(event[2], event[3])
                elif kind == METHOD:
                    index = event[2].index
                    if number:
                        self._method(number, event[2])
                    else:
                        self._connection_method(event[2])
                elif kind == OVERSIZED:
                    index = BASIC_PUBLISH
                    self._refuse_oversized(number, event[2])
                elif kind == PROTOCOL_HEADER:
                    self._host.greeted(event[2])
                elif kind == FAULT:
                    index = event[2].class_id << 16 | event[2].method_id
                    raise refused_frame(event[2])
            except QueueBlocked as blocked:
                self.waiting.append(event)
                self._wait_for_room(blocked)
            except Exception as error:  # noqa: BLE001 - told apart in one place
                if (metrics := self._methods.of(index)) is not None:
                    metrics.untimed += 1  # what is refused at once is a request, too
                self._refuse(number, error, index)
            if self._is_held:
                self.waiting.extend(line)
        self._acks.flush()

    def _without_channel(self, number: int) -> None:
        """The channel was closed after the client sent this, or was never opened."""
        if number not in self._by_number and not self.is_over:
            raise channel_error("expected 'channel.open'")

    def _refuse_oversized(self, number: int, size: int) -> None:
        self._without_channel(number)
        most = self._shared.limits.max_body
        raise precondition_failed(f"message size {size} is larger than configured max size {most}")

    def _refuse(self, number: int, error: Exception, index: int) -> None:
        if (metrics := self._methods.of(index)) is not None:
            metrics.errors += 1
        if isinstance(error, Refused):
            refusal = error
        elif isinstance(error, PosthouseError):
            refusal = translated(error)
        else:
            method = f"method {index & 0xFFFF} of class {index >> 16}"
            log.error("client %s: %s failed", self._peer, method, exc_info=error)
            refusal = Refused(ReplyCode.INTERNAL_ERROR, INTERNAL)
        if number == 0 or not refusal.closes_channel_only or self._channels is None:
            self._host.close_because(refusal, index)
        elif not self._channels.refuse(number, refusal, index):
            log.debug("client %s: channel %d was gone before it was refused: %s", self._peer, number, refusal)

    # Channels

    def _method(self, number: int, method: Command) -> None:
        if self.is_over:
            return
        if self._channels is None:
            raise channel_error(f"unexpected method in connection state {self.negotiation.state}")
        begun = perf_counter()
        answer = self._channels.take(number, method)
        if answer is not None and not isinstance(answer, bytes):
            self._hold(number, answer, method.index)
            return
        if answer is not None:
            # Only methods that wait make changes that the audit log has to have first: see `_answered`.
            self._outbox.send(answer)
        self._measure(method.index, begun)

    def _measure(self, index: int, begun: float) -> None:
        if (metrics := self._methods.of(index)) is not None:
            metrics.seconds.observe(perf_counter() - begun)

    def _hold(self, number: int, answer: Coroutine[Any, Any, bytes | None], index: int) -> None:
        """All later requests wait for the answer."""
        self._is_held = True
        if self.session is not None:
            self.session.is_answering = True
        work: Coroutine[Any, Any, None] = self._answered(number, answer, index)
        if self.session is not None and not self.throttle.quotas.is_empty:
            work = Timed(work, self.throttle.stopwatch)
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._done)

    async def _answered(self, number: int, answer: Coroutine[Any, Any, bytes | None], index: int) -> None:
        begun = perf_counter()
        try:
            frame = await answer
            if frame is not None and self.session is not None:
                await self._shared.access.audit.written(self.session.guard.last_change)
        except Exception as error:  # noqa: BLE001 - told apart in one place
            self._refuse(number, error, index)
        else:
            if frame is not None and self._is_awaited(number, index):
                self._outbox.send(frame)
        self._measure(index, begun)

    def _is_awaited(self, number: int, index: int) -> bool:
        """Whether the client still waits for an answer on this channel."""
        if number == 0:
            return not self.is_over
        return number in self._by_number or index == CHANNEL_CLOSE

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if self.session is not None:
            self.session.answered()
            self.throttle.worked()
        self._go_on()

    def _go_on(self) -> None:
        """Execute the requests that have waited."""
        if self._task is None and not self.blocking:
            self._is_held = False
            waiting, self.waiting = self.waiting, deque()
            with self.throttle.stopwatch:
                self._work(waiting)
        self._host.regulate()

    # The connection's own methods

    def _connection_method(self, method: Command) -> None:
        if isinstance(method, Methods.Close):
            self._host.close_asked_for()
        elif isinstance(method, Methods.CloseOk):
            self._host.close_agreed()
        elif self.is_over:
            return
        elif isinstance(method, Methods.UpdateSecret) and self.session is not None:
            self._hold(0, self._opening.update_secret(method), method.index)
        else:
            self._negotiate(method)

    async def _log_in(self, login: Credentials) -> bytes | None:
        answer = await self._opening.log_in(login)
        if self.is_over:
            return None
        self._host.logged_in()
        return None if self._opening.is_introduced else encode.method(0, answer)

    def _negotiate(self, method: Command) -> None:
        begun = perf_counter()
        answer = self.negotiation.take(method)
        if isinstance(answer, Credentials):
            self._hold(0, self._log_in(answer), method.index)
            return
        if isinstance(method, Methods.TuneOk):
            self._host.tuned()
        elif self.negotiation.state is State.RUNNING:
            if self._host.is_transferred():
                self._is_held = True
                return
            self._open()
        if answer is not None:
            self._outbox.send(encode.method(0, answer))
        self._measure(method.index, begun)

    def _open(self) -> None:
        self.session = self._opening.session(self._outbox, self.unfinished, self._acks, self.throttle)
        self.blocking.tells = self.session.can("connection.blocked")
        channel_max = self.negotiation.channel_max
        self._channels = Channels(self.session, self._decoder, channel_max, self._by_number)
        self._host.opened()

    # Waiting for room

    def _wait_for_room(self, blocked: QueueBlocked) -> None:
        """The publish that was blocked is the first in line, and is executed again."""
        self._is_held = True
        self.blocking.add(BlockReason.QUEUE)
        queue = blocked.queue
        assert isinstance(queue, Queue)
        queue.room.wait(self._room_made)

    def _room_made(self) -> None:
        """Execute the blocked publish in the next turn: the caller is still settling messages."""
        self._loop.call_soon(self._unblock, BlockReason.QUEUE)

    @property
    def channels(self) -> Iterable[Channel]:
        """The open channels."""
        return [channel for channel in self._by_number.values() if not channel.is_closed]

    def _wave_ended(self, error: PosthouseError | None) -> None:
        if isinstance(error, StorageFull) and not self.is_over:
            self._is_held = True
            self.blocking.add(BlockReason.STORAGE)
            self._loop.call_later(
                self._shared.limits.storage_retry_seconds, self._unblock, BlockReason.STORAGE
            )
        self._host.regulate()

    def _unblock(self, reason: BlockReason) -> None:
        self.blocking.remove(reason)
        self._go_on()

    # Its end

    @property
    def proven(self) -> ProvenUser | None:
        """See `Opening.proven`."""
        return self._opening.proven

    def transfer(self) -> Callable[[], None]:
        """Another broker serves the client from now on. Returns what is to be called when its connection is
        lost."""
        self.stop()
        self.throttle.close()
        self._opening.transfer()
        self.forget()
        return self._opening.leave

    def deliver_again(self) -> None:
        """The client reads again what it is sent."""
        if self._channels is not None:
            self._channels.resume_deliveries()

    def stop(self) -> None:
        """Execute no more requests, and deliver no more messages."""
        self.is_over = True
        self.waiting.clear()
        if self._task is None:
            self._is_held = False  # what belongs to the close does not wait for room, or for another broker
        if self._channels is not None:
            self._channels.stop_deliveries()

    def end_channels(self) -> None:
        self.stop()
        if self._channels is not None:
            self._channels.close_all()

    async def end(self) -> None:
        """Close all channels, and return when the exclusive queues are deleted."""
        self.end_channels()
        if self._task is not None:
            await asyncio.wait([self._task])
        self.throttle.close()
        self._opening.leave()
        if self.session is not None:
            session, self.session = self.session, None
            try:
                await session.namespace.session_ended(session)
                await session.namespace.effects.done()
            except PosthouseError as error:
                log.warning("client %s: its exclusive queues could not be deleted: %s", self._peer, error)

    def forget(self) -> None:
        """The connection is lost: its memory is freed without the help of the garbage collector."""
        self.unfinished.close()
        self._host = LOST_HOST
