"""A whole protocol in one file: lines that are echoed, after a login. All else comes with the front end.

login USER PASSWORD     ok, or refused and the end
anything else           the same again
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from posthouse.broker.access.guard import CLOSED
from posthouse.broker.access.principal import Principal
from posthouse.listener_settings import Address, ListenerSettings, WireProtocol
from posthouse.model.errors import InvalidConfig, LoginFailed
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.budget import STUCK_SECONDS
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.listener import Listener
from posthouse.protocols.noop import noop
from posthouse.protocols.pace import SLOW_SECONDS
from posthouse.settings import Authentication, ClientCertificates, Settings, listener_setting
from posthouse.testing import AsyncBroker, ThreadBroker
from tests.certificates import Authority

# The protocol

TOY = WireProtocol(name="toy", label="Toy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToySettings(Settings):
    toy: Address | None = listener_setting(None, TOY, "Address for toys.")
    toy_tls: Address | None = listener_setting(None, TOY, "Address for toys with TLS.", has_tls=True)


class ToyConnection(asyncio.Protocol):
    def __init__(self, backend: Backend, listener: Listener) -> None:
        self._backend = backend
        self._listener = listener
        self._received = b""
        self._login: asyncio.Task[None] | None = None
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        settings, access = self._backend.settings, self._backend.broker.access
        self._transport = cast("asyncio.Transport", transport)
        identity = PeerIdentity.of(transport, allow_cleartext=settings.allow_cleartext_passwords)
        self.peer = identity.peer
        self.flow = FlowControl(
            asyncio.get_running_loop(),
            self._transport,
            self._backend.budget,
            self.peer,
            limit=settings.connection_buffer_bytes,
            is_behind=self._backend.broker.is_behind,
            held=lambda: len(self._received),
            go_on=self._go_on,
            abort=self.abort,
        )
        self._authenticator = Authenticator(access, identity, "toy", admitted=noop, revoked=self.abort)
        if not self._listener.join(self):
            self._transport.abort()
        elif not self._authenticator.is_required:
            self._authenticator.admit_anonymous()
        elif identity.certified is not None:
            self._authenticator.admit(Principal(identity.certified))
            self._listener.prove(self)

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(peer=self.peer, protocol="toy", since_ms=0)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)
        self._authenticator.close()
        self.flow.close()

    def data_received(self, data: bytes) -> None:
        self.flow.pace.received += len(data)
        self._received += data
        self._go_on()

    def _go_on(self) -> None:
        while b"\n" in self._received and self._login is None and not self.flow.outbox.is_congested:
            line, _, self._received = self._received.partition(b"\n")
            self._take(line)
        self.flow.count()
        self.flow.regulate(held_back=self.flow.outbox.is_congested or self._login is not None)

    def _take(self, line: bytes) -> None:
        match line.decode().split(" "):
            case ["login", user, password]:
                self._login = asyncio.create_task(self._log_in(user, password))
            case _ if self._authenticator.guard is CLOSED:
                self._refuse()
            case _:
                self._listener.prove(self)
                self.flow.outbox.send(line + b"\n")

    async def _log_in(self, user: str, password: str) -> None:
        failure = None
        try:
            self._authenticator.admit(await self._authenticator.verify_password(user, password))
        except LoginFailed as error:
            failure = error
        self._authenticator.record(user, "toy", failure)
        self._login = None
        if failure is None:
            self._listener.prove(self)
            self.flow.outbox.send(b"ok\n")
            self._go_on()
        else:
            self._refuse()

    def _refuse(self) -> None:
        self._listener.offended(self)
        self.flow.outbox.send(b"refused\n")
        self.finish()

    def pause_writing(self) -> None:
        self.flow.outbox.pause()
        self._go_on()

    def resume_writing(self) -> None:
        self.flow.outbox.resume()
        self._go_on()

    def finish(self) -> None:
        self.flow.outbox.flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def tick(self) -> bool:
        self.flow.count()
        return self.flow.is_too_slow(in_frame=len(self._received) > 0)


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    return lambda settings: lambda listener: ToyConnection(backend, listener)


TOY_FRONT_END = FrontEnd(protocol=TOY, connect=_connect, describe=lambda where, _: f"toys on {where}")

# What it gets

EVERYWHERE = Address("0.0.0.0", 0)
USERS = {"admin": "secret", "ann": "password"}


def broker(**settings: Any) -> AsyncBroker:
    return AsyncBroker(front_ends=(*FRONT_ENDS, TOY_FRONT_END), settings_class=ToySettings, **settings)


@dataclass(frozen=True, slots=True)
class Toy:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, line: bytes) -> bytes:
        self.writer.write(line + b"\n")
        return (await self.reader.readline()).rstrip(b"\n")

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def toy(address: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Toy]:
    where = Address.parse(address)
    reader, writer = await asyncio.open_connection(where.host, where.port, ssl=tls)
    yield Toy(reader, writer)
    writer.close()


def listener_of(running: AsyncBroker) -> Listener:
    [listener] = [each.listener for each in running.app._served if each.name == "toy"]
    return listener


async def connections(running: AsyncBroker, count: int) -> list[ToyConnection]:
    while len(listener_of(running)) < count:
        await asyncio.sleep(0.001)
    return [each for each in listener_of(running) if isinstance(each, ToyConnection)]


async def test_a_listener_and_its_place_in_the_ready_line() -> None:
    async with broker() as running, toy(running.address("toy")) as client:
        assert await client.ask(b"hello") == b"hello"
        assert list(running.app.listeners) == ["kafka", "amqp", "admin", "toy"]
        assert running.app.descriptions[-1] == f"toys on {running.address('toy')}"


def test_a_broker_in_a_thread() -> None:
    front_ends = (*FRONT_ENDS, TOY_FRONT_END)
    with ThreadBroker(front_ends=front_ends, settings_class=ToySettings) as running:

        async def ask() -> bytes:
            async with toy(running.address("toy")) as client:
                return await client.ask(b"hello")

        assert asyncio.run(ask()) == b"hello"


def test_settings_that_are_not_safe() -> None:
    with pytest.raises(InvalidConfig, match=r"refusing to listen on 0\.0\.0\.0:0: anyone who reaches it"):
        ToySettings(toy=EVERYWHERE).check()
    with pytest.raises(InvalidConfig, match=r"Toy clients would send their passwords .* Use toy_tls"):
        ToySettings(toy=EVERYWHERE, authentication=Authentication.REQUIRED).check()
    with pytest.raises(InvalidConfig, match="needs the settings tls_certificate and tls_key"):
        ToySettings(toy_tls=Address("127.0.0.1", 0)).check()
    with pytest.raises(InvalidConfig, match="kafka and toy are both to listen on"):
        ToySettings(toy=ToySettings().kafka).check()


async def test_tls_and_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity, ann = authority.issue(), authority.issue(name="ann")
    tls = ssl.create_default_context(cafile=authority.file)
    tls.load_cert_chain(ann.certificate, ann.key)
    settings = {
        "tls_certificate": identity.certificate,
        "tls_key": identity.key,
        "tls_client_ca": authority.file,
        "tls_client_certificates": ClientCertificates.REQUIRED,
    }
    async with broker(users=USERS, **settings) as running, toy(running.address("toy_tls"), tls) as client:
        assert await client.ask(b"hello") == b"hello"
        assert running.app.broker.access.sessions.count("ann") == 1


async def test_a_login() -> None:
    async with broker(users=USERS) as running, toy(running.address("toy")) as client:
        assert await client.ask(b"login ann password") == b"ok"
        assert await client.ask(b"hello") == b"hello"
        await running.app.broker.access.users.set_password("ann", "another")
        assert await client.is_closed()


@pytest.mark.parametrize("line", [b"hello", b"login ann wrong", b"login nobody password"])
async def test_no_login(line: bytes) -> None:
    async with broker(users=USERS) as running, toy(running.address("toy")) as client:
        assert await client.ask(line) == b"refused"
        assert await client.is_closed()
        assert len(running.app._gate._offences) == 1


async def test_no_more_connections_than_allowed() -> None:
    async with broker(max_connections=1) as running, toy(running.address("toy")) as first:
        assert await first.ask(b"hello") == b"hello"
        async with toy(running.address("toy")) as second:
            assert await second.is_closed()
        assert await first.ask(b"again") == b"again"


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async with broker(connection_buffer_bytes=64 * 1024) as running, toy(running.address("toy")) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        [connection] = await connections(running, 1)
        for _ in range(3000):
            client.writer.write(b"x" * 10_000 + b"\n")
        while not connection.flow.is_paused:
            await asyncio.sleep(0.001)
        assert connection.flow.outbox.unsent < 1024 * 1024
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(3000):
            assert len(await client.reader.readline()) == 10_001
        assert not connection.flow.is_paused


async def test_who_holds_most_and_does_not_move_is_closed_while_memory_is_short() -> None:
    async with (
        broker(inflight_bytes=200_000) as running,
        toy(running.address("toy")) as large,
        toy(running.address("toy")) as small,
    ):
        large.writer.write(b"x" * 300_000)
        assert await small.ask(b"hello") == b"hello"
        while running.app._budget.room >= 0:
            await asyncio.sleep(0.001)
        for _ in range(STUCK_SECONDS + 1):
            running.app._budget.sweep()
        assert await large.is_closed()
        assert await small.ask(b"again") == b"again"


async def test_a_slow_sender_is_closed() -> None:
    async with broker() as running, toy(running.address("toy")) as slow, toy(running.address("toy")) as good:
        slow.writer.write(b"beg")
        assert await good.ask(b"hello") == b"hello"
        while not any(each._received for each in await connections(running, 2)):
            await asyncio.sleep(0.001)
        for _ in range(SLOW_SECONDS):
            listener_of(running).sweep()
        assert await slow.is_closed()
        assert await good.ask(b"again") == b"again"


async def test_a_throttled_client_waits() -> None:
    async with broker() as running, toy(running.address("toy")) as client:
        assert await client.ask(b"hello") == b"hello"
        [connection] = await connections(running, 1)
        begun = asyncio.get_running_loop().time()
        connection.flow.throttle.extend(0.1)
        connection.flow.regulate(held_back=False)
        assert await client.ask(b"again") == b"again"
        assert asyncio.get_running_loop().time() - begun >= 0.09


async def test_a_stop_lets_it_finish() -> None:
    async with broker() as running:
        address = running.address("toy")
        reader, writer = await asyncio.open_connection(*address.split(":"))
        client = Toy(reader, writer)
        assert await client.ask(b"hello") == b"hello"
    assert await client.is_closed()
    writer.close()
