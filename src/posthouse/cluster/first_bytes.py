"""Connections to the admin listener of a member: some requests are for this broker, all others are passed on.

Health and metrics are of the broker that was asked. It also tells what it knows of the cluster, because
operators ask for that when there is no coordinator. The first bytes of a connection decide where all of it
goes, so this broker closes a connection after its own answer.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from posthouse.model.address import Address
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.listener import Connection, Listener

_PATHS = (b"/health/", b"/metrics", b"/v1/cluster", b"/v1/brokers")
_OWN = tuple(method + path for method in (b"GET ", b"HEAD ") for path in _PATHS)

Connect = Callable[[Listener], asyncio.BaseProtocol]


class OwnOrForwarded:
    """Makes the connections of one listener."""

    def __init__(self, own: Connect, forwarded: Connect, *, is_readable: bool) -> None:
        """Both make an `asyncio.Protocol` that is a `Connection`. With TLS, only the coordinator can read
        what a client asks for."""
        self.own = own
        self.forwarded = forwarded
        self.is_readable = is_readable

    def __call__(self, listener: Listener) -> asyncio.Protocol:
        return _FirstBytes(self, listener)


class _FirstBytes(asyncio.Protocol):
    """The connection until it is known where it goes."""

    def __init__(self, made_by: OwnOrForwarded, listener: Listener) -> None:
        self._made_by = made_by
        self._listener = listener
        self._received = b""
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str(Address.of_peer(transport.get_extra_info("peername")))
        if not self._listener.join(self):
            self._transport.abort()
        elif not self._made_by.is_readable:
            self._hand_over(self._made_by.forwarded)

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data
        if received.startswith(_OWN):
            self._hand_over(self._made_by.own)
        elif not any(each.startswith(received) for each in _OWN):
            self._hand_over(self._made_by.forwarded)

    def _hand_over(self, connect: Connect) -> None:
        protocol = cast("asyncio.Protocol", connect(self._listener))
        self._listener.replace(self, cast("Connection", protocol))
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._received:
            protocol.data_received(self._received)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(peer=self.peer, protocol="http", since_ms=0)

    def finish(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def tick(self) -> bool:
        """A client that sends too little does not prove itself, and the gate closes its connection."""
        return False
