"""One HTTP client: its bytes in, responses out, one request after the other. h11 knows HTTP/1.1.

A request is received whole before it is answered: its head may have `_MOST_HEAD` bytes, its body
`_MOST_BODY`. While one is answered, nothing more is read. A response that is an iterator is sent chunk by
chunk, each when the client has taken enough of those before: a list of any length takes little memory.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import cast

import h11

from posthouse.listener_settings import ListenerSettings
from posthouse.protocols.admin.browsers import SECURITY_HEADERS
from posthouse.protocols.admin.lazy_dispatch import Dispatches
from posthouse.protocols.admin.login import PROTOCOL, HttpLogin
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.front_end import Backend
from posthouse.protocols.introduction import RELAYED_BY
from posthouse.protocols.listener import Listener
from posthouse.protocols.noop import noop

log = logging.getLogger(__name__)

_MOST_HEAD = 32 * 1024
_MOST_BODY = 16 * 1024 * 1024
_MOST_BODY_BEFORE_LOGIN = 64 * 1024
_IDLE_SECONDS = 75
"""Between two requests; then the connection is closed."""
_LINGER_SECONDS = 1.0
_EVENTS_AT_ONCE = 100
"""Of one client, before others have their turn: a body may come in very many chunks."""
_MOST_CHUNKS = 20_000
_OF_EVERY_RESPONSE = (
    (b"server", b"posthouse"),
    *((name.encode(), value.encode("latin-1")) for name, value in SECURITY_HEADERS),
)


class AdminConnections:
    """Makes the connections of one listener."""

    def __init__(
        self,
        backend: Backend,
        dispatcher: Dispatches,
        settings: ListenerSettings,
    ) -> None:
        self.backend = backend
        self.dispatcher = dispatcher
        self.settings = settings

    @property
    def answers_once(self) -> bool:
        """Whether a connection that is made now is closed after its first response: the next request on a
        connection to a member may be one for the coordinator."""
        membership = self.backend.membership
        return membership is not None and not membership.coordinates

    def __call__(self, listener: Listener) -> asyncio.BaseProtocol:
        return AdminConnection(self, listener)


class AdminConnection(asyncio.Protocol):
    def __init__(self, made_by: AdminConnections, listener: Listener) -> None:
        self._backend = made_by.backend
        self._dispatcher = made_by.dispatcher
        self._settings = made_by.settings
        self._answers_once = made_by.answers_once
        self._listener = listener
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._chunks = 0
        self._is_yielding = False
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._idle_seconds = 0
        self._is_proven = False
        self._is_finishing = False
        self._is_closed = False
        self._cut: Callable[[], object] = noop
        """Ends a response that has no end of its own."""
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        settings = self._backend.settings
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._identity = PeerIdentity.of(transport, allow_cleartext=settings.allow_cleartext_passwords)
        self._has_tls = transport.get_extra_info("ssl_object") is not None
        self._since_ms = self._backend.broker.now_ms()
        self.peer = self._identity.peer
        self._flow = FlowControl(
            self._loop,
            self._transport,
            self._backend.budget,
            self.peer,
            limit=settings.connection_buffer_bytes,
            is_behind=self._backend.broker.is_behind,
            held=lambda: len(self._body),
            go_on=self._go_on,
            abort=self.abort,
        )
        self._login = HttpLogin(
            self._backend.broker.access,
            self._identity,
            self._settings,
            is_relayed=transport.get_extra_info(RELAYED_BY) is not None,
            proven=self._prove,
            revoked=self.finish,
        )
        if not self._listener.join(self):
            self._is_closed = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._listener.leave(self)
        self._login.close()
        self._flow.close()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()
        self._body.clear()

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(
            peer=self.peer,
            protocol=PROTOCOL,
            since_ms=self._since_ms,
            user=self._login.user,
            has_tls=self._has_tls,
            # While a request is answered the next one is not read: that is no back-pressure.
            is_paused=self._flow.is_paused and self._task is None,
            received_bytes=self._flow.pace.received,
            sent_bytes=self._flow.outbox.sent,
            held_bytes=self._flow.account.held,
        )

    @property
    def _most_body(self) -> int:
        is_known = self._is_proven or not self._backend.settings.must_log_in
        return _MOST_BODY if is_known else _MOST_BODY_BEFORE_LOGIN

    def _prove(self) -> None:
        if not self._is_proven:
            self._is_proven = True
            self._listener.prove(self)

    def data_received(self, data: bytes) -> None:
        if self._is_closed or self._is_finishing:
            return
        self._idle_seconds = 0
        self._flow.pace.received += len(data)
        self._http.receive_data(data)
        self._go_on()

    def eof_received(self) -> bool:
        if self._is_closed:
            return False
        if self._cut is not noop:
            self.finish()
            return True
        self._http.receive_data(b"")
        self._go_on()
        return self._task is not None

    def _go_on(self) -> None:
        """Read events until a request is complete, or more bytes are needed."""
        try:
            events = 0
            while self._task is None and not self._is_closed and not self._flow.throttle.is_on:
                if events == _EVENTS_AT_ONCE:
                    self._loop.call_soon(self._go_on_later)
                    self._is_yielding = True
                    break
                events += 1
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._violated(error.error_status_hint, str(error))
        except Problem as problem:
            self._violated(problem.status, problem.detail)
        if not self._is_closed:
            self._flow.count()
            self._flow.regulate(held_back=self._task is not None or self._is_yielding)

    def _go_on_later(self) -> None:
        self._is_yielding = False
        self._go_on()

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._head = event
            if len(event.target) + sum(len(name) + len(value) for name, value in event.headers) > _MOST_HEAD:
                raise Problem(431, f"the address and the headers may have at most {_MOST_HEAD} bytes")
            if int(dict(event.headers).get(b"content-length", b"0")) > self._most_body:
                raise Problem(413, f"a body may have at most {self._most_body} bytes here")
            if self._http.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))
        elif isinstance(event, h11.Data):
            if len(self._body) + len(event.data) > self._most_body:
                raise Problem(413, f"a body may have at most {self._most_body} bytes here")
            self._chunks += 1
            if self._chunks > _MOST_CHUNKS:
                raise Problem(413, f"a body may have at most {_MOST_CHUNKS} chunks; send larger ones")
            self._body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self._task = self._loop.create_task(self._answer())
            self._task.add_done_callback(self._answered)
        elif isinstance(event, h11.ConnectionClosed):
            self._transport.close()
            self._is_closed = True

    async def _answer(self) -> None:
        head = cast("h11.Request", self._head)
        try:
            request = HttpRequest.parse(head.method, head.target, list(head.headers), bytes(self._body))
        except Problem as problem:
            response = problem.response()
        else:
            response = await self._dispatcher.dispatch(
                request, self._login, self.peer, self._settings.address.host
            )
            if not self._backend.settings.must_log_in:
                self._prove()
        if self._login.has_failed:
            self._flow.throttle.extend(self._listener.offended(self))
        await self._respond(response, is_head=head.method == b"HEAD")

    async def _respond(self, response: Response, *, is_head: bool) -> None:
        body = response.body
        headers = list(_OF_EVERY_RESPONSE)
        if response.content_type:
            headers.append((b"content-type", response.content_type.encode()))
        headers += [(name.encode(), value.encode("latin-1")) for name, value in response.headers]
        if self._answers_once or (self._is_finishing and isinstance(body, bytes)):
            headers.append((b"connection", b"close"))
        if isinstance(body, bytes):
            if response.status != 204:
                headers.append((b"content-length", str(len(body)).encode()))
            self._send(_head(response.status, headers))
            if body and not is_head:
                self._send(h11.Data(data=body))
        else:
            self._send(_head(response.status, headers))
            if not is_head:
                await self._stream(body, is_endless=response.is_endless)
        self._send(h11.EndOfMessage())
        self._flow.outbox.flush()
        await self._writable.wait()

    async def _stream(self, chunks: AsyncIterator[bytes], *, is_endless: bool) -> None:
        if is_endless:
            self._flow.resume()  # to hear that the client is gone
        try:
            while not (is_endless and self._is_finishing):
                following = asyncio.ensure_future(anext(chunks, None))
                if is_endless:
                    self._cut = following.cancel
                chunk = await following
                if chunk is None:
                    break
                if chunk:
                    self._send(h11.Data(data=chunk))
                self._flow.outbox.flush()
                await self._writable.wait()
        except asyncio.CancelledError:
            if not (is_endless and self._is_finishing):
                raise
        finally:
            self._cut = noop
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    def _send(self, event: h11.Event) -> None:
        if not self._is_closed:
            data = self._http.send(event)
            if data:
                self._flow.outbox.send(data)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        self._head = None
        self._body = bytearray()
        self._chunks = 0
        if task.cancelled() or self._is_closed:
            return
        error = task.exception()
        if error is not None:
            log.error("admin: the response to %s broke off", self.peer, exc_info=error)
            self._transport.abort()
        elif self._is_finishing or self._http.states != {h11.SERVER: h11.DONE, h11.CLIENT: h11.DONE}:
            self._close()
        else:
            self._http.start_next_cycle()
            self._go_on()

    def _violated(self, status: int, detail: str) -> None:
        """It sent what is no HTTP, or too much: it is told so if that is still possible, and closed."""
        self._listener.offended(self)
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            problem = Problem(status, detail).response()
            body = cast("bytes", problem.body)
            headers = [
                *_OF_EVERY_RESPONSE,
                (b"content-type", problem.content_type.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            with suppress(h11.LocalProtocolError):  # the answer may have begun
                self._send(_head(status, headers))
                self._send(h11.Data(data=body))
                self._send(h11.EndOfMessage())
        self._close(lingers=True)

    def _close(self, *, lingers: bool = False) -> None:
        """`lingers`: the client may still be sending. A socket that is closed with unread bytes is reset, and
        the client would not hear the answer; so they are read and dropped for a while."""
        self._flow.outbox.flush()
        self._is_closed = True
        self._flow.resume()
        if lingers and self._transport.can_write_eof():
            self._transport.write_eof()
            self._loop.call_later(_LINGER_SECONDS, self._transport.close)
        else:
            self._transport.close()

    def pause_writing(self) -> None:
        self._flow.outbox.pause()
        self._writable.clear()

    def resume_writing(self) -> None:
        self._flow.outbox.resume()
        self._writable.set()

    def finish(self) -> None:
        self._is_finishing = True
        self._cut()
        if self._task is None and not self._is_closed:
            self._close()

    def abort(self) -> None:
        self._is_closed = True
        self._transport.abort()

    def tick(self) -> bool:
        self._flow.count()
        if self._task is None and self._head is None and self._is_proven:
            self._idle_seconds += 1
            if self._idle_seconds > _IDLE_SECONDS:
                self.finish()
        in_request = self._head is not None or bool(self._http.trailing_data[0])
        return self._flow.is_too_slow(in_frame=in_request and self._task is None)


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    """With the words for the status, which tools print."""
    return h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
