"""Requests that a member relays, to a real broker as the coordinator, and to one that misbehaves."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from posthouse.app import App
from posthouse.broker.access.principal import Principal
from posthouse.cluster import relaying
from posthouse.cluster.dialling import Coordinator, Dialler
from posthouse.cluster.peers import Adopt, PeerListener
from posthouse.cluster.preamble import AnyPassage, Refusal, RelayPassage
from posthouse.cluster.relaying import CompanionConnection, CoordinatorRelay
from posthouse.model.address import Address
from posthouse.model.errors import Unavailable
from posthouse.protocols.introduction import Origin
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.listening import ListeningSockets
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.settings import Authentication
from tests.certificates import Authority
from tests.cluster.nodes import until
from tests.served import on_any_port
from tests.wire.kafka import RequestEncoder

_SECRET = b"s" * 32
_CLIENT = Address("10.0.0.1", 5)
_SECONDS = 30

MessageT = TypeVar("MessageT", bound=Message)


class _Member:
    """A relay to one peer listener at a time."""

    def __init__(self, address: Address | None) -> None:
        self.coordinator = None if address is None else Coordinator(incarnation=uuid4(), address=address)
        self.traffic = PeerTraffic()
        self.held_bytes: list[int] = []
        """Of incomplete responses, as often as one has grown."""
        self.relay = CoordinatorRelay(
            uuid4(), Dialler(_SECRET, lambda: self.coordinator, patience_seconds=0.5), self.traffic
        )
        self._encoder = RequestEncoder("relayed")

    def open(self, user: str | None = None, listener: str = "kafka") -> CompanionConnection:
        connection = self.relay.open(listener, _CLIENT, user, lambda: self.held_bytes.append(connection.held))
        return connection

    def frame(self, request: Message) -> tuple[memoryview, Callable[[bytes, type[MessageT]], MessageT]]:
        """Without its length, as a connection has received it; and how its response is read."""
        chunks, pending = self._encoder.encode(request)
        whole = b"".join(bytes(each) for each in chunks)
        return memoryview(whole)[4:], lambda found, kind: pending.response(memoryview(found), kind)

    async def ask(
        self, connection: CompanionConnection, request: Message, response: type[MessageT]
    ) -> MessageT:
        frame, read = self.frame(request)
        return read(await asyncio.wait_for(connection.send(frame), _SECONDS), response)


@asynccontextmanager
async def _peers(adopter: Callable[[AnyPassage], Adopt | Refusal]) -> AsyncIterator[Address]:
    listening = await ListeningSockets.bind(Address("127.0.0.1", 0))
    peers = PeerListener(listening, _SECRET, adopter)
    peers.start()
    try:
        yield listening.address
    finally:
        await peers.close()


@asynccontextmanager
async def _coordinator(**settings: object) -> AsyncIterator[tuple[App, Address]]:
    app = App(on_any_port(memory=True, **settings))
    await app.start()

    def adopter(passage: AnyPassage) -> Adopt | Refusal:
        assert isinstance(passage, RelayPassage)
        listener = app.listener(passage.listener)
        assert listener is not None
        return partial(
            listener.adopt,
            origin=Origin(client=passage.client, relayed_by=passage.broker, user=passage.user),
        )

    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.stop)
        yield app, await stack.enter_async_context(_peers(adopter))


def _new_topic(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=1000
    )


async def test_requests_are_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "MOST_IN_FLIGHT", 2)
    async with _coordinator() as (app, address):
        member = _Member(address)
        connection = member.open()
        frames = [member.frame(_new_topic(f"t{number}")) for number in range(10)]
        sent = [connection.send(frame) for frame, _ in frames]
        found = [
            read(await asyncio.wait_for(response, _SECONDS), CreateTopicsResponse)
            for (_, read), response in zip(frames, sent, strict=True)
        ]
        assert [each.topics[0].name for each in found] == [f"t{number}" for number in range(10)]
        assert all(each.topics[0].error_code == 0 for each in found)
        assert [each.peer for each in app.connections] == [str(_CLIENT)]
        assert (member.traffic.relayed_requests, member.traffic.relayed_unanswered) == (10, 0)
        connection.close()
        await until(lambda: not app.connections)
        with pytest.raises(Unavailable):
            await connection.send(frames[0][0])


def _logins(tmp_path: Path) -> dict[str, object]:
    password = tmp_path / "password"
    password.write_text("secret-of-admin")
    password.chmod(0o600)
    return {"authentication": Authentication.REQUIRED, "admin_password_file": password, "audit": None}


async def test_requests_have_the_rights_of_the_user_who_logged_in_at_the_member(tmp_path: Path) -> None:
    async with _coordinator(**_logins(tmp_path)) as (app, address):
        member = _Member(address)
        admin, other = member.open("admin"), member.open("other")
        created = await member.ask(admin, _new_topic("t"), CreateTopicsResponse)
        assert created.topics[0].error_code == 0
        refused = await member.ask(other, _new_topic("u"), CreateTopicsResponse)
        assert refused.topics[0].error_code != 0
        assert sorted(each.info.user or "" for each in app.connections) == ["admin", "other"]
        app.broker.access.sessions.send_away(Principal("other").name)
        await until(lambda: len(app.connections) == 1)


async def test_requests_of_no_user_get_no_further_than_a_connection_without_a_login(tmp_path: Path) -> None:
    async with _coordinator(**_logins(tmp_path)) as (_, address):
        member = _Member(address)
        with pytest.raises(Unavailable):
            await member.ask(member.open(), _new_topic("t"), CreateTopicsResponse)


async def test_requests_of_a_listener_with_tls_are_relayed_without(tmp_path: Path) -> None:
    identity = Authority(tmp_path).issue()
    tls = {
        "kafka_tls": Address("127.0.0.1", 0),
        "tls_certificate": identity.certificate,
        "tls_key": identity.key,
    }
    async with _coordinator(**tls) as (app, address):
        member = _Member(address)
        connection = member.open(listener="kafka_tls")
        found = await member.ask(connection, MetadataRequest(topics=None), MetadataResponse)
        assert len(found.brokers) == 1
        listener = app.listener("kafka_tls")
        assert listener is not None and [each.peer for each in listener] == [str(_CLIENT)]


async def test_large_requests() -> None:
    async with _coordinator() as (_, address):
        member = _Member(address)
        connection = member.open()
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=f"{number:0>200}", num_partitions=1, replication_factor=1)
                for number in range(3000)
            ],
            timeout_ms=1000,
            validate_only=True,
        )
        found = await member.ask(connection, request, CreateTopicsResponse)
        assert len(found.topics) == 3000
        connection.close()


async def test_no_coordinator_in_time() -> None:
    member = _Member(None)
    with pytest.raises(Unavailable, match="no broker is the coordinator"):
        await member.ask(member.open(), MetadataRequest(topics=[]), MetadataResponse)
    assert (member.traffic.relay_failures, member.traffic.relayed_unanswered) == (1, 0)


async def test_a_lost_coordinator_fails_what_was_sent_and_the_next_one_is_dialled() -> None:
    adopted: list[socket.socket] = []
    async with _peers(lambda passage: adopted.append) as first, _coordinator() as (_, second):
        member = _Member(first)
        connection = member.open()
        frame, _ = member.frame(MetadataRequest(topics=[]))
        lost = connection.send(frame)
        await until(lambda: adopted)
        member.coordinator = Coordinator(incarnation=uuid4(), address=second)
        adopted[0].close()
        with pytest.raises(Unavailable, match="lost before it had answered"):
            await asyncio.wait_for(lost, _SECONDS)
        await member.ask(connection, MetadataRequest(topics=[]), MetadataResponse)
        connection.close()


async def test_a_coordinator_that_hangs_is_left_when_it_is_succeeded() -> None:
    adopted: list[socket.socket] = []
    async with _peers(lambda passage: adopted.append) as first, _coordinator() as (_, second):
        member = _Member(first)
        connection = member.open()
        frame, _ = member.frame(MetadataRequest(topics=[]))
        lost = connection.send(frame)
        await until(lambda: adopted)
        member.relay.sweep()
        assert not lost.done()
        member.coordinator = Coordinator(incarnation=uuid4(), address=second)
        member.relay.sweep()
        with pytest.raises(Unavailable):
            await lost
        await member.ask(connection, MetadataRequest(topics=[]), MetadataResponse)
        connection.close()
        adopted[0].close()


async def test_a_response_to_no_request_ends_the_connection() -> None:
    def answer_wrongly(accepted: socket.socket) -> None:
        accepted.sendall(b"\x00\x00\x00\x04\xff\xff\xff\xff")
        accepted.close()

    async with _peers(lambda passage: answer_wrongly) as address:
        member = _Member(address)
        connection = member.open()
        with pytest.raises(Unavailable):
            await member.ask(connection, MetadataRequest(topics=[]), MetadataResponse)
        connection.close()


async def test_a_connection_that_closes_while_it_dials() -> None:
    member = _Member(None)
    connection = member.open()
    frame, _ = member.frame(MetadataRequest(topics=[]))
    waiting = connection.send(frame)
    await asyncio.sleep(0)
    connection.close()
    with pytest.raises(Unavailable, match="is closed"):
        await waiting
    assert not member.relay._open


async def test_a_connection_that_is_closed_delivers_nothing_afterwards() -> None:
    """The client may repeat its requests by another way. A reset tells that the kernel has discarded them."""
    adopted: list[socket.socket] = []
    async with _peers(lambda passage: adopted.append) as address:
        member = _Member(address)
        connection = member.open()
        frame, _ = member.frame(MetadataRequest(topics=[]))
        unanswered = connection.send(frame)
        await until(lambda: adopted and connection._sent)
        connection.close()
        with pytest.raises(Unavailable):
            await unanswered
        with pytest.raises(ConnectionResetError):
            while await asyncio.get_running_loop().sock_recv(adopted[0], 4096):
                pass
            pytest.fail("the connection ended as if all had been said")
        adopted[0].close()


async def test_a_user_whose_name_is_too_long_for_other_brokers(caplog: pytest.LogCaptureFixture) -> None:
    async with _peers(lambda passage: Refusal.NOT_COORDINATOR) as address:
        member = _Member(address)
        with pytest.raises(Unavailable, match="at most 4096 bytes"):
            await member.ask(member.open("\u00fc" * 5000), MetadataRequest(topics=[]), MetadataResponse)
    assert "relaying requests of the client 10.0.0.1:5 failed" in caplog.text
    assert member.traffic.relayed_unanswered == 0


async def test_limits_of_connections_are_those_of_the_member() -> None:
    """The coordinator neither counts relayed connections nor delays them for what their client has done."""
    async with _coordinator(max_connections=2, max_connections_per_address=1) as (app, address):
        member = _Member(address)
        relayed = [member.open() for _ in range(4)]
        for each in relayed:
            await member.ask(each, MetadataRequest(topics=[]), MetadataResponse)
        assert len(app.connections) == 4
        frame = memoryview(b"\x7f\xff\x00\x00" + b"\x00" * 8)  # an API that there is not
        for _ in range(15):
            with pytest.raises(Unavailable):
                await asyncio.wait_for(member.open().send(frame), _SECONDS)
        listener = app.listener("kafka")
        assert listener is not None
        assert (len(listener._gate), listener._gate.counters.offences) == (0, 0)
        for each in relayed:
            each.close()


async def test_back_pressure_on_the_coordinator() -> None:
    adopted: list[socket.socket] = []
    async with _peers(lambda passage: adopted.append) as address:
        member = _Member(address)
        connection = member.open()
        connection.pause_reading()  # also before it is connected
        frame, _ = member.frame(MetadataRequest(topics=[]))
        response = connection.send(frame)
        await until(lambda: adopted and connection._sent)
        expected = bytes(frame[4:8]) + b"x" * 200_000
        first, rest = expected[:100_000], expected[100_000:]
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(adopted[0], len(expected).to_bytes(4) + first)
        await asyncio.sleep(0.05)
        assert (connection.held, member.held_bytes) == (0, [])
        connection.resume_reading()
        await until(lambda: connection.held == 4 + len(first))
        assert member.held_bytes[-1] == connection.held
        connection.pause_reading()
        await loop.sock_sendall(adopted[0], rest)
        await asyncio.sleep(0.05)
        assert connection.held == 4 + len(first)
        connection.resume_reading()
        assert await asyncio.wait_for(response, _SECONDS) == expected
        assert connection.held == 0
        connection.close()
        adopted[0].close()
