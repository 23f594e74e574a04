"""The connection of one client: HTTP/2 between a socket and calls.

Its memory is bounded by windows and `Room` as long as requests arrive, by `flow_control` while unary
requests are not answered, and by `send` of streaming calls. While the client opens no windows for its
answers, new calls are refused: what they would send has nowhere to go. The socket is read all the same, for
the updates of those windows.
"""

import asyncio
import logging
from typing import Final, cast

from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.grpc.call import Session
from posthouse.protocols.grpc.calls import BidiCall
from posthouse.protocols.grpc.deadlines import read_timeout
from posthouse.protocols.grpc.http2.connection import Http2Connection
from posthouse.protocols.grpc.http2.errors import ConnectionFault
from posthouse.protocols.grpc.http2.header_blocks import Request
from posthouse.protocols.grpc.http2.streams import Stream
from posthouse.protocols.grpc.messages import MessageReader, decompress_by
from posthouse.protocols.grpc.metadata import Metadata
from posthouse.protocols.grpc.room import Room
from posthouse.protocols.grpc.server import GrpcServer, NoSession
from posthouse.protocols.grpc.status import GrpcError, Status, http_status, only_trailers
from posthouse.protocols.listener import Listener
from posthouse.protocols.throttle_timer import ThrottleTimer
from posthouse.settings import Address

log = logging.getLogger(__name__)

_CALL_BYTES: Final = 2048
"""What a call takes beside its messages, with the headers of usual clients."""
_UNREAD_SECONDS: Final = 60
"""A client that reads nothing for that long of what waits in its socket is gone."""
_LONGEST_AGENT: Final = 80
_CONTENT_TYPE: Final = b"application/grpc"
_METHOD_NOT_ALLOWED: Final = 405
_UNSUPPORTED_MEDIA_TYPE: Final = 415


