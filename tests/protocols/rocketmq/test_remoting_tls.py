"""TLS and plaintext on the one port of remoting, by the first byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Serialization
from posthouse.protocols.rocketmq.codec.frames import encode_command
from posthouse.settings import Address, ClientCertificates
from posthouse.testing import AsyncBroker
from tests.certificates import Authority, Identity
from tests.protocols.rocketmq.conftest import ROCKETMQ
from tests.protocols.rocketmq.remoting_client import DEADLINE, RemotingClient
from tests.protocols.rocketmq.signed_client import SignedClient

LARGE = b"x" * 900_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def with_tls(authority: Authority, **settings: Any) -> AsyncBroker:
    identity = authority.issue()
    return AsyncBroker(
        rocketmq=ROCKETMQ, tls_certificate=identity.certificate, tls_key=identity.key, **settings
    )


def trusting(authority: Authority, identity: Identity | None = None) -> ssl.SSLContext:
    """With a certificate of its own, if it has one."""
    context = ssl.create_default_context(cafile=authority.file)
    if identity is not None:
        context.load_cert_chain(identity.certificate, identity.key)
    return context


@asynccontextmanager
async def connected(broker: AsyncBroker, tls: ssl.SSLContext | None) -> AsyncIterator[RemotingClient]:
    client = await RemotingClient.open(broker.address("rocketmq"), tls=tls)
    try:
        yield client
    finally:
        await client.close()


def have_tls(broker: AsyncBroker) -> Sequence[bool]:
    return [each.info.has_tls for each in broker.app.connections]


async def test_both_on_one_port(authority: Authority) -> None:
    async with (
        with_tls(authority) as broker,
        connected(broker, None) as plain,
        connected(broker, trusting(authority)) as private,
    ):
        assert (await plain.send("t", LARGE, d=1)).code == 0
        assert (await private.send("t", LARGE, d=1)).code == 0
        assert sorted(have_tls(broker)) == [False, True]
        for client in (plain, private):
            found = await client.messages("t", maxMsgBytes=1) + await client.messages("t", 1)
            assert [each.body for each in found] == [LARGE] * 2
        waiting = private.start(RequestCode.PULL_MESSAGE, private.pull_fields("t", 2, wait_ms=30_000))
        await private.request(105, {"topic": "t"})
        assert (await plain.send("t", b"woken")).code == 0
        async with asyncio.timeout(DEADLINE):
            assert (await waiting).code == 0


async def test_the_address_in_routes_is_the_same(authority: Authority) -> None:
    """Clients take it for what comes next, with TLS or without."""
    async with with_tls(authority) as broker:
        for tls in (None, trusting(authority)):
            async with connected(broker, tls) as client:
                await client.send("t", b"v")
                route = bytes((await client.request(105, {"topic": "t"})).body)
                assert broker.address("rocketmq").encode() in route


async def test_a_client_that_does_not_trust_the_broker(authority: Authority, tmp_path: Path) -> None:
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    async with with_tls(authority) as broker:
        with pytest.raises(ssl.SSLCertVerificationError):
            await RemotingClient.open(broker.address("rocketmq"), tls=trusting(Authority(strangers)))
        async with connected(broker, trusting(authority)) as client:
            assert (await client.send("t", b"v")).code == 0


@pytest.mark.parametrize("is_served", [False, True])
async def test_what_only_begins_like_tls(authority: Authority, is_served: bool) -> None:
    """The connection is closed; those of others go on."""
    served = with_tls(authority) if is_served else AsyncBroker(rocketmq=ROCKETMQ)
    async with served as broker, connected(broker, None) as other:
        where = Address.parse(broker.address("rocketmq"))
        for data in (b"\x16" * 100, b"\x16\x03\x01\x00\x05hello", b"\x16\xff\xff\xff\xff" + bytes(100)):
            reader, writer = await asyncio.open_connection(where.host, where.port)
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(DEADLINE):
                while await reader.read(100):  # an alert, perhaps
                    pass
            writer.close()
        assert (await other.send("t", b"v")).code == 0


async def test_a_first_byte_that_comes_alone(authority: Authority) -> None:
    async with with_tls(authority) as broker, connected(broker, None) as client:
        frame = encode_command(
            client._command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}, b"", 0)
        )
        answer = client._waiting[client._opaque] = asyncio.get_running_loop().create_future()
        for at in range(len(frame)):
            client.writer.write(frame[at : at + 1])
            await client.writer.drain()
        async with asyncio.timeout(DEADLINE):
            assert (await answer).code == 0


@pytest.mark.parametrize("wanted", [ClientCertificates.OPTIONAL, ClientCertificates.REQUIRED])
async def test_client_certificates(authority: Authority, wanted: ClientCertificates) -> None:
    """They are checked. They are no login: clients sign their requests, and have a key for that."""
    users = {"ann": "ann's password"}
    settings = {"tls_client_ca": authority.file, "tls_client_certificates": wanted, "users": users}
    async with with_tls(authority, **settings) as broker:
        await broker.app.broker.access.access_keys.add("ann", "key", secret=users["ann"])
        own = trusting(authority, authority.issue(name="ann"))
        client = await SignedClient.open(broker.address("rocketmq"), Serialization.JSON, tls=own)
        assert (await client.send("t", b"v")).code == ResponseCode.NO_PERMISSION
        client.key, client.secret = "key", users["ann"]
        assert (await client.send("t", b"v")).code == 0
        assert have_tls(broker) == [True]
        await client.close()
        if wanted is ClientCertificates.OPTIONAL:
            async with connected(broker, trusting(authority)) as without:
                assert (await without.send("t", b"v")).code == ResponseCode.NO_PERMISSION
        else:
            await assert_refused(broker, trusting(authority))


async def test_certificates_of_others(authority: Authority, tmp_path: Path) -> None:
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    stranger = Authority(strangers).issue(name="ann")
    settings = {"tls_client_ca": authority.file, "tls_client_certificates": ClientCertificates.REQUIRED}
    async with with_tls(authority, **settings) as broker:
        await assert_refused(broker, trusting(authority, stranger))
        await assert_refused(broker, trusting(authority, authority.issue(name="ann", expired=True)))
        async with connected(broker, None) as plain:  # TLS is the client's choice, on this port
            assert (await plain.send("t", b"v")).code == 0


async def assert_refused(broker: AsyncBroker, tls: ssl.SSLContext) -> None:
    """With TLS 1.3 a client learns of it with its first request."""
    try:
        client = await RemotingClient.open(broker.address("rocketmq"), tls=tls)
    except (ssl.SSLError, ConnectionError):
        return
    await client.ended()
    await client.close()
