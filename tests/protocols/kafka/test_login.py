"""Logging in, on the wire: what is answered, what is not, and who is sent away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.broker.access.quotas import Entity, Quota
from posthouse.model.errors import UnknownUser
from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.codec.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from posthouse.protocols.kafka.codec.generated.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.settings import Authentication
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.scram_client import ScramClient
from tests.protocols.kafka.wire import Wire, batch, fetch_request, kio_module, produce_request
from tests.wire.kafka import framed

PASSWORD = "open sesame"
PLAIN = b"\0admin\0" + PASSWORD.encode()
_MILLISECONDS_ARE_WHOLE = 0.005
"""By so much, and a little more, the loop's clock and its timers may disagree."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AsyncBroker]:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD + "\n")
    async with AsyncBroker(authentication=Authentication.REQUIRED, admin_password_file=file) as running:
        yield running


async def handshake(wire: Wire, mechanism: str) -> SaslHandshakeResponse:
    return await wire.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)


async def authenticate(wire: Wire, token: bytes) -> SaslAuthenticateResponse:
    return await wire.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)


async def log_in(wire: Wire, token: bytes = PLAIN) -> None:
    assert (await handshake(wire, "PLAIN")).error_code == ErrorCode.NONE
    assert (await authenticate(wire, token)).error_code == ErrorCode.NONE


async def is_served(wire: Wire) -> bool:
    answer = await wire.ask(MetadataRequest(topics=[]), MetadataResponse)
    return len(answer.brokers) == 1


async def is_closed(wire: Wire) -> bool:
    try:
        return await wire.reader.read() == b""
    except ConnectionResetError:
        return True


async def test_a_password(wire: Wire) -> None:
    await log_in(wire)
    assert await is_served(wire)


