"""Login without a protocol: what is offered, who is admitted, what is written down, and who must leave."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.broker.access.guard import CLOSED, AclGuard, Guard, OpenGuard
from posthouse.broker.access.principal import Principal
from posthouse.model.address import Address
from posthouse.model.errors import LoginFailed
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.sasl import SaslLogin
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.scram_client import ScramClient

PASSWORD = "open sesame"
NEAR = PeerIdentity(peer="127.0.0.1:4711")
HERE, FAR_AWAY = Address("127.0.0.1", 7), Address("192.0.2.1", 7)
FAR = PeerIdentity(peer="192.0.2.1:4711", may_send_password=False)


class Transport(asyncio.BaseTransport):
    def __init__(self, peer: Any, *, certified: str | None = None, has_tls: bool = False) -> None:
        subject = () if certified is None else ((("commonName", certified),),)
        super().__init__(
            {"peername": peer, "peercert": {"subject": subject}, "ssl_object": object() if has_tls else None}
        )


@pytest.mark.parametrize(
    ("transport", "allow", "expected"),
    [
        (Transport(("127.0.0.1", 7)), False, PeerIdentity(peer="127.0.0.1:7", address=HERE)),
        (Transport(("::1", 7, 0, 0)), False, PeerIdentity(peer="[::1]:7", address=Address("::1", 7))),
        (
            Transport(("192.0.2.1", 7)),
            False,
            PeerIdentity(peer="192.0.2.1:7", address=FAR_AWAY, may_send_password=False),
        ),
        (Transport(("192.0.2.1", 7)), True, PeerIdentity(peer="192.0.2.1:7", address=FAR_AWAY)),
        (
            Transport(("192.0.2.1", 7), certified="ann", has_tls=True),
            False,
            PeerIdentity(peer="192.0.2.1:7", address=FAR_AWAY, certified="ann"),
        ),
        (Transport(None), False, PeerIdentity(peer="?", may_send_password=False)),
    ],
    ids=["near", "IPv6", "far", "allowed", "TLS", "unknown"],
)
def test_what_is_known_of_a_client(transport: Transport, allow: bool, expected: PeerIdentity) -> None:
    assert PeerIdentity.of(transport, allow_cleartext=allow) == expected


class Client:
    """A connection as its authenticator sees it."""

    def __init__(self, broker: AsyncBroker, identity: PeerIdentity = NEAR) -> None:
        self.guards: list[Guard] = []
        self.is_revoked = False
        self.authenticator = Authenticator(
            broker.app.broker.access, identity, "toy", admitted=self.guards.append, revoked=self._revoked
        )
        self.login = SaslLogin(self.authenticator)

    def _revoked(self) -> None:
        self.is_revoked = True

    async def plain(self, user: str, password: str = PASSWORD) -> bytes:
        assert self.login.begin("PLAIN")
        return await self.login.take(f"\0{user}\0{password}".encode())


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    users = {"admin": PASSWORD, "ann": PASSWORD}
    async with AsyncBroker(users=users, max_connections_per_user=2) as running:
        yield running


@pytest.fixture
def recorded(broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str, bool]]:
    lines: list[tuple[str, str, str, bool]] = []

    def record(name: str, peer: str, protocol: str, mechanism: str, failure: LoginFailed | None) -> None:
        lines.append((name, protocol, mechanism, failure is None))

    monkeypatch.setattr(broker.app.broker.access, "record_login", record)
    return lines


async def test_a_password(broker: AsyncBroker, recorded: list[tuple[str, str, str, bool]]) -> None:
    client = Client(broker)
    assert client.authenticator.is_required
    assert await client.plain("ann") == b""
    [guard] = client.guards
    assert isinstance(guard, AclGuard) and guard.principal == Principal("ann")
    assert client.authenticator.guard == guard and client.authenticator.user == "ann"
    assert recorded == [("ann", "toy", "PLAIN", True)]


@pytest.mark.parametrize(
    "token", [b"\0ann\0wrong", b"\0bob\0" + PASSWORD.encode(), b"ann", b"\0\xff\0x", b"bob\0ann\0x"]
)
async def test_a_wrong_password(
    broker: AsyncBroker, recorded: list[tuple[str, str, str, bool]], token: bytes
) -> None:
    client = Client(broker)
    assert client.login.begin("PLAIN")
    with pytest.raises(LoginFailed):
        await client.login.take(token)
    assert not client.guards and client.authenticator.guard is CLOSED
    assert [(mechanism, allowed) for _, _, mechanism, allowed in recorded] == [("PLAIN", False)]
    with pytest.raises(LoginFailed):
        await client.login.take(token)  # it has to begin again


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram(broker: AsyncBroker, mechanism: str) -> None:
    client = Client(broker, FAR)
    assert client.login.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert not client.login.begin("PLAIN"), "others could read the password"
    scram = ScramClient(mechanism, "ann", PASSWORD)
    assert client.login.begin(mechanism)
    final = scram.final(await client.login.take(scram.first()))
    assert not client.guards
    await client.login.take(final)
    assert client.authenticator.user == "ann"


async def test_a_connection_stays_with_its_user(broker: AsyncBroker) -> None:
    client = Client(broker)
    await client.plain("ann")
    await client.plain("ann")
    assert len(client.guards) == 1
    with pytest.raises(LoginFailed, match="another user"):
        await client.plain("admin")


async def test_a_user_has_so_many_connections(broker: AsyncBroker) -> None:
    first, second, third = Client(broker), Client(broker), Client(broker)
    await first.plain("ann")
    await second.plain("ann")
    with pytest.raises(LoginFailed, match="max_connections_per_user"):
        await third.plain("ann")
    first.authenticator.close()
    await third.plain("ann")


async def test_another_password_revokes_the_login(broker: AsyncBroker) -> None:
    client, closed = Client(broker), Client(broker)
    await client.plain("ann")
    await closed.plain("ann")
    closed.authenticator.close()
    await broker.app.broker.access.users.set_password("ann", "another")
    assert client.is_revoked and not closed.is_revoked


async def test_without_logins() -> None:
    async with AsyncBroker() as broker:
        client = Client(broker)
        client.authenticator.admit_anonymous()
        [guard] = client.guards
        assert isinstance(guard, OpenGuard)
        assert not client.authenticator.is_required and client.authenticator.user is None
