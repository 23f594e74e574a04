"""The broker's certificate, on real sockets."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import trustme

from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidConfig
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.gate import Gate
from posthouse.protocols.listener import Listener
from posthouse.protocols.tls import Certificates, name_of
from posthouse.settings import Address, ClientCertificates
from tests.alarms import alarms


class Authority:
    """Writes certificates into a directory, as an operator does."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.certificate, self.key = directory / "certificate.pem", directory / "key.pem"
        self.file = directory / "ca.pem"
        self.ca.cert_pem.write_to_path(self.file)
        self.renew()

    def renew(self) -> None:
        issued = self.ca.issue_cert("127.0.0.1")
        self.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.key)

    def served(self, clients: ClientCertificates = ClientCertificates.OFF) -> Certificates:
        return Certificates(self.certificate, self.key, clients, self.file)

    def client(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.file)
        if name is not None:
            self.ca.issue_cert(f"{name}@example.org", common_name=name).configure_cert(context)
        return context


class Echo(asyncio.Protocol):
    """Says who it takes the client for, then what the client says."""

    peer = "127.0.0.1:1"

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(peer=self.peer, protocol="echo", since_ms=0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's with TLS is no subclass
        self._listener.join(self)
        self._transport.write(f"{name_of(self._transport)}\n".encode())

    def data_received(self, data: bytes) -> None:
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


class Served:
    def __init__(self, authority: Authority, certificates: Certificates) -> None:
        self.authority = authority
        self.certificates = certificates
        self.gate = Gate(SystemClock(), total=10, per_address=3)
        self.listener = Listener("echo", Echo, self.gate)

    async def start(self) -> None:
        self.address = await self.listener.start(Address("127.0.0.1", 0), self.certificates)

    async def connect(self, name: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            self.address.host, self.address.port, ssl=self.authority.client(name)
        )

    async def said_of(self, name: str | None = None) -> str:
        reader, writer = await self.connect(name)
        line = await reader.readline()
        writer.close()
        return line.decode().strip()

    async def serial(self) -> str:
        _, writer = await self.connect()
        shown = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return str(shown)


@pytest.fixture
async def served(authority: Authority, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    running = Served(authority, authority.served(getattr(request, "param", ClientCertificates.OFF)))
    await running.start()
    yield running
    running.listener.close()
    await running.listener.drained(5)
    assert len(running.gate) == 0


async def test_a_new_certificate_is_for_new_connections(served: Served) -> None:
    reader, writer = await served.connect()
    await reader.readline()
    before = await served.serial()
    served.authority.renew()
    assert served.certificates.reload_changed()
    assert not served.certificates.reload_changed()
    assert await served.serial() != before
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    writer.close()


async def test_files_are_watched(served: Served) -> None:
    before = await served.serial()
    following = asyncio.create_task(served.certificates.follow(0.01))
    served.authority.renew()
    while await served.serial() == before:
        await asyncio.sleep(0.01)
    following.cancel()


@pytest.mark.parametrize("broken", ["certificate", "key"])
async def test_what_cannot_be_used_changes_nothing(
    served: Served, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = await served.serial()
    getattr(served.authority, broken).write_text("not a certificate")
    with caplog.at_level(logging.INFO):
        assert not served.certificates.reload_changed()
    [record] = alarms(caplog)
    assert "the old one stays in use" in record.getMessage()
    assert await served.serial() == before


async def test_a_file_that_is_gone_changes_nothing(served: Served) -> None:
    before = await served.serial()
    served.authority.key.unlink()
    assert not served.certificates.reload_changed()
    assert await served.serial() == before


@pytest.mark.parametrize("served", [ClientCertificates.OPTIONAL], indirect=True)
async def test_certificates_tell_who_a_client_is(served: Served) -> None:
    assert await served.said_of("alice") == "alice"
    assert await served.said_of() == "None"


@pytest.mark.parametrize("served", [ClientCertificates.REQUIRED], indirect=True)
async def test_without_a_certificate_nobody_comes_in(served: Served) -> None:
    assert await served.said_of("alice") == "alice"
    try:
        said = await served.said_of()
    except (ssl.SSLError, ConnectionError):  # by the version of TLS it hears of it now or later
        said = ""
    assert said == ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_versions_are_refused(served: Served, version: ssl.TLSVersion) -> None:
    context = served.authority.client()
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(served.address.host, served.address.port, ssl=context)


async def test_a_client_that_leaves_in_the_handshake_is_logged_with_a_reason(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(served.address.host, served.address.port)
    while not len(served.gate):
        await asyncio.sleep(0)
    writer.close()
    while len(served.gate):
        await asyncio.sleep(0)
    [record] = alarms(caplog)
    assert record.getMessage().endswith("failed: the client closed it before the TLS handshake was done")


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x00\x00\x00\x12\x00\x12\x00\x04\x00\x00\x00\x01\x00\x03abc",
        b"AMQP\x00\x00\x09\x01",
    ],
    ids=["http", "kafka", "amqp"],
)
async def test_a_client_without_tls_is_logged_as_one(
    served: Served, first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(served.address.host, served.address.port)
    writer.write(first)
    async with asyncio.timeout(30):
        while "the client does not seem to use TLS" not in caplog.text:
            await asyncio.sleep(0.01)
    writer.close()


async def test_handshakes_that_do_not_end_take_up_places(served: Served) -> None:
    """They count as connections, and those that come later push them out."""
    silent = [await asyncio.open_connection(served.address.host, served.address.port) for _ in range(3)]
    while len(served.gate) < 3:
        await asyncio.sleep(0)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await served.connect()
    for _, writer in silent:
        writer.close()
    while len(served.gate):
        await asyncio.sleep(0)
    assert await served.said_of() == "None"


@pytest.mark.parametrize("missing", ["certificate", "key", "file"])
def test_missing_files_are_named(authority: Authority, missing: str) -> None:
    path: Path = getattr(authority, missing)
    path.unlink()
    with pytest.raises(InvalidConfig, match=path.name):
        authority.served()


def test_a_key_with_a_password_is_refused(authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(authority.key.read_bytes(), None)
    authority.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidConfig, match="without"):
        authority.served()
