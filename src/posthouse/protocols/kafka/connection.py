"""One client connection: reads requests, sends responses in the order of the requests.

`flow_control` bounds memory. Requests that are in flight or wait, and responses that wait for earlier ones,
count against `connection_buffer_bytes`: above it reading pauses, and while the client does not read its
responses no request is started. One request or response may exceed the limit by itself, otherwise it could
never pass.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, cast

from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.model.errors import LoginFailed
from posthouse.model.excerpts import excerpt
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.budget import SMALL
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.introduction import RELAYED_BY, RELAYED_FOR
from posthouse.protocols.kafka.codec.primitives import DecodeError, Message
from posthouse.protocols.kafka.companions import Companions
from posthouse.protocols.kafka.connection_parts import ConnectionParts
from posthouse.protocols.kafka.errors import ProtocolViolation
from posthouse.protocols.kafka.frames import FrameError, FrameReader
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.nodes import node_reached
from posthouse.protocols.kafka.pending_request import PendingRequest
from posthouse.protocols.kafka.pipeline import Pipeline
from posthouse.protocols.kafka.raw_login import take_raw
from posthouse.protocols.kafka.request_origins import ConnectionIdentity
from posthouse.protocols.listener import Listener
from posthouse.protocols.throttle_timer import Waits

log = logging.getLogger(__name__)

_PROTOCOL = "kafka"
_MAX_BEFORE_LOGIN = 64 * 1024
"""Maximum size of a request before login."""
_LAST_SECONDS = 1.0
"""How long requests in flight may take after the user's login was revoked."""
_LONG_SECONDS = 0.02
"""A request that blocks the event loop for longer is throttled for the same time."""


class KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, parts: ConnectionParts, listener: Listener) -> None:
        settings = parts.settings
        self._dispatcher = parts.dispatcher
        self._budget = parts.budget
        self._access = parts.access
        self._settings = settings
        self._listener = listener
        self._advertised = parts.advertised
        self._cluster = parts.cluster
        self._companions: Companions | None = None
        """None if the broker is alone."""
        if parts.open_companion is not None:
            time = asyncio.get_running_loop().time
            self._companions = Companions(parts.open_companion, self._relay_grown, time)
        self._user: ProvenUser | None = None
        """Requests are relayed in the name of this user: the one who has logged in."""
        self._limit = settings.connection_buffer_bytes
        self._reader = FrameReader(parts.receive_buffer, settings.max_request_bytes)
        self.peer = "?"
        self.session = ConnectionIdentity()
        self.software = ("", "")
        """Name and version of the client's software, if it has sent them."""
        self.guard: Guard = CLOSED
        """Authorizes the client's requests."""
        self.login: Login | None = None
        """None if login is not required."""
        self._is_proven = False
        self._waiting: deque[memoryview] = deque()
        self._starting = False
        self._finishing = False
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        identity = PeerIdentity.of(transport, allow_cleartext=self._settings.allow_cleartext_passwords)
        self.peer = identity.peer
        self._client = identity.address
        self.session.relayed_by = transport.get_extra_info(RELAYED_BY)
        self.session.relayed_for = transport.get_extra_info(RELAYED_FOR)
        self._since_ms = self._dispatcher.now_ms()
        self._flow = FlowControl(
            self._loop,
            self._transport,
            self._budget,
            self.peer,
            limit=self._limit,
            is_behind=self._dispatcher.is_behind,
            held=self._held_bytes,
            go_on=self._go_on,
            abort=self.abort,
        )
        self._outbox, self._pace = self._flow.outbox, self._flow.pace
        self._pipeline = Pipeline(self._loop, self._flow)
        self._authenticator = Authenticator(
            self._access, identity, _PROTOCOL, admitted=self._admitted, revoked=self._revoked
        )
        self._node = self._cluster or node_reached(transport, self._advertised)
        if not self._listener.join(self):
            self._closed = True
            self._transport.abort()
            return
        if not self._authenticator.is_required:
            self._authenticator.admit_anonymous()
            return
        self._reader.max_frame = _MAX_BEFORE_LOGIN
        self.login = Login(self._authenticator, self._logged_in)
        is_relayed = self.session.relayed_by is not None
        try:
            self.login.take_identity(identity, is_relayed=is_relayed, has_tls=self._listener.has_tls)
        except LoginFailed as error:
            if is_relayed:
                # No offence: the other broker may be behind. It closes its client's connection.
                self.close_because(str(error))
            else:
                self.violated(str(error))

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(
            peer=self.peer,
            protocol=_PROTOCOL,
            since_ms=self._since_ms,
            user=self._authenticator.user,
            client=" ".join(filter(None, self.software)),
            has_tls=self._transport.get_extra_info("ssl_object") is not None,
            is_paused=self._flow.is_paused,
            received_bytes=self._pace.received,
            sent_bytes=self._outbox.sent,
            held_bytes=self._flow.account.held,
        )

    def _admitted(self, guard: Guard) -> None:
        self.guard = guard
        if self.login is not None:
            self._reader.max_frame = self._settings.max_request_bytes
            self._prove()

    def _logged_in(self, user: ProvenUser) -> None:
        self._user = user

    def _revoked(self) -> None:
        """Answer requests in flight, with a deadline: one may be a long poll of days."""
        self.finish()
        self._loop.call_later(_LAST_SECONDS, self.abort)

    def _prove(self) -> None:
        self._is_proven = True
        self._listener.prove(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closed and self._reader.in_frame:
            log.warning("the Kafka connection from %s ended in the middle of a request", self.peer)
            if not self._flow.is_paused:  # while paused, the rest may have been sent but not read
                self._listener.offended(self)
        self._listener.leave(self)
        self.session.is_open = False
        self._authenticator.close()
        self.login = None
        self._flow.close()
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
        flow = self._flow
        for frame in frames:
            flow.in_flight += len(frame)
        self._waiting.extend(frames)
        if flow.in_flight > SMALL or self._reader.held > SMALL or flow.account.held:
            flow.count()
        self._start_waiting()

    def _held_bytes(self) -> int:
        relayed = 0 if self._companions is None else self._companions.held
        return self._reader.held + self._pipeline.unfinished + relayed

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._regulate_reading()

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start requests in order, until one has to be awaited or the client does not read its responses."""
        if self._starting:
            return
        self._starting = True
        waiting, pipeline = self._waiting, self._pipeline
        outbox, throttle = self._outbox, self._flow.throttle
        login = self.login
        begun = self._loop.time() if waiting else 0.0
        while (
            waiting
            and pipeline.task is None
            and not outbox.is_congested
            and pipeline.held <= self._limit
            and not throttle.is_on
            and not self._leaves_answers()
        ):
            frame = waiting.popleft()
            request = PendingRequest(self, len(frame))
            pipeline.add(request)
            if login is not None and login.is_raw:
                take_raw(frame, request, login)
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
        """Whether memory is short and the client does not read its responses: then it gets no more."""
        return self._flow.account.must_wait() and self._transport.get_write_buffer_size() > SMALL

    def _regulate_reading(self) -> None:
        if not self._closed:
            self._flow.regulate(held_back=self._outbox.is_congested or self._finishing)
            if self._companions is not None:
                self._regulate_companions(self._companions)

    def _regulate_companions(self, companions: Companions) -> None:
        """No response is read that the client would not take soon. A response that the client waits for is
        read even while memory is short: its request holds memory, too."""
        if companions.is_connected:
            companions.regulate(
                pause=self._outbox.is_congested or self._pipeline.held > self._limit or self._leaves_answers()
            )

    def _relay_grown(self) -> None:
        if not self._closed:
            self._flow.count()
            self._regulate_reading()

    @property
    def room(self) -> int:
        return max(0, self._budget.room)

    def hold(self, size: int) -> None:
        """Count a response from when it is read, not from when it is sent: other connections read
        meanwhile."""
        self._pipeline.unfinished = size
        if not self._closed:
            self._flow.count()

    def offended(self) -> None:
        """Count an offence: the client sent a request that well-behaved clients do not repeat."""
        self.throttle(self._listener.offended(self))

    def throttle(self, seconds: float, waits: Waits | None = None) -> None:
        """Throttle the client: it has exceeded its quota or its share, so reading pauses. `waits` counts the
        time of quotas."""
        if not self._closed and seconds > 0:
            self._flow.throttle.extend(seconds, waits)
            self._regulate_reading()

    def _go_on(self) -> None:
        self._start_waiting()
        self._leave_when_finished()

    def tick(self) -> bool:
        self._flow.count()
        if self._waiting:
            self._start_waiting()
        if self._companions is not None:
            self._companions.close_idle()
            # The client may have read responses without reaching the low watermark.
            self._regulate_companions(self._companions)
        return self._flow.is_too_slow(in_frame=self._reader.in_frame)

    def run(
        self, request: PendingRequest, coroutine: Coroutine[Any, Any, Message | None]
    ) -> asyncio.Task[Message | None]:
        return self._pipeline.run(request, coroutine)

    def relay(
        self, request: PendingRequest, scope: Scope, frame: memoryview | None = None
    ) -> asyncio.Future[bytes]:
        companions = self._companions
        assert companions is not None
        frame = request.frame if frame is None else frame
        answered = companions.send(frame, scope, self._client, self._user)
        if companions.is_full and self._pipeline.task is None:
            self.run(request, companions.settled(answered))
        return answered

    def answered(self, request: PendingRequest) -> None:
        if self._closed:
            return
        self._pipeline.answered(request)
        flow = self._flow
        if flow.account.held:
            flow.count()
        if self._waiting or flow.is_paused:
            self._start_waiting()
            self._leave_when_finished()
        elif self._companions is not None:
            self._regulate_companions(self._companions)

    def violated(self, reason: str) -> None:
        """Close the connection: the client violated the protocol."""
        if not self._closed:
            self._listener.offended(self)
            self.close_because(reason)

    def close_because(self, reason: str) -> None:
        """Close the connection with one log line, and without effect on other connections."""
        if self._closed:
            return
        log.warning("closing the Kafka connection from %s: %s", self.peer, excerpt(reason))
        self._outbox.flush()
        self._forget()
        # A client that does not read earlier responses would keep the connection open forever.
        if self._outbox.is_congested:
            self._transport.abort()
        else:
            self._transport.close()

    def finish(self) -> None:
        self._flow.in_flight -= sum(map(len, self._waiting))
        self._waiting.clear()
        self._finishing = True
        self._regulate_reading()
        self._leave_when_finished()

    def _leave_when_finished(self) -> None:
        if self._finishing and not self._pipeline and not self._closed:
            self._forget()
            self._transport.close()

    def abort(self) -> None:
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._closed = True
        self._outbox.close()
        self._reader.forget()
        self._waiting.clear()
        self._pipeline.close()
        if self._companions is not None:
            self._companions.close()
