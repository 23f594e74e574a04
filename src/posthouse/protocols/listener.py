"""A TCP listener for any protocol, with or without TLS: it binds, limits, watches and drains connections."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, cast, runtime_checkable

from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.first_byte import begins_with_tls
from posthouse.protocols.gate import Gate, Visitor
from posthouse.protocols.introduction import Dismissable, Introduction, Origin
from posthouse.protocols.listening import ListeningSockets
from posthouse.protocols.noop import noop
from posthouse.protocols.tls import Certificates, OfferedCertificates
from posthouse.settings import Address

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
_ACCEPTED_AT_ONCE = 2
"""Per iteration of the event loop: existing connections do not wait for a flood of new ones."""
_UNWELCOME_AT_ONCE = 4
_UNWELCOME_REST_SECONDS = 0.002
"""Pause after a refusal, so that clients that reconnect at once do not take the loop's time."""
_SEND_BUFFER = 256 * 1024
"""Send buffer in the kernel for a client that does not read. The system's default is megabytes."""
PARTLY_SENT = 2 * _SEND_BUFFER
"""Bytes of a response that may have been sent, but stay in memory until its last byte is sent."""
_SWEPT_AT_ONCE = 500
_REST_SECONDS = 0.5
_ABORT_SECONDS = 1.0
_NO_TLS = frozenset({"HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})
"""How OpenSSL says that the first bytes of a client are no handshake."""
_OUT_OF_SOMETHING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Connection(Protocol):
    """The interface of connections for their listener."""

    @property
    def peer(self) -> str: ...

    @property
    def info(self) -> ConnectionInfo:
        """For people who look at connections."""

    def finish(self) -> None:
        """Accept no more requests, answer those in flight, then close."""

    def abort(self) -> None:
        """Close immediately."""

    def tick(self) -> bool:
        """Called once a second. Returns whether the client sends a frame too slowly: see `pace`."""


@runtime_checkable
class Namespaced(Protocol):
    """A connection that may also be one of these, if clients choose a namespace."""

    @property
    def namespace(self) -> str | None:
        """None before the client has chosen it, and if another broker serves it."""


ConnectionFactory = Callable[["Listener"], asyncio.BaseProtocol]
"""Creates the connection that a listener has accepted; it must also be a `Connection`."""


class Listener:
    """Owned by the event loop. Connections join when they are made and leave when they are lost."""

    def __init__(
        self,
        name: str,
        factory: ConnectionFactory,
        gate: Gate,
        *,
        may_answer: Callable[[], bool] | None = None,
        passing: Callable[[], ConnectionFactory | None] | None = None,
    ) -> None:
        """While `may_answer` is false, connections are closed, with words if their protocol has them: those
        that would send at once, the others when two sweeps have found it false. None is always true.

        `passing` returns what makes a connection that another broker serves, None while this one does. Such a
        connection is passed on as it is, with its TLS. Others may be passed on later: see `transfer`."""
        self._name = name
        self._factory = factory
        self._gate = gate
        self._may_answer = may_answer
        self._passing = passing
        self._visitors: dict[Connection, Visitor] = {}
        self._arriving: dict[Connection, Visitor] = {}
        self._shaking_hands: dict[asyncio.Task[None], Visitor] = {}
        self._sockets: list[socket.socket] = []
        self._tls: Certificates | OfferedCertificates | None = None
        self._tls_is_optional = False
        self._left = asyncio.Event()
        """A connection was lost."""
        self.address: Address | None = None
        """Where clients connect, while it is open."""
        self._refused = 0
        """Connections refused since the last sweep."""
        self._failed = 0
        """Failed calls of accept, until none fails for a second."""
        self._failed_before = 0
        self._is_mute = False
        """The last sweep has found that no connection may be answered. A process that was stopped for some
        seconds renews its lease before the next one."""

    @property
    def has_tls(self) -> bool:
        """Whether all clients use it."""
        return self._tls is not None and not self._tls_is_optional

    async def start(
        self,
        address: Address,
        tls: Certificates | OfferedCertificates | None = None,
        *,
        setting: str = "",
        tls_is_optional: bool = False,
    ) -> Address:
        """Bind; returns the actual address, with the port that the system chose for port 0. `setting` is the
        one that has the address."""
        listening = await ListeningSockets.bind(address, setting)
        return self.start_on(listening, tls, tls_is_optional=tls_is_optional)

    def start_on(
        self,
        listening: ListeningSockets,
        tls: Certificates | OfferedCertificates | None = None,
        *,
        tls_is_optional: bool = False,
    ) -> Address:
        """Accept on sockets that are bound already. They belong to the listener from now on.

        If TLS is optional, a client's first byte decides. Its protocol must be one in which clients speak
        first."""
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._tls_is_optional = tls_is_optional
        self._sockets = listening.sockets
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)
        self.address = listening.address
        return self.address

    def _accept(self, listening: socket.socket) -> None:
        welcomed = unwelcome = 0
        while welcomed < _ACCEPTED_AT_ONCE and unwelcome < _UNWELCOME_AT_ONCE:
            try:
                accepted, where = listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                break
            except OSError as error:
                self._cannot_accept(listening, error)
                return
            if self._welcome(accepted, Address(where[0], where[1])):
                welcomed += 1
            else:
                unwelcome += 1
        if unwelcome:
            self._rest(listening, _UNWELCOME_REST_SECONDS)

    def _cannot_accept(self, listening: socket.socket, error: OSError) -> None:
        """accept failed: the system is out of a resource, or a waiting connection failed.

        Pause, because the event loop would call accept again at once.
        """
        if error.errno in _OUT_OF_SOMETHING:
            self._gate.relieve()
        if not self._failed:  # one line for the first; further ones are counted
            log.error("listener %s: cannot accept connections, retrying: %s", self._name, error.strerror)
        self._failed += 1
        self._rest(listening, _REST_SECONDS)

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        """Stop accepting for a moment; new connections wait in the system's queue."""
        self._loop.remove_reader(listening)
        self._loop.call_later(seconds, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def adopt(self, accepted: socket.socket, origin: Origin) -> None:
        """Serve a connection that another broker has passed on."""
        if self.address is None:
            accepted.close()
            return
        self._welcome(accepted, origin.client, origin)

    def _welcome(self, accepted: socket.socket, peer: Address, origin: Origin | None = None) -> bool:
        """Accept a connection; returns whether there was no delay."""
        is_relayed = origin is not None and origin.relayed_by is not None and not origin.is_transferred
        is_forwarded = origin is not None and not is_relayed
        visitor = Visitor(
            peer.host, str(peer), accepted.close, is_exempt=is_relayed, is_forwarded=is_forwarded
        )
        if not self._enter(visitor):
            accepted.close()
            return False
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        wait = self._gate.wait(visitor)
        task = self._loop.create_task(self._connect(accepted, visitor, wait, origin))
        visitor.close = partial(_turn_away, visitor, task)
        self._shaking_hands[task] = visitor
        task.add_done_callback(self._connected)
        return wait == 0

    async def _connect(
        self, accepted: socket.socket, visitor: Visitor, wait: float, origin: Origin | None
    ) -> None:
        arriving: list[Connection] = []
        tls: Certificates | OfferedCertificates | None = None
        passed_on: ConnectionFactory | None = None

        def made() -> asyncio.BaseProtocol:
            protocol = (passed_on or self._factory)(self)
            connection = cast("Connection", protocol)
            self._arriving[connection] = visitor
            arriving.append(connection)
            if passed_on is not None or (self._may_answer is None and origin is None):
                return protocol
            return Introduction(protocol, self._may_answer or _always, origin)

        try:
            if wait:
                await asyncio.sleep(wait)
            if self._passing is not None and origin is None:
                passed_on = self._passing()
            visitor.is_passed_on = passed_on is not None
            if passed_on is None and (origin is None or origin.relayed_by is None):
                tls = self._tls
                if tls is not None and self._tls_is_optional and not await begins_with_tls(accepted):
                    tls = None
            await self._loop.connect_accepted_socket(
                made,
                accepted,
                ssl=tls.context if tls else None,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            )
        except BaseException:
            if tls is None and arriving:
                # The transport owns the socket now, so it must not be closed here: `join` refuses the
                # connection. Some event loops do not call it, so the visitor is removed afterwards.
                visitor.is_unwanted = True
                for each in arriving:
                    self._loop.call_soon(self._arriving.pop, each, None)
                raise
            accepted.close()
            for each in arriving:
                self._arriving.pop(each, None)
            raise

    def _connected(self, task: "asyncio.Task[None]") -> None:
        visitor = self._shaking_hands.pop(task)
        if not visitor.has_joined:
            self._gate.leave(visitor)
            # A task that never started keeps the socket alive through its exception, and the visitor keeps
            # the task.
            visitor.close = noop
        if not task.cancelled() and (error := task.exception()) is not None:
            reason = str(error) or repr(error)
            if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
                reason += "; the client does not seem to use TLS, which this listener needs"
            if not isinstance(error, ConnectionError):  # probes disconnect like that
                self._gate.offended(visitor)
            elif not str(error):
                reason = "the client closed it before the TLS handshake was done"
            log.warning("listener %s: connection from %s failed: %s", self._name, visitor.peer, reason)

    def _enter(self, visitor: Visitor) -> bool:
        reason = self._gate.enter(visitor)
        if reason is None:
            return True
        if not self._refused:  # one line for the first; further ones are counted
            log.warning("listener %s: refusing the connection from %s: %s", self._name, visitor.peer, reason)
        self._refused += 1
        return False

    def join(self, connection: Connection) -> bool:
        """Register a connection; returns whether there is room. A connection without room must close."""
        visitor = self._arriving.pop(connection, None)
        if visitor is None:
            host = connection.peer.rpartition(":")[0]
            visitor = Visitor(host, connection.peer, connection.abort)
            if not self._enter(visitor):
                return False
        if visitor.is_unwanted:
            return False
        visitor.has_joined = True
        visitor.close = connection.abort
        self._visitors[connection] = visitor
        return True

    def replace(self, connection: Connection, successor: Connection) -> None:
        """Another object serves the connection from now on. It joins next."""
        visitor = self._visitors.pop(connection, None)
        if visitor is not None:
            self._arriving[successor] = visitor

    def pass_on(self, connection: Connection) -> None:
        """Another broker is to serve the connection."""
        visitor = self._visitors.get(connection)
        if visitor is not None:
            visitor.is_passed_on = True

    def prove(self, connection: Connection) -> None:
        """The connection has logged in, or sent a request if login is not required."""
        visitor = self._visitors.get(connection)
        if visitor is not None:
            self._gate.prove(visitor)

    def offended(self, connection: Connection) -> float:
        """Count an offence; returns the delay of the connection, and of new ones from its address."""
        visitor = self._visitors.get(connection)
        return 0.0 if visitor is None else self._gate.offended(visitor)

    def leave(self, connection: Connection) -> None:
        visitor = self._visitors.pop(connection, None)
        if visitor is not None:
            self._gate.leave(visitor)
        self._left.set()

    def sweep(self) -> None:
        """Once a second. Thousands of connections are spread over several iterations of the loop."""
        if self._refused > 1:
            log.warning("listener %s: refused %d connections within a second", self._name, self._refused)
        self._refused = 0
        if self._failed and self._failed == self._failed_before:
            log.info("listener %s: accepting connections again after %d attempts", self._name, self._failed)
            self._failed = 0
        self._failed_before = self._failed
        was_mute, self._is_mute = self._is_mute, self._may_answer is not None and not self._may_answer()
        if not self._is_mute:
            self._sweep_rest(list(self._visitors))
        elif was_mute and self._visitors:
            log.warning(
                "listener %s: closing all %d connections: the broker may not answer without its lease",
                *(self._name, len(self._visitors)),
            )
            self._dismiss([each for each, visitor in self._visitors.items() if not visitor.is_passed_on])

    def _sweep_rest(self, left: list[Connection]) -> None:
        for connection in left[-_SWEPT_AT_ONCE:]:
            if connection in self._visitors and connection.tick():
                log.warning(
                    "listener %s: closing the connection from %s: too slow", self._name, connection.peer
                )
                self.offended(connection)
                connection.abort()
        del left[-_SWEPT_AT_ONCE:]
        if left:
            self._loop.call_soon(self._sweep_rest, left)

    def __len__(self) -> int:
        return len(self._visitors)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._visitors)

    def clients(self) -> Iterator[Connection]:
        """Connections of clients that this broker serves: neither those that it passes on to another broker,
        nor those over which another one relays requests. So in a cluster each client's is at one broker."""
        for connection, visitor in self._visitors.items():
            if not visitor.is_passed_on and not visitor.is_exempt:
                yield connection

    def close(self) -> None:
        """Accept no more connections, and let every connection finish its requests."""
        self._close_sockets()
        self._give_up_handshakes()
        for connection in list(self._visitors):
            connection.finish()

    async def hand_over(self, seconds: float) -> None:
        """Another broker serves the clients from now on: let the connections that are not passed on finish
        their requests, and abort them after `seconds`. Others are accepted, and passed on."""
        self._give_up_handshakes()
        await self._hand_over([each for each, its in self._visitors.items() if not its.is_passed_on], seconds)

    async def hand_over_scope(self, scope: Scope, seconds: float) -> None:
        """The same for the connections in namespaces of the scope."""
        await self._hand_over([each for each in self._visitors if _is_in(each, scope)], seconds)

    async def _hand_over(self, served: Sequence[Connection], seconds: float) -> None:
        for connection in served:
            connection.finish()
        await self._end(lambda: [each for each in served if each in self._visitors], seconds)

    def abort(self) -> None:
        """Accept no more connections, and close every connection immediately."""
        self._close_sockets()
        self._give_up_handshakes()
        self._dismiss(list(self._visitors))

    def _dismiss(self, connections: Iterable[Connection]) -> None:
        for connection in connections:
            if isinstance(connection, Dismissable):
                connection.dismiss()
            else:
                connection.abort()

    def _give_up_handshakes(self) -> None:
        """Of connections that have not joined. If the task of one that has joined is cancelled before its
        next step, uvloop closes the transport and does not tell the connection, which would stay for ever."""
        for task, visitor in list(self._shaking_hands.items()):
            if not visitor.has_joined:
                _turn_away(visitor, task)

    def _close_sockets(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        self.address = None

    async def drained(self, seconds: float) -> None:
        """Wait until the last connection is closed; after `seconds` abort the rest."""
        await self._end(lambda: list(self._visitors), seconds)

    async def _end(self, left: Callable[[], list[Connection]], seconds: float) -> None:
        if await self._none(left, seconds):
            return
        late = left()
        log.warning(
            "listener %s: aborting %d connections, not finished in %s s", self._name, len(late), seconds
        )
        for connection in late:
            connection.abort()
        await self._none(left, _ABORT_SECONDS)

    async def _none(self, left: Callable[[], list[Connection]], seconds: float) -> bool:
        """Whether all of them are lost in time."""
        try:
            async with asyncio.timeout(seconds):
                while left():
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True


def _turn_away(visitor: Visitor, task: "asyncio.Task[None]") -> None:
    """Close a visitor before its connection exists. If the task is done already, `join` refuses the
    connection."""
    visitor.is_unwanted = True
    task.cancel()


def _is_in(connection: Connection, scope: Scope) -> bool:
    if not isinstance(connection, Namespaced) or connection.namespace is None:
        return False
    return scope_of_namespace(connection.namespace) == scope


def _always() -> bool:
    return True
