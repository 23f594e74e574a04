"""TLS and plaintext on one port, for any protocol."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import uvloop

from posthouse.model.clock import ManualClock, SystemClock
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.first_byte import begins_with_tls
from posthouse.protocols.gate import SECONDS_TO_PROVE, Gate
from posthouse.protocols.listener import Listener
from posthouse.protocols.tls import Certificates
from posthouse.settings import Address, ClientCertificates
from tests.certificates import Authority

DEADLINE = 30


class Echo(asyncio.Protocol):
    """Says whether it has TLS, and the protocol of ALPN, then what the client says."""

    peer = "127.0.0.1:1"

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(peer=self.peer, protocol="echo", since_ms=0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.join(self):
            self._transport.abort()
        tls = transport.get_extra_info("ssl_object")
        self._transport.write(b"plain\n" if tls is None else b"%a\n" % tls.selected_alpn_protocol())

    def data_received(self, data: bytes) -> None:
        self._listener.prove(self)
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)

    def finish(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def tick(self) -> bool:
        return False


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def listening(
    certificates: Certificates | None, gate: Gate | None = None
) -> AsyncIterator[tuple[Listener, int]]:
    gate = Gate(SystemClock(), total=10) if gate is None else gate  # an empty one is false
    listener = Listener("echo", Echo, gate)
    offered = None if certificates is None else certificates.offering("h2")
    address = await listener.start(Address("127.0.0.1", 0), offered, tls_is_optional=True)
    try:
        yield listener, address.port
    finally:
        listener.abort()
        await listener.drained(10)


def certificates_of(authority: Authority) -> Certificates:
    identity = authority.issue()
    return Certificates(identity.certificate, identity.key, ClientCertificates.OFF, None)


async def said(port: int, tls: ssl.SSLContext | None = None, first: bytes = b"hello\n") -> list[bytes]:
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(first)
        lines = [await reader.readline(), await reader.readline()]
        writer.close()
        return lines


async def test_both_on_one_port(authority: Authority) -> None:
    async with listening(certificates_of(authority)) as (listener, port):
        assert not listener.has_tls
        plain = ssl.create_default_context(cafile=authority.file)
        assert await said(port, plain) == [b"None\n", b"hello\n"]
        for protocols, chosen in ((["h2"], b"'h2'\n"), (["x", "h2"], b"'h2'\n"), (["http/1.1"], b"None\n")):
            offering = ssl.create_default_context(cafile=authority.file)
            offering.set_alpn_protocols(protocols)
            assert await said(port, offering) == [chosen, b"hello\n"]
        for first in (b"hello\n", b"\0\0\0\x16\n", b"\x15\x16\x03\n"):
            assert await said(port, None, first) == [b"plain\n", first]


def test_both_on_one_port_with_uvloop(authority: Authority) -> None:
    async def check() -> None:
        async with listening(certificates_of(authority)) as (_, port):
            context = ssl.create_default_context(cafile=authority.file)
            assert await said(port, context) == [b"None\n", b"hello\n"]
            assert await said(port) == [b"plain\n", b"hello\n"]

    uvloop.run(check())


async def test_no_certificate() -> None:
    async with listening(None) as (_, port):
        assert await said(port) == [b"plain\n", b"hello\n"]


async def test_clients_that_say_nothing(authority: Authority) -> None:
    """They have as much time as any client that has not proven itself."""
    clock = ManualClock()
    gate = Gate(clock, total=10)
    async with listening(certificates_of(authority), gate) as (_, port), asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while len(gate) != 1:
            await asyncio.sleep(0.001)
        clock.advance(SECONDS_TO_PROVE + 1)
        gate.sweep()
        assert await reader.read() == b""
        while len(gate):
            await asyncio.sleep(0.001)
        writer.close()


async def test_clients_that_leave_at_once(authority: Authority) -> None:
    gate = Gate(SystemClock(), total=10)
    async with listening(certificates_of(authority), gate) as (listener, port), asyncio.timeout(DEADLINE):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        while gate.counters.accepted != 1 or len(gate) or len(listener):
            await asyncio.sleep(0.001)


async def test_a_listener_that_closes_while_it_waits_for_a_byte(authority: Authority) -> None:
    gate = Gate(SystemClock(), total=10)
    async with listening(certificates_of(authority), gate) as (listener, port), asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not len(gate):
            await asyncio.sleep(0.001)
        listener.close()
        assert await reader.read() == b""
        writer.close()


async def test_a_handshake_that_is_none(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(certificates_of(authority)) as (_, port), asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x16\x16\x16\x16\x16\x16\x16\x16\x16")
        while b"plain" not in await reader.read(100):
            if reader.at_eof():
                break
        writer.close()
        while not caplog.records:
            await asyncio.sleep(0.001)
    assert all(each.levelno < logging.ERROR for each in caplog.records)


async def test_new_certificates_are_offered(authority: Authority) -> None:
    identity = authority.issue()
    certificates = Certificates(identity.certificate, identity.key, ClientCertificates.OFF, None)
    async with listening(certificates) as (_, port):
        context = ssl.create_default_context(cafile=authority.file)
        assert await said(port, context) == [b"None\n", b"hello\n"]
        authority.reissue(identity, expired=True)
        assert certificates.reload_changed()
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            await said(port, context)


async def test_the_byte_stays() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        waiting = asyncio.create_task(begins_with_tls(ours))
        await asyncio.sleep(0)
        theirs.send(b"\x16abc")
        async with asyncio.timeout(DEADLINE):
            assert await waiting
        assert ours.recv(10) == b"\x16abc"
