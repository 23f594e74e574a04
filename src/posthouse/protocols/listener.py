"""A TCP listener for any protocol: it binds, counts, limits and drains connections."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from posthouse.model.errors import InvalidConfig
from posthouse.settings import Address

log = logging.getLogger(__name__)

BACKLOG = 1024

_BIND_ERRORS = {
    errno.EADDRINUSE: "port {port} of {host} is in use; stop the program that has it or choose another port",
    errno.EACCES: "port {port} of {host} needs more rights; choose one above 1023",
    errno.EADDRNOTAVAIL: "this machine has no address {host}; choose one that it has, such as 127.0.0.1",
}


class Connection(Protocol):
    """What a listener asks of the connections that it made."""

    @property
    def peer(self) -> str: ...

    def finish(self) -> None:
        """Take no more requests, answer those in flight, then close."""

    def abort(self) -> None:
        """Close now."""


class Listener:
    """Owned by the event loop. Connections join when they are made and leave when they are lost."""

    def __init__(
        self, name: str, factory: Callable[["Listener"], asyncio.BaseProtocol], *, max_connections: int
    ) -> None:
        self._name = name
        self._factory = factory
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._emptied = asyncio.Event()

    async def start(self, address: Address) -> Address:
        """Bind; returns the address that clients can really use, where port 0 was given."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: self._factory(self), address.host, address.port, backlog=BACKLOG
            )
        except OSError as error:
            raise InvalidConfig(_bind_error(address, error)) from None
        bound = self._server.sockets[0].getsockname()
        return Address(address.host, bound[1])

    def join(self, connection: Connection) -> bool:
        """Whether there is room. A connection that gets none must close."""
        if len(self._connections) >= self._max_connections:
            log.warning(
                "refusing the %s connection from %s: all %d are taken",
                self._name,
                connection.peer,
                self._max_connections,
            )
            return False
        self._connections.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    def __len__(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        """Accept nobody more, and let every connection finish what it is doing."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.finish()

    async def drained(self, seconds: float) -> None:
        """Wait until the last connection left; after `seconds` they are made to."""
        if await self._wait_until_empty(seconds):
            return
        log.warning("%d %s connections did not finish in %s s", len(self), self._name, seconds)
        for connection in list(self._connections):
            connection.abort()
        await self._wait_until_empty(1.0)

    async def _wait_until_empty(self, seconds: float) -> bool:
        if not self._connections:
            return True
        self._emptied.clear()
        try:
            await asyncio.wait_for(self._emptied.wait(), seconds)
        except TimeoutError:
            return False
        return True


def _bind_error(address: Address, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"there is no host {address.host!r} to listen on"
    sentence = _BIND_ERRORS.get(error.errno or 0, "cannot listen on {host}:{port}: {error}")
    return sentence.format(host=address.host, port=address.port, error=error.strerror or error)
