"""A listener that gives up a connection at any moment of its hand-over closes the descriptor once."""

import asyncio
import gc
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from posthouse.model.address import Address
from posthouse.model.clock import SystemClock
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.gate import Gate
from posthouse.protocols.introduction import Origin
from posthouse.protocols.listener import Listener
from posthouse.protocols.tls import Certificates
from posthouse.settings import ClientCertificates
from tests.certificates import Authority

SECONDS = 60


class Joining(asyncio.Protocol):
    peer = "a client"

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(peer=self.peer, protocol="test", since_ms=0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's with TLS is no subclass
        if not self._listener.join(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)

    def finish(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def tick(self) -> bool:
        return False


class LeavesAtOnce(Joining):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.abort()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = socket.create_connection(listening.getsockname())
        here, _ = listening.accept()
    there.setblocking(False)
    return here, there


def _identity(each: socket.socket) -> tuple[int, int]:
    found = os.fstat(each.fileno())
    return found.st_dev, found.st_ino


async def _given_up(
    iterations: int, factory: Callable[[Listener], Joining], tls: Certificates | None, authority: Authority
) -> None:
    """After some turns of the event loop; the last ones find a TLS handshake that is done."""
    loop, gate = asyncio.get_running_loop(), Gate(SystemClock(), total=10)
    listener = Listener("test", factory, gate)
    await listener.start(Address("127.0.0.1", 0), tls)
    here, there = _connected()
    client: asyncio.Task[Any] | None = None
    if tls is not None:
        context = ssl.create_default_context(cafile=authority.file)
        connecting = asyncio.open_connection(sock=there.dup(), ssl=context, server_hostname="127.0.0.1")
        client = asyncio.create_task(connecting)
    listener.adopt(here, Origin(client=Address("127.0.0.1", 1)))
    del here
    for _ in range(iterations):
        await asyncio.sleep(0)
    listener.abort()
    others: list[tuple[socket.socket, tuple[int, int]]] = []  # some of them get the descriptor
    for _ in range(10):
        await asyncio.sleep(0)
        others += [(each, _identity(each)) for each in _connected()]
    if client is not None:
        [ended] = await asyncio.wait_for(asyncio.gather(client, return_exceptions=True), SECONDS)
        if isinstance(ended, tuple):
            ended[1].transport.abort()
    gc.collect()
    async with asyncio.timeout(SECONDS):
        while await loop.sock_recv(there, 1000):
            pass  # what TLS says at the end
        while len(gate):
            await asyncio.sleep(0)
    assert len(listener) == 0
    for each, identity in others:
        assert _identity(each) == identity, "it was closed in the name of the client"
        each.close()
    there.close()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # a task that never begun has it
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("factory", [Joining, LeavesAtOnce])
def test_no_descriptor_is_closed_twice(
    run: Callable[[Coroutine[Any, Any, None]], None],
    has_tls: bool,
    factory: Callable[[Listener], Joining],
    authority: Authority,
) -> None:
    identity = authority.issue()
    tls = Certificates(identity.certificate, identity.key, ClientCertificates.OFF, None) if has_tls else None
    for iterations in range(20 if has_tls else 6):
        run(_given_up(iterations, factory, tls, authority))
