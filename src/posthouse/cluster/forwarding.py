"""A client's connection to this broker, whose bytes go to the holder of a scope and back.

Connections of HTTP go to the coordinator from their first byte on, as they are. Those of AMQP are transferred
when this broker has spoken with the client, and has dialled the holder: see `transferring`.

Neither direction buffers more than a transport's high watermark: a side that does not take its bytes stops
the reading from the other. Each side may close its half of the connection before the other one. No connection
stays because its client does nothing: not after the holder has ended, and not while the client reads nothing.
"""

import asyncio
import logging
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from posthouse.cluster.attaching import attach
from posthouse.cluster.dialling import Dialler, NoHolder
from posthouse.cluster.keepalive import keep_alive
from posthouse.cluster.preamble import Passage
from posthouse.model.address import UNKNOWN, Address
from posthouse.model.scopes import COORDINATOR, Scope
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.listener import Listener
from posthouse.protocols.noop import noop
from posthouse.protocols.transfer import TransferredClient

log = logging.getLogger(__name__)

_HIGH_WATERMARK = 256 * 1024
_LINGER_SECONDS = 5
"""How long a client may take for its last bytes when the other side has closed."""
_UNREAD_SECONDS = 300
"""How long a side may take nothing of what waits for it: some consumers do not read while they process what
they have, and a holder does not read from publishers that are blocked."""
_HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class Forwarding:
    """Makes the connections of one listener of a member."""

    def __init__(self, name: str, dialler: Dialler) -> None:
        """`name` is the name of the listener."""
        self.name = name
        self.dialler = dialler

    def __call__(self, listener: Listener) -> asyncio.Protocol:
        return ForwardedConnection(self.name, self.dialler, listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class DialledHolder:
    """The holder of a scope, reached for a client with which this broker has spoken."""

    socket: socket.socket
    incarnation: UUID
    scope: Scope
    client: TransferredClient


class ForwardedConnection(asyncio.Protocol):
    """The side of the client."""

    def __init__(
        self, name: str, dialler: Dialler, listener: Listener, dialled: DialledHolder | None = None
    ) -> None:
        """`name` is the name of the listener. Without `dialled` the coordinator has yet to be reached."""
        self._name = name
        self._dialler = dialler
        self._listener = listener
        self._scope = COORDINATOR
        self._client = UNKNOWN
        self._early = bytearray()
        """What the client has sent before the holder was reached: one read, and what this broker has read."""
        self._farewell = b""
        """What a client with which only this broker has spoken is told if the holder is lost."""
        self._left: Callable[[], None] = noop
        if dialled is not None:
            self._scope = dialled.scope
            self._client = dialled.client.address
            self._early += dialled.client.received
            self._farewell = dialled.client.farewell
            self._left = dialled.client.left
        self._dialled = dialled
        """Until the event loop has the connection to it."""
        self._task: asyncio.Task[None] | None = None
        self._upstream: _Upstream | None = None
        self._has_ended = False
        """The client has sent its last byte."""
        self._is_congested = False
        """The client does not take what the holder sends."""
        self._unread_bytes = 0
        self._unread_seconds = 0
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self.transport = cast("asyncio.Transport", transport)
        if self._dialled is None:
            self._client = Address.of_peer(transport.get_extra_info("peername"))
        self.peer = str(self._client)
        self.transport.set_write_buffer_limits(high=_HIGH_WATERMARK)
        keep_alive(transport.get_extra_info("socket"), unread_seconds=_UNREAD_SECONDS)
        if not self._listener.join(self) or self._client is UNKNOWN:
            self.transport.abort()
            return
        if self._early:
            self.transport.pause_reading()
        self._task = self._loop.create_task(self._forward())

    async def _forward(self) -> None:
        dialled, self._dialled = self._dialled, None
        try:
            if dialled is not None:
                upstream = await self._connected(dialled.socket, dialled.incarnation)
            else:
                passage = Passage(listener=self._name, client=self._client)
                upstream = await self._connected(*await self._dialler.dial(passage))
        except (NoHolder, OSError) as error:
            log.warning("closing the connection from %s: %s", self.peer, error)
            self._tell_unanswered()
            self.leave()
            return
        finally:
            self._task = None
        if self.transport.is_closing():
            upstream.transport.abort()
        elif upstream.transport.is_closing():  # it was lost in the same turn
            self._tell_unanswered()
            self.leave()
        else:
            self._join(upstream)

    async def _connected(self, dialled: socket.socket, holder: UUID) -> "_Upstream":
        return await attach(dialled, lambda: _Upstream(self, holder))

    def _join(self, upstream: "_Upstream") -> None:
        self._upstream = upstream
        self._listener.prove(self)
        if self._early:
            upstream.transport.write(bytes(self._early))
            self._early.clear()
        if self._has_ended:
            upstream.transport.write_eof()
        if not upstream.is_congested:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._upstream is not None:
            self._upstream.transport.write(data)
        else:
            self._early += data
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._upstream is not None:
            self._upstream.end()
        if not self.transport.can_write_eof():
            return False  # TLS has no half of a connection
        return self._upstream is not None or self._task is not None

    def pause_writing(self) -> None:
        self._is_congested = True
        if self._upstream is not None and not self._upstream.transport.is_closing():
            self._upstream.transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_congested = False
        if self._upstream is not None and not self._upstream.transport.is_closing():
            self._upstream.transport.resume_reading()

    def receive(self, data: bytes) -> None:
        """What the holder has sent. It may come when the client is gone and the connection to the holder was
        just made."""
        self._farewell = b""
        if not self.transport.is_closing():
            self.transport.write(data)

    def upstream_ended(self) -> None:
        """The holder has sent its last byte."""
        self._tell_unanswered()
        if self._has_ended or not self.transport.can_write_eof():  # TLS has no half of a connection
            self.leave()
        elif not self.transport.is_closing():
            self.transport.write_eof()
            self._loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def upstream_lost(self, upstream: "_Upstream") -> None:
        if upstream is self._upstream:
            self._tell_unanswered()
            self.leave()

    def _tell_unanswered(self) -> None:
        """The holder is lost. A client to which it has sent nothing is told so."""
        farewell, self._farewell = self._farewell, b""
        if farewell and not self.transport.is_closing():
            self.transport.write(farewell)

    def leave(self) -> None:
        """Close when the client has taken what was sent to it."""
        if not self.transport.is_closing():
            self.transport.close()
            self._loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)
        self._early.clear()
        self._left()
        if self._task is not None:
            self._task.cancel()
        if self._dialled is not None:  # the task has not begun
            self._dialled.socket.close()
        if self._upstream is not None:
            self._upstream.transport.abort() if error else self._upstream.transport.close()

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(peer=self.peer, protocol=self._name, since_ms=0)

    def finish(self) -> None:
        self.leave()

    def abort(self) -> None:
        self.transport.abort()

    def tick(self) -> bool:
        """Whether the client reads too slowly."""
        upstream = self._upstream
        if upstream is not None and self._dialler.is_succeeded(upstream.holder, self._scope):
            # Its client connects again, and reaches the new holder.
            if self._farewell:
                self._tell_unanswered()
                self.leave()
            else:
                self.abort()
            return False
        return self._reads_too_slowly()

    def _reads_too_slowly(self) -> bool:
        """While the client is congested nothing is written, so it has taken nothing if the number of waiting
        bytes stays."""
        waiting = self.transport.get_write_buffer_size() if self._is_congested else 0
        is_unread = waiting > 0 and waiting == self._unread_bytes
        self._unread_seconds = self._unread_seconds + 1 if is_unread else 0
        self._unread_bytes = waiting
        if self._unread_seconds < _LINGER_SECONDS:
            return False
        is_connected = self._upstream is not None and not self._upstream.has_hung_up
        return not is_connected or self._unread_seconds >= _UNREAD_SECONDS


class _Upstream(asyncio.Protocol):
    """The side of the holder."""

    def __init__(self, client: ForwardedConnection, holder: UUID) -> None:
        self._client = client
        self.holder = holder
        """The incarnation of the broker that was dialled."""
        self._has_ended = False
        self.is_congested = False
        """The holder does not take what the client sends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATERMARK)
        keep_alive(transport.get_extra_info("socket"), unread_seconds=_UNREAD_SECONDS)

    @property
    def has_hung_up(self) -> bool:
        """Whether the holder has closed. While reading is paused, the event loop does not hear of it."""
        if self.transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), _HUNG_UP)
        return bool(poll.poll(0))

    def data_received(self, data: bytes) -> None:
        self._client.receive(data)

    def eof_received(self) -> bool:
        self._has_ended = True
        self._client.upstream_ended()
        return True

    def end(self) -> None:
        """The client has sent its last byte."""
        if self._has_ended:
            self._client.leave()
        elif not self.transport.is_closing():
            self.transport.write_eof()

    def pause_writing(self) -> None:
        self.is_congested = True
        if not self._client.transport.is_closing():
            self._client.transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_congested = False
        if not self._client.transport.is_closing():
            self._client.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.upstream_lost(self)
