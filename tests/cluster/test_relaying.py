"""Requests that a member relays, to a real broker as the coordinator, and to one that misbehaves."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from posthouse.app import App
from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.cluster import relaying
from posthouse.cluster.dialling import Dialler, ScopeHolder
from posthouse.cluster.peers import Adopt, PeerListener
from posthouse.cluster.preamble import AnyPassage, Refusal, RelayPassage
from posthouse.cluster.relaying import CompanionConnection, ScopeRelay
from posthouse.model.address import Address
from posthouse.model.clock import SystemClock
from posthouse.model.errors import LoginFailed, StorageFull, Unavailable
from posthouse.model.proven_user import CERTIFICATE, ProvenUser
from posthouse.model.scopes import COORDINATOR
from posthouse.model.scram import Mechanism
from posthouse.protocols.introduction import Origin
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.listening import ListeningSockets
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.settings import Authentication, ClientCertificates
from posthouse.storage.contract import Storage
from tests.broker.members import CoordinatorStorage, MemberStorage
from tests.certificates import Authority
from tests.cluster.nodes import until
from tests.protocols.kafka.access.scene import log_in
from tests.protocols.kafka.members import member as member_app
from tests.protocols.kafka.wire import Wire
from tests.served import on_any_port
from tests.wire.kafka import RequestEncoder

_SECRET = b"s" * 32
_CLIENT = Address("10.0.0.1", 5)
_SECONDS = 30

MessageT = TypeVar("MessageT", bound=Message)


class _Member:
    """A relay to one peer listener at a time."""

    def __init__(self, address: Address | None) -> None:
        self.coordinator = None if address is None else ScopeHolder(incarnation=uuid4(), address=address)
        self.traffic = PeerTraffic()
        self.held_bytes: list[int] = []
        """Of incomplete responses, as often as one has grown."""
        self.relay = ScopeRelay(
            uuid4(), Dialler(_SECRET, lambda scope: self.coordinator, patience_seconds=0.5), self.traffic
        )
        self._encoder = RequestEncoder("relayed")

    def open(self, user: ProvenUser | None = None, listener: str = "kafka") -> CompanionConnection:
        connection = self.relay.open(
            listener, _CLIENT, user, lambda: self.held_bytes.append(connection.held), COORDINATOR
        )
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
async def _coordinator(storage: Storage | None = None, **settings: Any) -> AsyncIterator[tuple[App, Address]]:
    app = App(on_any_port(memory=True, **settings), storage=storage)
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


def _logins(tmp_path: Path) -> dict[str, Any]:
    password = tmp_path / "password"
    password.write_text("secret-of-admin")
    password.chmod(0o600)
    return {"authentication": Authentication.REQUIRED, "admin_password_file": password, "audit": None}


def _tls(authority: Authority) -> dict[str, Any]:
    identity = authority.issue()
    return {
        "kafka_tls": Address("127.0.0.1", 0),
        "tls_certificate": identity.certificate,
        "tls_key": identity.key,
    }


async def test_requests_have_the_rights_of_the_user_who_logged_in_at_the_member(tmp_path: Path) -> None:
    async with _coordinator(**_logins(tmp_path)) as (app, address):
        member = _Member(address)
        access = app.broker.access
        await access.users.set_password("other", "secret-of-other", iterations=MIN_ITERATIONS)
        admin, other = (
            member.open(access.proven_users.prove(name, Mechanism.SHA_256)) for name in ("admin", "other")
        )
        created = await member.ask(admin, _new_topic("t"), CreateTopicsResponse)
        assert created.topics[0].error_code == 0
        refused = await member.ask(other, _new_topic("u"), CreateTopicsResponse)
        assert refused.topics[0].error_code != 0
        assert sorted(each.info.user or "" for each in app.connections) == ["admin", "other"]
        access.sessions.disconnect("other")
        await until(lambda: len(app.connections) == 1)


async def test_a_user_whose_password_was_changed_or_who_was_deleted_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _coordinator(**_logins(tmp_path)) as (app, address):
        member = _Member(address)
        access = app.broker.access
        await access.users.set_password("other", "secret-of-other", iterations=MIN_ITERATIONS)
        old = access.proven_users.prove("other", Mechanism.SHA_256)
        connection = member.open(old)
        await member.ask(connection, MetadataRequest(topics=[]), MetadataResponse)
        await access.users.set_password("other", "secret-of-other", iterations=MIN_ITERATIONS)
        await until(lambda: connection._upstream is None)
        for each in (connection, member.open(old)):
            with pytest.raises(Unavailable, match="or refused the user"):
                await member.ask(each, MetadataRequest(topics=[]), MetadataResponse)
        assert "relays requests of 'other': a login at another broker, with a password" in caplog.text
        new = access.proven_users.prove("other", "PLAIN")
        await member.ask(member.open(new), MetadataRequest(topics=[]), MetadataResponse)
        await access.users.delete("other")
        with pytest.raises(Unavailable):
            await member.ask(member.open(new), MetadataRequest(topics=[]), MetadataResponse)
        assert access.login_failures["kafka"] == 3


@pytest.mark.parametrize("mechanism", ["", "relay", "SCRAM-SHA-1", CERTIFICATE])
async def test_mechanisms_that_the_coordinator_does_not_accept(tmp_path: Path, mechanism: str) -> None:
    async with _coordinator(**_logins(tmp_path)) as (app, address):
        member = _Member(address)
        proven = app.broker.access.proven_users.prove("admin", mechanism)
        with pytest.raises(Unavailable):
            await member.ask(member.open(proven), MetadataRequest(topics=[]), MetadataResponse)


async def test_certificates_count_where_the_coordinator_takes_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = _tls(authority) | {
        "tls_client_ca": authority.file,
        "tls_client_certificates": ClientCertificates.OPTIONAL,
    }
    proven = ProvenUser(name="ann", mechanism=CERTIFICATE)
    async with _coordinator(**tls, **_logins(tmp_path)) as (app, address):
        member = _Member(address)
        connection = member.open(proven, "kafka_tls")
        await member.ask(connection, MetadataRequest(topics=[]), MetadataResponse)
        assert [each.info.user for each in app.connections] == ["ann"]
        with pytest.raises(Unavailable):
            await member.ask(member.open(proven, "kafka"), MetadataRequest(topics=[]), MetadataResponse)


async def test_a_member_that_is_cut_off_keeps_no_old_login_alive(tmp_path: Path) -> None:
    clock = SystemClock()
    log = CoordinatorStorage(clock)
    settings = _logins(tmp_path)
    async with _coordinator(log, **settings) as (coordinator, address):
        users = coordinator.broker.access.users
        await users.set_password("ann", "first", iterations=MIN_ITERATIONS)
        storage = MemberStorage(log, clock)
        relay = _Member(address).relay
        async with member_app(relay, storage=storage, coordinates=False, **settings) as app:
            storage.failure = StorageFull("the database is away")
            async with Wire(str(app.listeners["kafka"])) as before:
                await log_in(before, "ann", "first")
                await before.ask(DescribeProducersRequest(), DescribeProducersResponse)
                await users.set_password("ann", "second", iterations=MIN_ITERATIONS)
                await until(lambda: not coordinator.connections)
                before.send(DescribeProducersRequest())
                assert await asyncio.wait_for(before.reader.read(), _SECONDS) == b""
            async with Wire(str(app.listeners["kafka"])) as after:
                await log_in(after, "ann", "first")  # the member does not know better
                after.send(DescribeProducersRequest())
                assert await asyncio.wait_for(after.reader.read(), _SECONDS) == b""
            storage.failure = None
            async with Wire(str(app.listeners["kafka"])) as again:
                await log_in(again, "ann", "second")
                await again.ask(DescribeProducersRequest(), DescribeProducersResponse)


async def test_the_audit_log_names_the_broker_that_relays(tmp_path: Path) -> None:
    async with _coordinator(**_logins(tmp_path)) as (app, address):
        recorded: list[tuple[str, bool]] = []

        def record(name: str, peer: str, protocol: str, mechanism: str, failure: LoginFailed | None) -> None:
            recorded.append((mechanism, failure is None))

        app.broker.access.record_login = record  # type: ignore[method-assign,assignment]
        member = _Member(address)
        proven = app.broker.access.proven_users.prove("admin", Mechanism.SHA_512)
        await member.ask(member.open(proven), MetadataRequest(topics=[]), MetadataResponse)
        await app.broker.access.users.set_password("admin", "another", iterations=MIN_ITERATIONS)
        with pytest.raises(Unavailable):
            await member.ask(member.open(proven), MetadataRequest(topics=[]), MetadataResponse)
        mechanism = "SCRAM-SHA-512 relayed by 127.0.0.1"
        assert recorded == [(mechanism, True), (mechanism, False)]


async def test_requests_of_no_user_get_no_further_than_a_connection_without_a_login(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _coordinator(**_logins(tmp_path)) as (_, address):
        member = _Member(address)
        with pytest.raises(Unavailable):
            await member.ask(member.open(), _new_topic("t"), CreateTopicsResponse)
    assert "the broker at 127.0.0.1 relays requests of a client without a login" in caplog.text


async def test_requests_of_a_listener_with_tls_are_relayed_without(tmp_path: Path) -> None:
    async with _coordinator(**_tls(Authority(tmp_path))) as (app, address):
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
        member.coordinator = ScopeHolder(incarnation=uuid4(), address=second)
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
        member.coordinator = ScopeHolder(incarnation=uuid4(), address=second)
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
    async with _peers(lambda passage: Refusal.NOT_HOLDER) as address:
        member = _Member(address)
        with pytest.raises(Unavailable, match="at most 4096 bytes"):
            user = ProvenUser(name="\u00fc" * 5000, mechanism=CERTIFICATE)
            await member.ask(member.open(user), MetadataRequest(topics=[]), MetadataResponse)
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


class _Holder:
    """Answers with the request itself, and refuses all requests from the one with this number on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.answered: list[bytes] = []
        self._serving: list[asyncio.Task[None]] = []

    def adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        return lambda adopted: self._serving.append(asyncio.create_task(self._serve(adopted)))

    async def _serve(self, adopted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=adopted)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                frame = await reader.readexactly(size)
                response = frame[4:8]
                if len(self.answered) < self._most:
                    self.answered.append(frame)
                    response += frame
                writer.write(len(response).to_bytes(4) + response)
                if len(response) == 4:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.gather(*self._serving), _SECONDS)


async def test_requests_that_the_holder_refuses_go_to_the_next_one_in_their_order() -> None:
    first, second = _Holder(most=2), _Holder(most=100)
    async with _peers(first.adopter) as old, _peers(second.adopter) as new:
        member = _Member(old)
        connection = member.open()
        frames = [b"\0\0\0\0" + number.to_bytes(4) + b"request" for number in range(6)]
        sent = [connection.send(memoryview(each)) for each in frames[:4]]
        await asyncio.wait_for(asyncio.wait(sent[:2]), _SECONDS)
        member.coordinator = ScopeHolder(incarnation=uuid4(), address=new)
        sent += [connection.send(memoryview(each)) for each in frames[4:]]
        found = await asyncio.wait_for(asyncio.gather(*sent), _SECONDS)
        assert [each[4:] for each in found] == frames
        assert first.answered + second.answered == frames
        assert len(first.answered) == 2
        assert (member.traffic.relay_failures, member.traffic.relayed_unanswered) == (0, 0)
        connection.close()
        await first.ended()
        await second.ended()