@pytest.mark.parametrize(
    "token",
    [
        b"\0admin\0wrong",
        b"\0nobody\0" + PASSWORD.encode(),
        b"other\0admin\0" + PASSWORD.encode(),
        b"\0admin",
        b"\0admin\0\xff\xff",
        b"",
        b"\0admin\0" + b"x" * 20_000,
    ],
)
async def test_a_wrong_password(wire: Wire, token: bytes) -> None:
    await handshake(wire, "PLAIN")
    answer = await authenticate(wire, token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message and PASSWORD not in answer.error_message
    assert await is_closed(wire)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram(wire: Wire, mechanism: str) -> None:
    client = ScramClient(mechanism, "admin", PASSWORD)
    await handshake(wire, mechanism)
    first = await authenticate(wire, client.first())
    final = await authenticate(wire, client.final(bytes(first.auth_bytes)))
    assert client.accepts(bytes(final.auth_bytes))
    assert client.iterations >= 8192
    assert await is_served(wire)


@pytest.mark.parametrize("user", ["admin", "nobody"])
async def test_scram_with_a_wrong_password_is_refused_only_at_the_end(wire: Wire, user: str) -> None:
    """So that nobody learns who exists."""
    client = ScramClient("SCRAM-SHA-256", user, "wrong")
    await handshake(wire, "SCRAM-SHA-256")
    first = await authenticate(wire, client.first())
    assert first.error_code == ErrorCode.NONE
    final = await authenticate(wire, client.final(bytes(first.auth_bytes)))
    assert final.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await is_closed(wire)


async def test_tokens_without_requests(wire: Wire) -> None:
    """As clients did before there was SaslAuthenticate."""
    requests, responses = (kio_module(f"sasl_handshake.v0.{each}") for each in ("request", "response"))
    answer = await wire.ask_kio(
        requests.SaslHandshakeRequest(mechanism="PLAIN"), responses.SaslHandshakeResponse
    )
    assert int(answer.error_code) == 0
    wire.writer.write(framed(PLAIN))
    assert await wire.receive_frame() == b""
    assert await is_served(wire)


async def test_a_wrong_token_without_a_request_closes(wire: Wire) -> None:
    requests, responses = (kio_module(f"sasl_handshake.v0.{each}") for each in ("request", "response"))
    await wire.ask_kio(requests.SaslHandshakeRequest(mechanism="PLAIN"), responses.SaslHandshakeResponse)
    wire.writer.write(framed(b"\0admin\0wrong"))
    assert await is_closed(wire)


async def test_an_unknown_mechanism_hears_of_the_others(wire: Wire) -> None:
    answer = await handshake(wire, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


async def test_tokens_that_nobody_asked_for(wire: Wire) -> None:
    assert (await authenticate(wire, PLAIN)).error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_before_a_login_only_versions_are_told(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    assert (await wire.ask(request, ApiVersionsResponse)).error_code == ErrorCode.NONE
    wire.send(MetadataRequest(topics=[]))
    assert await is_closed(wire)


async def test_large_requests_are_for_those_who_are_known(broker: AsyncBroker, wire: Wire) -> None:
    many = MetadataRequest(
        topics=[MetadataRequestTopic(name="x" * 200) for _ in range(400)], allow_auto_topic_creation=False
    )
    async with Wire(broker.kafka) as stranger:
        stranger.send(many)
        assert await is_closed(stranger)
    await log_in(wire)
    assert len((await wire.ask(many, MetadataResponse)).topics) == 400


async def test_strangers_have_little_time(broker: AsyncBroker, wire: Wire) -> None:
    await log_in(wire)
    async with Wire(broker.kafka) as stranger:
        await handshake(stranger, "PLAIN")
        broker.app._gate._seconds_to_prove = 0.0
        broker.app._gate.sweep()
        assert await is_closed(stranger)
    assert await is_served(wire)


async def test_while_nobody_has_to_log_in() -> None:
    async with AsyncBroker() as broker, Wire(broker.kafka) as wire:
        assert (await handshake(wire, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(wire)


async def test_a_deleted_user_is_gone(broker: AsyncBroker, wire: Wire) -> None:
    users = broker.app.broker.access.users
    await users.set_password("alice", "secret", iterations=8192)
    async with Wire(broker.kafka) as alice:
        await log_in(alice, b"\0alice\0secret")
        await users.delete("alice")
        assert await is_closed(alice)
    with pytest.raises(UnknownUser):
        await users.delete("alice")
    await handshake(wire, "PLAIN")
    assert (await authenticate(wire, b"\0alice\0secret")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_deleted_user_does_not_wait_for_records(broker: AsyncBroker, wire: Wire) -> None:
    await log_in(wire)
    topic = await wire.create_topic()
    wire.send(fetch_request((topic, 0, 0), min_bytes=1, max_wait_ms=2**31 - 1))
    await broker.app.broker.access.users.delete("admin")
    assert await is_closed(wire)


async def test_a_new_password_ends_what_the_old_one_began(broker: AsyncBroker) -> None:
    users = broker.app.broker.access.users
    await users.set_password("alice", "old", iterations=8192)
    async with Wire(broker.kafka) as before, Wire(broker.kafka) as after:
        await log_in(before, b"\0alice\0old")
        await users.set_password("alice", "new", iterations=8192)
        assert await is_closed(before)
        await log_in(after, b"\0alice\0new")


async def test_a_login_again_must_be_the_same(broker: AsyncBroker, wire: Wire) -> None:
    await broker.app.broker.access.users.set_password("alice", "secret", iterations=8192)
    await log_in(wire)
    await log_in(wire)
    await handshake(wire, "PLAIN")
    assert (await authenticate(wire, b"\0alice\0secret")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await is_closed(wire)


async def test_one_user_has_only_so_many_connections(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    async with AsyncBroker(
        authentication=Authentication.REQUIRED, admin_password_file=file, max_connections_per_user=1
    ) as broker:
        async with Wire(broker.kafka) as second:
            async with Wire(broker.kafka) as first:
                await log_in(first)
                await handshake(second, "PLAIN")
                answer = await authenticate(second, PLAIN)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert "max_connections_per_user" in (answer.error_message or "")
            while broker.app.connections:
                await asyncio.sleep(0)
        async with Wire(broker.kafka) as third:
            await log_in(third)


async def test_who_writes_too_much_is_told_and_not_heard(broker: AsyncBroker, wire: Wire) -> None:
    await log_in(wire)
    topic = await wire.create_topic()
    quotas = broker.app.broker.access.quotas
    await quotas.change(Entity("admin"), {Quota.WRITTEN: 10_000})
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answer = await wire.ask(produce_request(topic, batch(b"x" * 15_000)), ProduceResponse)
    assert 300 < answer.throttle_time_ms < 1000
    assert await is_served(wire)
    assert loop.time() - begun >= answer.throttle_time_ms / 1000 - _MILLISECONDS_ARE_WHOLE
    await quotas.change(Entity("admin"), {Quota.WRITTEN: None})
    assert (
        await wire.ask(produce_request(topic, batch(b"x" * 15_000)), ProduceResponse)
    ).throttle_time_ms == 0


async def test_who_reads_too_much(broker: AsyncBroker, wire: Wire) -> None:
    await log_in(wire)
    topic = await wire.create_topic()
    await wire.produce(topic, batch(b"x" * 15_000))
    await broker.app.broker.access.quotas.change(Entity(client="test"), {Quota.READ: 10_000})
    begun = asyncio.get_running_loop().time()
    await wire.fetch(topic)
    assert await is_served(wire)
    assert asyncio.get_running_loop().time() - begun >= 0.4


async def test_who_takes_too_much_of_the_brokers_time(broker: AsyncBroker, wire: Wire) -> None:
    await log_in(wire)
    await broker.app.broker.access.quotas.change(Entity("admin"), {Quota.TIME: 0.01})
    loop = asyncio.get_running_loop()
    for _ in range(1000):
        begun = loop.time()
        answer = await wire.ask(MetadataRequest(topics=None), MetadataResponse)
        if answer.throttle_time_ms:
            break
    assert answer.throttle_time_ms > 0
    assert await is_served(wire)
    assert loop.time() - begun >= answer.throttle_time_ms / 1000 - _MILLISECONDS_ARE_WHOLE