class GrpcConnection(asyncio.Protocol):
    def __init__(self, server: GrpcServer, advertised: Address | None, listener: Listener) -> None:
        self._server = server
        self._advertised = advertised
        self._listener = listener
        self.address = Address("127.0.0.1", 0)
        self.identity = PeerIdentity(peer="?")
        self.session: Session = NoSession()
        self.room = Room(server.buffer_bytes)
        self.is_finishing = False
        self._is_lost = False
        self._is_closing = False
        self._is_proven = False
        self._working = 0
        """Handlers that are not done, of ended calls, too."""
        self._assembled = 0
        self._agent = ""
        self._user: str | None = None
        self._is_resuming = False

    @property
    def peer(self) -> str:
        return self.identity.peer

    @property
    def has_tls(self) -> bool:
        return self._transport.get_extra_info("ssl_object") is not None

    @property
    def throttle(self) -> ThrottleTimer:
        return self._flow.throttle

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self.loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self.identity = PeerIdentity.of(transport, allow_cleartext=server.allow_cleartext)
        self.address = self._advertised or Address.of_peer(transport.get_extra_info("sockname"))
        self._since_ms = server.now_ms()
        self._flow = FlowControl(
            self.loop,
            self._transport,
            server.budget,
            self.peer,
            limit=server.buffer_bytes,
            is_behind=server.is_behind,
            held=self._held,
            go_on=self._regulate,
            abort=self.abort,
            throttled=self._regulate,
        )
        self.http2 = Http2Connection(self._flow.outbox, self, server.http2_limits, self.loop.time)
        if not self._listener.join(self):
            self._is_lost = True
            self._transport.abort()
            return
        self.session = server.open_session(self)
        self.http2.start()

    def connection_lost(self, error: Exception | None) -> None:
        if self.http2.held and not self._is_lost and not self._is_closing and not self._flow.is_paused:
            log.warning("the gRPC connection from %s ended in the middle of a frame", self.peer)
            self._listener.offended(self)
        self._is_lost = True
        self._cut_off_calls()
        self._listener.leave(self)
        self.session.close()
        self._flow.close()

    def _cut_off_calls(self) -> None:
        for stream in list(self.http2.streams.values()):
            if stream.call is not None:
                stream.call.cut_off()

    def data_received(self, data: bytes) -> None:
        self._flow.pace.received += len(data)
        if not self._is_closing:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        try:
            self.http2.receive(data)
        except ConnectionFault as fault:
            if not self._is_lost:
                log.warning("closing the gRPC connection from %s: %s", self.peer, fault)
                self._listener.offended(self)
                self._cut_off_calls()
                if self._flow.outbox.is_congested:
                    self.abort()  # it may never read what is to be sent before the end
                else:
                    self._flush_and_close()
            return
        self._flow.count()
        self._regulate()

    def pause_writing(self) -> None:
        self._flow.outbox.pause()
        self._regulate()

    def resume_writing(self) -> None:
        self._flow.outbox.resume()
        if not self._is_lost and not self.http2.is_over:
            self.http2.sender.pump()
        self._regulate()

    def _regulate(self) -> None:
        if self._is_lost or self._is_closing:
            return
        flow = self._flow
        flow.regulate(held_back=flow.outbox.is_congested)
        self.http2.is_held_back = flow.in_flight > self._server.buffer_bytes
        if self.http2.has_backlog and not self.http2.is_held_back and not self._is_resuming:
            self._is_resuming = True
            self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """What was received before the connection was held back."""
        self._is_resuming = False
        if not self._is_lost and not self._is_closing:
            self._receive(b"")

    def _held(self) -> int:
        http2 = self.http2
        return http2.held + self._assembled + http2.sender.pending_bytes + len(http2.streams) * _CALL_BYTES

    # What HTTP/2 tells

    def request(self, stream: Stream, request: Request) -> None:
        fields = request.fields
        kind = fields.get(b"content-type", b"")
        if request.method != b"POST":
            self.http2.sender.end(stream, http_status(_METHOD_NOT_ALLOWED))
            return
        if kind != _CONTENT_TYPE and not kind.startswith((_CONTENT_TYPE + b"+", _CONTENT_TYPE + b";")):
            self.http2.sender.end(stream, http_status(_UNSUPPORTED_MEDIA_TYPE))
            return
        server = self._server
        if self._working >= 2 * server.limits.max_streams or (
            self.http2.sender.pending_bytes > server.buffer_bytes
        ):
            self.http2.refuse(stream)
            return
        method = server.methods.get(request.path)
        if method is None:
            server.unknown.untimed += 1
            server.unknown.errors += 1
            path = request.path.decode("utf-8", "replace")[:200]
            self._fail(stream, Status.UNIMPLEMENTED, f"there is no method {path}")
            return
        begun = self.loop.time()
        deadline = None
        try:
            timeout = fields.get(b"grpc-timeout")
            if timeout is not None:
                deadline = begun + read_timeout(timeout)
            decompress = decompress_by(fields.get(b"grpc-encoding"))
        except GrpcError as error:
            method.metrics.untimed += 1
            method.metrics.errors += 1
            self._fail(stream, error.status, error.text)
            return
        if not self._agent:
            agent = fields.get(b"user-agent", b"?").decode("utf-8", "replace")
            self._agent = agent[:_LONGEST_AGENT]
        stream.call = call = method.kind(
            self,
            stream,
            method.name,
            method.handler,
            Metadata(fields),
            method.metrics,
            MessageReader(server.limits.max_message_bytes, decompress),
            begun,
            deadline,
        )
        if type(call) is BidiCall:
            call.start()
        if stream.is_remote_ended and stream.call is not None:
            call.received(b"")

    def _fail(self, stream: Stream, status: Status, text: str) -> None:
        self.http2.sender.end(stream, only_trailers(status, text))

    def data(self, stream: Stream, data: bytes) -> None:
        if stream.call is not None:
            stream.call.received(data)

    def was_reset(self, stream: Stream) -> None:
        if stream.call is not None:
            stream.call.cut_off()

    def drained(self) -> None:
        self.loop.call_soon(self._close_if_done)

    # What calls tell

    def assembling(self, change: int) -> None:
        self._assembled += change

    def in_flight(self, change: int) -> None:
        flow = self._flow
        flow.in_flight += change
        if change > 0:
            if flow.in_flight > self._server.buffer_bytes:
                self.http2.is_held_back = True
        elif flow.is_paused or self.http2.is_held_back:
            flow.count()
            self._regulate()

    def begun(self) -> None:
        self._working += 1

    def done(self) -> None:
        self._working -= 1

    # What handlers ask for

    def prove(self) -> None:
        if not self._is_proven:
            self._is_proven = True
            self._listener.prove(self)

    def offended(self) -> float:
        return self._listener.offended(self)

    def describe(self, client: str, user: str | None = None) -> None:
        self._agent = client[:_LONGEST_AGENT]
        self._user = user

    # What the listener asks for

    @property
    def info(self) -> ConnectionInfo:
        flow = self._flow
        return ConnectionInfo(
            peer=self.peer,
            protocol=self._server.protocol,
            since_ms=self._since_ms,
            user=self._user,
            client=self._agent,
            has_tls=self.has_tls,
            is_paused=flow.is_paused,
            received_bytes=flow.pace.received,
            sent_bytes=flow.outbox.sent,
            held_bytes=flow.account.held,
        )

    def finish(self) -> None:
        """Calls in flight are answered; bidirectional ones, which have no end of their own, end now."""
        if self.is_finishing:
            return
        self.is_finishing = True
        self.http2.go_away()
        for stream in list(self.http2.streams.values()):
            if isinstance(stream.call, BidiCall):
                stream.call.end_from_outside(Status.UNAVAILABLE, "the broker stops")
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.is_finishing and not self._is_lost and not self._is_closing and not self.http2.streams:
            self._flush_and_close()

    def _flush_and_close(self) -> None:
        self._is_closing = True
        self._flow.outbox.flush()
        self._flow.resume()
        self._transport.close()

    def abort(self) -> None:
        self._is_lost = True
        self._flow.outbox.close()  # calls end when the loss is reported, and may be answered until then
        self._transport.abort()

    def tick(self) -> bool:
        if self._is_lost:
            return False
        if self._flow.outbox.untaken_seconds() >= _UNREAD_SECONDS:
            log.warning("closing the gRPC connection from %s: it does not read", self.peer)
            self.abort()
        elif not self._is_closing:
            in_message = self._tick_calls()
            self._flow.count()
            self._regulate()
            waits_for_us = self.room.is_awaited or self.http2.is_held_back
            return self._flow.is_too_slow(in_frame=not waits_for_us and (in_message or self.http2.held > 0))
        return False

    def _tick_calls(self) -> bool:
        """Whether the rest of a message is to come."""
        in_message = False
        now = self.loop.time()
        for stream in list(self.http2.streams.values()):
            call = stream.call
            if call is None:
                continue
            if call.deadline is not None and call.deadline < now:
                call.end_from_outside(Status.DEADLINE_EXCEEDED, "the deadline has passed")
            elif call.waits_for_client:
                in_message = True
        self.http2.tick()
        self.session.tick()
        return in_message
