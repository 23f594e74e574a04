"""One client: its bytes in, its responses out, in the order of its requests.

Memory is bounded. Requests that are in flight or wait, and responses that are not sent, count against
`connection_buffer_bytes`: beyond it nothing more is read, and while responses are not taken nothing more
is started. One request or response may exceed the limit by itself, or it could never pass.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from struct import Struct
from typing import Any, cast

from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.guard import Guard
from posthouse.model.errors import LoginFailed
from posthouse.model.excerpts import excerpt
from posthouse.protocols.budget import FAIR, SMALL, Budget
from posthouse.protocols.kafka.admission import Admission
from posthouse.protocols.kafka.codec.primitives import Buffer, DecodeError, Message
from posthouse.protocols.kafka.dispatch import Dispatcher
from posthouse.protocols.kafka.errors import ProtocolViolation
from posthouse.protocols.kafka.frames import RECEIVE_BUFFER, FrameError, FrameReader
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.pending_request import PendingRequest
from posthouse.protocols.kafka.request_origins import ConnectionIdentity
from posthouse.protocols.listener import PARTLY_SENT, Listener
from posthouse.protocols.pace import Pace
from posthouse.settings import Address, Settings

log = logging.getLogger(__name__)

# Responses that become ready together leave with one system call, but not more bytes than this.
_FLUSH_BYTES = 64 * 1024
_MAX_BEFORE_LOGIN = 64 * 1024
"""Bytes of a request, while nobody knows who asks."""
_LAST_SECONDS = 1.0
"""For whoever is not welcome any more."""
_LONG_SECONDS = 0.02
"""A request that keeps the event loop busy for longer lets others have it for as long."""
_LENGTH = Struct(">i")


class KafkaConnections:
    """Makes the connections of one listener."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        access: AccessControl,
        settings: Settings,
        budget: Budget,
        advertised: Address | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.access = access
        self.settings = settings
        self.budget = budget
        self.advertised = advertised
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER))

    def __call__(self, listener: Listener) -> asyncio.BufferedProtocol:
        return KafkaConnection(self, listener)


class KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, made_by: KafkaConnections, listener: Listener) -> None:
        settings = made_by.settings
        self._dispatcher = made_by.dispatcher
        self._budget = made_by.budget
        self._access = made_by.access
        self._settings = settings
        self._listener = listener
        self._advertised = made_by.advertised
        self._limit = settings.connection_buffer_bytes
        self._reader = FrameReader(made_by.receive_buffer, settings.max_request_bytes)
        self._node = Address("127.0.0.1", 0)
        self.peer = "?"
        self.session = ConnectionIdentity()
        self.software = ("", "")
        """Name and version of the client's software, once it has told."""
        self.admission = Admission(made_by.access, "?", admitted=self._admitted, dismissed=self._dismissed)
        self._is_proven = False
        self._muted: asyncio.TimerHandle | None = None
        self._pace = Pace()
        self._account = made_by.budget.account("?", self._start_waiting, self.abort)
        self._pending: deque[PendingRequest] = deque()
        self._waiting: deque[memoryview] = deque()
        self._blocked_by: PendingRequest | None = None
        self._task: asyncio.Task[Message] | None = None
        self._load = 0
        """Bytes of requests that are waiting or in flight, and of responses that wait for earlier ones."""
        self._held = 0
        self._unfinished = 0
        """Bytes of the answer that the task is working on."""
        self._outbox: list[Buffer] = []
        self._outbox_bytes = 0
        self._writing_paused = False
        self._reading_paused = False
        self._starting = False
        self._finishing = False
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limit)
        self.peer = self._account.peer = _shown(transport.get_extra_info("peername"))
        self._node = self._advertised or self._node_reached()
        if not self._listener.join(self):
            self._closed = True
            self._transport.abort()
            return
        self.admission = Admission(
            self._access, self.peer, admitted=self._admitted, dismissed=self._dismissed
        )
        if self._access.is_required:
            self._reader.max_frame = _MAX_BEFORE_LOGIN
        is_private = transport.get_extra_info("ssl_object") is not None or self._node_reached().is_loopback
        try:
            self.admission.begin(
                transport, allows_plain=is_private or self._settings.allow_cleartext_passwords
            )
        except LoginFailed as error:
            self.violated(str(error))

    @property
    def guard(self) -> Guard:
        return self.admission.guard

    @property
    def login(self) -> Login | None:
        return self.admission.login

    def _node_reached(self) -> Address:
        """Where this client reached us: the one address that is sure to work for it."""
        name = self._transport.get_extra_info("sockname")
        return Address(name[0], name[1]) if isinstance(name, tuple) else self._node

    def _admitted(self) -> None:
        self._reader.max_frame = self._settings.max_request_bytes
        self._prove()

    def _dismissed(self) -> None:
        """What it asked for is answered, but it may have asked to wait for days."""
        self.finish()
        self._loop.call_later(_LAST_SECONDS, self.abort)

    def _prove(self) -> None:
        self._is_proven = True
        self._listener.prove(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closed and self._reader.in_frame:
            log.warning("the Kafka connection from %s ended in the middle of a request", self.peer)
            if not self._reading_paused:  # else it may have sent the rest, and nobody read it
                self._listener.offended(self)
        self._listener.leave(self)
        self.session.is_open = False
        self.admission.end()
        self._account.close()
        if self._muted is not None:
            self._muted.cancel()
        self._forget()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, size: int) -> None:
        if self._closed or self._finishing:
            return
        self._pace.received += size
        try:
            frames = self._reader.received(size)
        except FrameError as error:
            self.violated(str(error))
            return
        for frame in frames:
            self._load += len(frame)
        self._waiting.extend(frames)
        if self._load > SMALL or self._reader.held > SMALL or self._account.held:
            self._count_memory()
        self._start_waiting()

    def _count_memory(self) -> None:
        unsent = self._outbox_bytes + self._transport.get_write_buffer_size()
        if unsent > SMALL:
            unsent += PARTLY_SENT
        self._account.set(self._load + self._reader.held + unsent + self._unfinished)

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._regulate_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start requests in order, until one must be waited for or the client does not take its answers."""
        if self._starting:
            return
        self._starting = True
        waiting = self._waiting
        login = self.admission.login
        begun = self._loop.time() if waiting else 0.0
        while (
            waiting
            and self._task is None
            and not self._writing_paused
            and self._held <= self._limit
            and self._muted is None
            and not self._leaves_answers()
        ):
            frame = waiting.popleft()
            request = PendingRequest(self, len(frame))
            self._pending.append(request)
            if login is not None and login.is_raw:
                self._take_raw(frame, request, login)
                continue
            try:
                self._dispatcher.dispatch(frame, self._node, request)
            except (DecodeError, ProtocolViolation) as error:
                self.violated(str(error))
            else:
                if not self._is_proven and login is None:
                    self._prove()
            before, begun = begun, self._loop.time()
            if begun - before > _LONG_SECONDS:
                self.throttle(begun - before)
        self._starting = False
        self._regulate_reading()

    def _leaves_answers(self) -> bool:
        """Memory is spent, and the client does not take what it got: it gets nothing more."""
        return self._account.must_wait() and self._transport.get_write_buffer_size() > SMALL

    def _regulate_reading(self) -> None:
        if self._closed:
            return
        pause = (
            self._writing_paused
            or self._finishing
            or self._load > self._limit
            or (self._load > FAIR and self._dispatcher.is_behind())
            or self._muted is not None
            or self._account.must_wait()
        )
        if pause == self._reading_paused:
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take_raw(self, frame: memoryview, request: PendingRequest, login: Login) -> None:
        """A token without any request around it, and so is the answer."""

        async def take() -> Any:
            return await login.take(bytes(frame))

        def taken(task: "asyncio.Task[Any]") -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                request.answer([_LENGTH.pack(len(task.result())), task.result()])
            elif isinstance(error, LoginFailed):
                self.violated(f"its login failed: {error}")
            else:
                log.error("a login failed", exc_info=error)
                self.close_because("its login failed")

        self.run(request, take()).add_done_callback(taken)

    @property
    def room(self) -> int:
        return max(0, self._budget.room)

    def hold(self, size: int) -> None:
        """Count an answer from when it is read, not from when it is sent: others are reading meanwhile."""
        self._unfinished = size
        if not self._closed:
            self._count_memory()

    def offended(self) -> None:
        """It asked for what clients do not ask for again and again, and was told so."""
        self.throttle(self._listener.offended(self))

    def throttle(self, seconds: float) -> None:
        """It has used up its quota, or more than its share: nothing more is heard of it for a while."""
        if self._closed or seconds <= 0:
            return
        if self._muted is not None:
            if self._muted.when() > self._loop.time() + seconds:
                return
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self._unmute)
        self._regulate_reading()

    def _unmute(self) -> None:
        self._muted = None
        self._start_waiting()
        self._leave_when_finished()

    def tick(self) -> bool:
        self._count_memory()
        if self._waiting:
            self._start_waiting()
        return self._pace.is_too_slow(waits_for_rest=self._reader.in_frame and not self._reading_paused)

    def run(self, request: PendingRequest, coroutine: Coroutine[Any, Any, Message]) -> asyncio.Task[Message]:
        self._blocked_by = request
        self._task = self._loop.create_task(coroutine)
        return self._task

    def answered(self, request: PendingRequest) -> None:
        """Send what is ready, up to the first request that is still being worked on."""
        if self._closed:
            return
        if self._blocked_by is request:
            self._blocked_by = self._task = None
            self._unfinished = 0
        pending = self._pending
        if pending[0] is not request:
            request.held = sum(map(len, request.chunks or ()))
            self._held += request.held
            self._load += request.held
        else:
            while pending and pending[0].ready:
                first = pending.popleft()
                self._load -= first.size + first.held
                self._held -= first.held
                if first.chunks:
                    self._send(first.chunks)
            if not pending:
                self._flush()
        if self._account.held:
            self._count_memory()
        if self._waiting or self._reading_paused:
            self._start_waiting()
            self._leave_when_finished()

    def _send(self, chunks: list[Buffer]) -> None:
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox += chunks
        self._outbox_bytes += sum(map(len, chunks))
        if self._outbox_bytes > _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._outbox and not self._closed:
            chunks, self._outbox = self._outbox, []
            size, self._outbox_bytes = self._outbox_bytes, 0
            self._transport.writelines(chunks)
            if size > SMALL or self._account.held:
                self._count_memory()

    def violated(self, reason: str) -> None:
        """The client is at fault."""
        if not self._closed:
            self._listener.offended(self)
            self.close_because(reason)

    def close_because(self, reason: str) -> None:
        """One line in the log, and no effect on anybody else."""
        if self._closed:
            return
        log.warning("closing the Kafka connection from %s: %s", self.peer, excerpt(reason))
        self._flush()
        self._forget()
        # Whoever does not take what was written before would keep the connection open for ever.
        if self._writing_paused:
            self._transport.abort()
        else:
            self._transport.close()

    def finish(self) -> None:
        self._finishing = True
        self._load -= sum(map(len, self._waiting))
        self._waiting.clear()
        self._regulate_reading()
        self._leave_when_finished()

    def _leave_when_finished(self) -> None:
        if self._finishing and not self._pending and not self._closed:
            self._forget()
            self._transport.close()

    def abort(self) -> None:
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._closed = True
        self._reader.forget()
        self._waiting.clear()
        self._pending.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None


def _shown(address: Any) -> str:
    return str(Address(address[0], address[1])) if isinstance(address, tuple) else str(address or "?")
