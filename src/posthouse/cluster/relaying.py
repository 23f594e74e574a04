"""Requests of clients that the holder of a scope has to answer, sent to it by another broker.

Each client connection that needs it has one companion connection for each scope. A frame is a length of 4
bytes and that many bytes, in both directions, and responses come in the order of the requests. Both begin
with fields that are checked against each other: a response carries the correlation id of its request.

A response of nothing but that id is a refusal: the other broker does not hold the scope any more. It has not
begun that request and none that follows, so they are sent to the next holder.

Memory is bounded by the client's connection: it counts requests until they are answered, and responses, also
incomplete ones, until they are sent. While the client does not take them it pauses the reading of more. At
most `MOST_IN_FLIGHT` requests of a connection are with the other broker.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import cast
from uuid import UUID

from posthouse.cluster.attaching import attach
from posthouse.cluster.dialling import Dialler, NoHolder
from posthouse.cluster.keepalive import keep_alive
from posthouse.cluster.preamble import RelayPassage
from posthouse.model.address import Address
from posthouse.model.errors import Unavailable
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.budget import SMALL
from posthouse.protocols.peer_traffic import PeerTraffic

log = logging.getLogger(__name__)

MOST_IN_FLIGHT = 64
_LENGTH = Struct(">I")
_CORRELATION_ID = slice(4, 8)
"""Of a request, behind the key and the version of its API. A response begins with it."""
_REFUSAL_BYTES = 4
_DISCARD = Struct("ii").pack(1, 0)
"""Of SO_LINGER: closing resets the connection."""
_REFUSED_SECONDS = 0.05
_UNREAD_SECONDS = 30
"""How long the other broker may take none of the bytes that wait for it."""


class ScopeRelay:
    """Implements the port in `protocols/relay`."""

    def __init__(self, own: UUID, dialler: Dialler, traffic: PeerTraffic) -> None:
        """`own` is the incarnation of this broker."""
        self._own = own
        self._dialler = dialler
        self._traffic = traffic
        self._open: set[CompanionConnection] = set()

    def open(
        self,
        listener: str,
        client: Address,
        user: ProvenUser | None,
        grown: Callable[[], None],
        scope: Scope,
    ) -> "CompanionConnection":
        passage = RelayPassage(broker=self._own, listener=listener, client=client, user=user, scope=scope)
        made = CompanionConnection(
            passage, self._dialler, self._traffic, grown=grown, closed=self._open.discard
        )
        self._open.add(made)
        return made

    async def connect(
        self, listener: str, client: Address, user: ProvenUser | None, scope: Scope
    ) -> socket.socket:
        passage = RelayPassage(broker=self._own, listener=listener, client=client, user=user, scope=scope)
        self._traffic.relayed_requests += 1
        try:
            dialled, _ = await self._dialler.dial(passage)
        except (NoHolder, OSError, ValueError) as error:
            self._traffic.relay_failures += 1
            raise Unavailable(str(error)) from None
        return dialled

    def sweep(self) -> None:
        """Once a second: leave brokers whose scope another one holds now."""
        for each in list(self._open):
            each.leave_if_succeeded()


class _Request:
    __slots__ = ("frame", "response")

    def __init__(self, frame: bytes | memoryview, response: "asyncio.Future[bytes]") -> None:
        self.frame = frame
        self.response = response


class CompanionConnection:
    """Dials when there is something to send, and again when the other broker was lost."""

    def __init__(
        self,
        passage: RelayPassage,
        dialler: Dialler,
        traffic: PeerTraffic,
        *,
        grown: Callable[[], None],
        closed: Callable[["CompanionConnection"], None],
    ) -> None:
        """See `Relay.open` for `grown`."""
        self._passage = passage
        self._dialler = dialler
        self._traffic = traffic
        self._grown = grown
        self._closed = closed
        self._is_paused = False
        self._is_closed = False
        self._was_refused = False
        self._waiting: deque[_Request] = deque()
        self._sent: deque[_Request] = deque()
        self._upstream: _Upstream | None = None
        self._dialling: asyncio.Task[None] | None = None

    def send(self, request: bytes | memoryview) -> asyncio.Future[bytes]:
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            response.set_exception(Unavailable("the connection is closed"))
            return response
        self._traffic.relayed_requests += 1
        self._traffic.relayed_unanswered += 1
        self._waiting.append(_Request(request, response))
        self._go_on()
        return response

    def _go_on(self) -> None:
        if self._upstream is None:
            if self._dialling is None:
                self._dialling = asyncio.get_running_loop().create_task(self._dial())
            return
        while self._waiting and len(self._sent) < MOST_IN_FLIGHT:
            request = self._waiting.popleft()
            self._sent.append(request)
            self._upstream.send(request.frame)

    async def _dial(self) -> None:
        try:
            if self._was_refused:
                # The other broker may be loading the scope, or giving it up. The next holder is not known.
                self._was_refused = False
                await asyncio.sleep(_REFUSED_SECONDS)
            dialled, holder = await self._dialler.dial(self._passage)
            await attach(dialled, lambda: _Upstream(self, holder))
        except (NoHolder, OSError) as error:
            self._fail(self._waiting, str(error))
        except Exception as error:
            log.exception("relaying requests of the client %s failed", self._passage.client)
            self._fail(self._waiting, f"requests cannot be relayed: {error}")
        finally:
            self._dialling = None
        if self._waiting:
            self._go_on()

    @property
    def held(self) -> int:
        return 0 if self._upstream is None else self._upstream.held

    def pause_reading(self) -> None:
        self._is_paused = True
        self._regulate()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._regulate()

    def _regulate(self) -> None:
        if self._upstream is not None:
            self._upstream.regulate(pause=self._is_paused)

    def connected(self, upstream: "_Upstream") -> None:
        self._upstream = upstream
        if self._is_closed:
            self._hang_up()
        elif self._is_paused:  # some event loops begin to read after `connection_made`
            asyncio.get_running_loop().call_soon(self._regulate)

    def held_more(self, upstream: "_Upstream") -> None:
        if upstream is self._upstream and upstream.held > SMALL:
            self._grown()

    def received(self, response: bytes) -> None:
        if not self._sent or self._sent[0].frame[_CORRELATION_ID] != response[:4]:
            log.error("closing a connection to another broker: its response belongs to no request")
            self._hang_up()
            return
        if len(response) == _REFUSAL_BYTES:
            self._refused()
            return
        request = self._sent.popleft()
        self._traffic.relayed_unanswered -= 1
        if not request.response.done():
            request.response.set_result(response)
        self._go_on()

    def _refused(self) -> None:
        """What was sent and is not answered goes to the next holder, in the same order."""
        upstream, self._upstream = self._upstream, None
        self._was_refused = True
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        if upstream is not None:
            upstream.abort()
        self._go_on()

    def lost(self, upstream: "_Upstream") -> None:
        """What was sent may have been done, so it is not sent to the next holder."""
        if upstream is not self._upstream:
            return
        self._upstream = None
        for requests in (self._sent, self._waiting):
            self._fail(requests, "the other broker was lost before it had answered, or refused the user")

    def leave_if_succeeded(self) -> None:
        upstream = self._upstream
        if upstream is not None and self._dialler.is_succeeded(upstream.holder, self._passage.scope):
            self._hang_up()

    def _hang_up(self) -> None:
        if self._upstream is not None:
            self._upstream.abort()
            self.lost(self._upstream)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._closed(self)
        if self._dialling is not None:
            self._dialling.cancel()
        self._hang_up()
        self._fail(self._waiting, "the connection is closed")

    def _fail(self, requests: "deque[_Request]", reason: str) -> None:
        self._traffic.relayed_unanswered -= len(requests)
        self._traffic.relay_failures += len(requests)
        while requests:
            response = requests.popleft().response
            if not response.done():
                response.set_exception(Unavailable(reason))


class _Upstream(asyncio.Protocol):
    """One connection to one broker."""

    def __init__(self, companion: CompanionConnection, holder: UUID) -> None:
        self._companion = companion
        self.holder = holder
        """The incarnation of the broker that was dialled."""
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        keep_alive(transport.get_extra_info("socket"), unread_seconds=_UNREAD_SECONDS)
        self._companion.connected(self)

    @property
    def held(self) -> int:
        return len(self._received)

    def regulate(self, *, pause: bool) -> None:
        if self.transport.is_closing():
            return
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def send(self, frame: bytes | memoryview) -> None:
        self.transport.writelines((_LENGTH.pack(len(frame)), frame))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start = 0
        while len(received) - start >= _LENGTH.size and not self.transport.is_closing():
            (length,) = _LENGTH.unpack_from(received, start)
            end = start + _LENGTH.size + length
            if len(received) < end:
                break
            response = bytes(received[start + _LENGTH.size : end])
            start = end
            self._companion.received(response)
        del received[:start]
        self._companion.held_more(self)

    def abort(self) -> None:
        """The kernel discards what it has not sent: the client may send the same again by another way, and
        the other broker must not get the first one afterwards."""
        own: socket.socket = self.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        self.transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._companion.lost(self)
