"""AMQP clients of a member: it speaks with them up to connection.open, and the holder of their virtual host
answers from then on."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any
from uuid import uuid4

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractConnection
from pamqp import frame
from pamqp.commands import Basic, Channel, Connection, Queue

from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.cluster.dialling import ScopeHolder
from posthouse.cluster.forwarding import ForwardedConnection
from posthouse.cluster.preamble import AnyPassage, Refusal
from posthouse.model.address import Address
from posthouse.model.errors import Unavailable
from posthouse.model.proven_user import PLAIN, ProvenUser
from posthouse.model.scopes import scope_of_namespace
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.introduction import Origin
from posthouse.settings import ClientCertificates
from tests.certificates import Authority
from tests.cluster.nodes import until
from tests.cluster.transfers import ADMIN, PASSWORD, Brokers, brokers, logins
from tests.protocols.amqp.wire import CAPABILITIES, HEARTBEAT, PROTOCOL_HEADER, Closed, Wire
from tests.wire.amqp import message_frames

pytestmark = pytest.mark.timeout(120)

SECONDS = 30


def encoded(*methods: tuple[int, Any]) -> bytes:
    return b"".join(frame.marshal(method, channel) for channel, method in methods)


START_OK = Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest")  # type: ignore[dict-item]
OPENING = encoded((0, Connection.TuneOk(2047, 131072, 0)), (0, Connection.Open("/")))
BODY = b"x" * 100_000
BEHIND = encoded((1, Channel.Open()), (1, Queue.Declare(queue="q"))) + message_frames(
    1, Basic.Publish(0, "", "q"), BODY, Basic.Properties(), 60_000
)


def only_connection(app: Any) -> ConnectionInfo:
    [found] = app.connections
    info = found.info
    assert isinstance(info, ConnectionInfo)
    return info


# Opening


async def test_a_client_is_served_by_the_coordinator() -> None:
    async with brokers() as made, await made.wire().open(name="billing") as wire:
        assert wire.server_properties["product"] == "RabbitMQ"
        await wire.channel(1)
        await wire.call(1, Queue.Declare(queue="q"))
        [passage] = made.passages
        own = wire.writer.get_extra_info("sockname")
        assert passage.listener == "amqp"
        assert passage.client == Address(own[0], own[1])
        assert passage.scope == scope_of_namespace("/")
        assert passage.user is None
        assert "q" in made.coordinator.broker.namespaces.get("/").queues
        [forwarded] = made.member.connections
        assert isinstance(forwarded, ForwardedConnection)
        await wire.close()
        await until(lambda: not made.member.connections and not made.coordinator.connections)


async def test_what_is_negotiated_is_shown_at_the_coordinator(tmp_path: Path) -> None:
    properties: Any = {
        "product": "test",
        "version": "1.2",
        "connection_name": "billing",
        "capabilities": CAPABILITIES,
        "nested": {"list": [1, -3, 2.5, True, None, "ä"], "big": 2**40},
    }
    async with brokers(**logins(tmp_path)) as made, await made.wire().connect() as wire:
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        wire.send(0, Connection.StartOk(properties, "PLAIN", f"\0{ADMIN}\0{PASSWORD}"))
        await wire.expect(0, Connection.Tune)
        wire.send(0, Connection.TuneOk(17, 8192, 30))
        wire.send(0, Connection.Open("/"))
        await wire.expect(0, Connection.OpenOk)
        info = only_connection(made.coordinator)
        own = wire.writer.get_extra_info("sockname")
        assert info.peer == f"{own[0]}:{own[1]}"
        assert info.user == ADMIN
        assert info.client == "test 1.2 (billing)"
        assert info.client_properties == properties
        assert (info.channel_max, info.frame_max, info.heartbeat_seconds) == (17, 8192, 30)
        assert (info.mechanism, info.namespace, info.has_tls) == ("PLAIN", "/", False)


@pytest.mark.parametrize("waits_for_tune", [True, False])
@pytest.mark.parametrize("piece", [1_000_000, 997, 61])
async def test_what_is_sent_behind_open_is_not_lost(waits_for_tune: bool, piece: int) -> None:
    async with brokers() as made, await made.wire().connect() as wire:
        sent = OPENING + BEHIND
        if waits_for_tune:
            wire.writer.write(PROTOCOL_HEADER)
            await wire.expect(0, Connection.Start)
            wire.send(0, START_OK)
            await wire.expect(0, Connection.Tune)
        else:
            sent = PROTOCOL_HEADER + encoded((0, START_OK)) + sent
        for start in range(0, len(sent), piece):
            wire.writer.write(sent[start : start + piece])
            await asyncio.sleep(0)
        if not waits_for_tune:
            await wire.expect(0, Connection.Start)
            await wire.expect(0, Connection.Tune)
        await wire.expect(0, Connection.OpenOk)
        await wire.expect(1, Channel.OpenOk)
        await wire.expect(1, Queue.DeclareOk)
        found = await wire.call(1, Basic.Get(queue="q"))
        assert found.body == BODY


async def test_what_is_sent_while_no_broker_holds_the_scope_is_not_lost() -> None:
    async with brokers() as made, await made.wire().connect() as wire:
        holder, made.holder = made.holder, None
        wire.writer.write(PROTOCOL_HEADER + encoded((0, START_OK)))
        await wire.expect(0, Connection.Start)
        await wire.expect(0, Connection.Tune)
        wire.writer.write(OPENING)
        [waiting] = made.member.connections
        await until(lambda: waiting._conversation._is_held)  # type: ignore[attr-defined]
        for start in range(0, len(BEHIND), 10_000):
            wire.writer.write(BEHIND[start : start + 10_000])
            await asyncio.sleep(0.001)
        made.holder = holder
        await wire.expect(0, Connection.OpenOk)
        await wire.expect(1, Channel.OpenOk)
        await wire.expect(1, Queue.DeclareOk)
        found = await wire.call(1, Basic.Get(queue="q"))
        assert found.body == BODY


async def test_a_client_that_waits_is_not_read_from_without_limit() -> None:
    body = b"x" * 10_000_000
    async with brokers() as made, await made.wire().connect() as wire:
        holder, made.holder = made.holder, None
        wire.writer.write(PROTOCOL_HEADER + encoded((0, START_OK)))
        await wire.expect(0, Connection.Start)
        await wire.expect(0, Connection.Tune)
        wire.writer.write(OPENING + encoded((1, Channel.Open()), (1, Queue.Declare(queue="q"))))
        wire.publish(1, "", "q", body)
        [waiting] = made.member.connections
        await until(lambda: waiting._flow.is_paused)  # type: ignore[attr-defined]
        kept: bytearray = waiting._transferring._behind_open.kept  # type: ignore[attr-defined]
        before = len(kept)
        await asyncio.sleep(0.3)
        assert 0 < len(kept) == before < 1_000_000
        made.holder = holder
        await wire.expect(0, Connection.OpenOk)
        await wire.expect(1, Channel.OpenOk)
        await wire.expect(1, Queue.DeclareOk)
        found = await wire.call(1, Basic.Get(queue="q"))
        assert found.body == body


async def test_an_unknown_virtual_host_is_refused_by_the_coordinator() -> None:
    async with brokers() as made:
        with pytest.raises(Closed) as closed:
            await made.wire().open(vhost="nowhere")
        assert (closed.value.code, closed.value.text) == (530, "NOT_ALLOWED - vhost nowhere not found")
        assert (closed.value.class_id, closed.value.method_id) == (10, 40)
        await until(lambda: not made.member.connections and not made.coordinator.connections)


async def test_a_virtual_host_with_a_name_that_is_too_long() -> None:
    async with brokers() as made, await made.wire().connect() as wire:
        wire.writer.write(PROTOCOL_HEADER + encoded((0, START_OK), (0, Connection.TuneOk(2047, 131072, 0))))
        await wire.expect(0, Connection.Start)
        await wire.expect(0, Connection.Tune)
        opening = Connection.Open()
        opening.virtual_host = "v" * 200
        wire.send_unchecked(0, opening)
        with pytest.raises(Closed) as closed:
            await wire.expect(0, Connection.OpenOk)
        assert closed.value.code == 530


# What the member refuses


@pytest.mark.parametrize("can_be_told", [True, False])
async def test_a_wrong_password_is_refused_by_the_member(tmp_path: Path, can_be_told: bool) -> None:
    capabilities = CAPABILITIES if can_be_told else {}
    async with brokers(**logins(tmp_path)) as made:
        if can_be_told:
            with pytest.raises(Closed) as closed:
                await made.wire().open(user=ADMIN, password="wrong", capabilities=capabilities)
            assert closed.value.code == 403
            assert closed.value.text.startswith("ACCESS_REFUSED - Login was refused using")
        else:
            with pytest.raises(asyncio.IncompleteReadError):
                await made.wire().open(user=ADMIN, password="wrong", capabilities=capabilities)
        assert made.passages == []
        assert made.member.broker.access.login_failures["amqp"] == 1


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (encoded((0, START_OK), (0, Connection.Open("/"))), 504),
        (encoded((0, START_OK), (0, Connection.TuneOk(2047, 100, 0)), (0, Connection.Open("/"))), 530),
        (encoded((0, START_OK)) + b"\x09\x00\x00\x00\x00\x00\x00\xce", 501),
        (encoded((0, START_OK), (1, Channel.Open())), 504),
    ],
    ids=["no tune-ok", "too small frames", "no frame", "a channel before open"],
)
async def test_what_does_not_belong_there_is_refused_by_the_member(sent: bytes, code: int) -> None:
    async with brokers() as made, await made.wire().connect() as wire:
        wire.writer.write(PROTOCOL_HEADER + sent)
        await wire.expect(0, Connection.Start)
        await wire.expect(0, Connection.Tune)
        with pytest.raises(Closed) as closed:
            await wire.expect(0, Connection.OpenOk)
        assert closed.value.code == code
        assert made.passages == []


async def test_a_client_of_another_protocol_is_told_so_by_the_member() -> None:
    async with brokers() as made, await made.wire().connect() as wire:
        wire.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await asyncio.wait_for(wire.reader.read(), SECONDS) == PROTOCOL_HEADER
        assert made.passages == []


# Users


async def test_a_password_that_was_changed_a_moment_ago(tmp_path: Path) -> None:
    """The member asks the database before it refuses a login."""
    async with brokers(**logins(tmp_path)) as made:
        await made.users.set_password("ann", "first", iterations=MIN_ITERATIONS)
        async with await _opened(made, "ann", "first") as wire:
            await made.users.set_password("ann", "second", iterations=MIN_ITERATIONS)
            close = await wire.expect(0, Connection.Close)
            assert (close.reply_code, close.reply_text) == (
                320,
                "CONNECTION_FORCED - user 'ann' has another password now",
            )
            wire.send(0, Connection.CloseOk())
            await wire.ended()
        async with await _opened(made, "ann", "second"):
            assert only_connection(made.coordinator).user == "ann"
            with pytest.raises(Closed, match="403"):
                await _opened(made, "ann", "first")


async def test_a_member_that_is_behind_admits_no_old_password(tmp_path: Path) -> None:
    async with brokers(**logins(tmp_path)) as made:
        await made.users.set_password("ann", "first", iterations=MIN_ITERATIONS)
        async with await _opened(made, "ann", "first"):
            pass
        made.storage.failure = Unavailable("the database is away")
        await made.users.set_password("ann", "second", iterations=MIN_ITERATIONS)
        offences = made.coordinator._gate.counters.offences
        for capabilities in (CAPABILITIES, {}):
            with pytest.raises(Closed) as closed:
                await made.wire().open(user="ann", password="first", capabilities=capabilities)
            assert closed.value.code == 403
            assert "Login was refused using authentication mechanism PLAIN" in closed.value.text
        assert len(made.passages) == 3
        assert made.coordinator._gate.counters.offences == offences, "the client is not to blame"
        assert made.coordinator.broker.access.login_failures["amqp"] == 2


async def _opened(made: Brokers, user: str, password: str) -> Wire:
    return await made.wire().open(user=user, password=password)


async def test_no_password_goes_to_the_other_broker(tmp_path: Path) -> None:
    received = b""

    async def listen(accepted: socket.socket) -> None:
        nonlocal received
        reader, writer = await asyncio.open_connection(sock=accepted)
        while data := await reader.read(65536):
            received += data
        writer.close()

    listening: list[asyncio.Task[None]] = []

    def adopt(passage: AnyPassage) -> Any:
        return lambda accepted: listening.append(asyncio.create_task(listen(accepted)))

    async with brokers(**logins(tmp_path)) as made, await made.wire().connect() as wire:
        made.adopt = adopt
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        wire.send(0, Connection.StartOk({}, "PLAIN", f"\0{ADMIN}\0{PASSWORD}"))
        await wire.expect(0, Connection.Tune)
        wire.writer.write(OPENING)
        await until(lambda: b"\x00\x0a\x00\x28" in received)
        assert PASSWORD.encode() not in received
        user = made.passages[0].user
        assert user is not None
        assert (user.name, user.mechanism) == (ADMIN, PLAIN)
        wire.writer.close()
        await asyncio.wait_for(asyncio.gather(*listening), SECONDS)


async def test_a_client_without_a_login_is_not_admitted(tmp_path: Path) -> None:
    """A broker whose settings say that no login is required is trusted in nothing else."""
    async with brokers(**logins(tmp_path)) as made:
        for user in (None, ProvenUser(name=ADMIN, mechanism=PLAIN, credential=b"guessed")):
            closed = await _introduced(made, user)
            assert closed.reply_code == 403


async def _introduced(made: Brokers, user: ProvenUser | None) -> Any:
    """How the coordinator closes a connection that a broker transfers for this user."""
    listener = made.coordinator.listener("amqp")
    assert listener is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    origin = Origin(client=Address("10.0.0.1", 5), relayed_by=uuid4(), is_transferred=True, user=user)
    listener.adopt(there, origin)
    wire = made.wire()
    wire.reader, wire.writer = await asyncio.open_connection(sock=here)
    start_ok = Connection.StartOk({}, "PLAIN", "")
    wire.writer.write(PROTOCOL_HEADER + encoded((0, start_ok)) + OPENING)
    _, closed = await wire.receive()
    wire.writer.close()
    return closed


# Counting


async def test_a_connection_of_a_user_counts_once(tmp_path: Path) -> None:
    async with brokers(max_connections_per_user=1, **logins(tmp_path)) as made:
        sessions = [each.broker.access.sessions for each in (made.member, made.coordinator)]
        async with await made.wire().open(user=ADMIN, password=PASSWORD):
            assert [each.count(ADMIN) for each in sessions] == [1, 0]
            with pytest.raises(Closed) as closed:
                await made.wire().open(user=ADMIN, password=PASSWORD)
            assert closed.value.code == 530
            assert "user connection limit (1) is reached" in closed.value.text
        await until(lambda: [each.count(ADMIN) for each in sessions] == [0, 0])
        async with await made.wire().open(user=ADMIN, password=PASSWORD):
            pass


async def test_an_address_that_has_too_many_connections_at_the_coordinator() -> None:
    async with brokers(max_connections_per_address=2) as made:
        there = made.coordinator.listeners["amqp"]
        async with await Wire(there.host, there.port).open(), await Wire(there.host, there.port).open():
            with pytest.raises(Closed) as closed:
                await made.wire().open()
            assert closed.value.code == 320
            assert closed.value.text == (
                "CONNECTION_FORCED - the broker that serves the virtual host has not answered; connect again"
            )
        await until(lambda: not made.member.connections)


# The holder


async def test_no_broker_holds_the_scope(caplog: pytest.LogCaptureFixture) -> None:
    async with brokers(patience_seconds=0.3) as made:
        made.holder = None
        offences = made.member._gate.counters.offences
        with pytest.raises(Closed) as closed:
            await made.wire().open()
        assert (closed.value.code, closed.value.text) == (
            320,
            "CONNECTION_FORCED - the virtual host cannot be served now: no broker is the holder of "
            "namespaces/10; connect again",
        )
        await until(lambda: not made.member.connections)
        assert made.member._gate.counters.offences == offences
        assert "did not agree to the close" not in caplog.text


async def test_heartbeats_while_no_broker_holds_the_scope() -> None:
    async with brokers() as made, await made.wire().connect() as wire:
        holder, made.holder = made.holder, None
        wire.writer.write(PROTOCOL_HEADER + encoded((0, START_OK)))
        await wire.expect(0, Connection.Start)
        await wire.expect(0, Connection.Tune)
        wire.writer.write(encoded((0, Connection.TuneOk(2047, 131072, 1)), (0, Connection.Open("/"))))
        for _ in range(3):
            received = await asyncio.wait_for(wire.reader.readexactly(len(HEARTBEAT)), SECONDS)
            assert received == HEARTBEAT
            wire.writer.write(HEARTBEAT)
        made.holder = holder
        await wire.expect(0, Connection.OpenOk)
        assert only_connection(made.coordinator).heartbeat_seconds == 1
        beats = wire.assembler.heartbeats
        wire.writer.write(HEARTBEAT)
        await wire.channel(1)
        async with asyncio.timeout(SECONDS):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await wire.receive()  # the coordinator misses those of the client
        assert wire.assembler.heartbeats > beats


async def test_a_silent_client_does_not_wait_for_a_holder() -> None:
    async with brokers(patience_seconds=60) as made, await made.wire().connect() as wire:
        made.holder = None
        wire.writer.write(PROTOCOL_HEADER + encoded((0, START_OK)))
        await wire.expect(0, Connection.Start)
        await wire.expect(0, Connection.Tune)
        wire.writer.write(encoded((0, Connection.TuneOk(2047, 131072, 1)), (0, Connection.Open("/"))))
        await wire.ended()
        await until(lambda: not made.member.connections)


async def test_a_client_that_is_gone_does_not_wait_for_a_holder(tmp_path: Path) -> None:
    async with brokers(patience_seconds=60, **logins(tmp_path)) as made:
        made.holder = None
        wire = await made.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        wire.send(0, Connection.StartOk({}, "PLAIN", f"\0{ADMIN}\0{PASSWORD}"))
        await wire.expect(0, Connection.Tune)
        wire.writer.write(OPENING)
        [waiting] = made.member.connections
        await until(lambda: waiting._conversation._is_held)  # type: ignore[attr-defined]
        wire.writer.close()
        await until(lambda: not made.member.connections)
        assert made.member.broker.access.sessions.count(ADMIN) == 0
        made.holder = ScopeHolder(incarnation=uuid4(), address=made.peer)
        assert made.passages == []


async def test_the_password_of_a_client_that_waits_is_changed(tmp_path: Path) -> None:
    async with brokers(**logins(tmp_path)) as made:
        holder, made.holder = made.holder, None
        await made.users.set_password("ann", "first", iterations=MIN_ITERATIONS)
        opening = asyncio.create_task(made.wire().open(user="ann", password="first"))
        await until(lambda: made.member.connections and _is_waiting(made.member.connections[0]))
        await made.users.set_password("ann", "second", iterations=MIN_ITERATIONS)
        made.holder = holder
        with pytest.raises(Closed) as closed:
            await opening
        assert closed.value.code in (320, 403)


def _is_waiting(connection: Any) -> bool:
    return connection._transferring._task is not None


async def test_a_holder_that_closes_before_it_answers() -> None:
    async with brokers() as made:
        made.adopt = lambda passage: lambda accepted: accepted.close()
        with pytest.raises(Closed) as closed:
            await made.wire().open()
        assert closed.value.code == 320
        await until(lambda: not made.member.connections)
        made.adopt = None
        async with await made.wire().open():
            pass


async def test_a_holder_that_refuses_is_asked_again_until_it_holds_the_scope() -> None:
    refusals = 0

    def adopt(passage: AnyPassage) -> Refusal:
        nonlocal refusals
        refusals += 1
        if refusals == 2:
            made.adopt = None
        return Refusal.NOT_HOLDER

    async with brokers() as made:
        made.adopt = adopt
        async with await made.wire().open():
            assert refusals == 2


async def test_a_broker_that_does_not_hold_the_scope_any_more_transfers_no_further() -> None:
    async with brokers() as made:
        made.coordinator.broker.namespaces.held.release(scope_of_namespace("/"))
        with pytest.raises(Closed) as closed:
            await made.wire().open()
        assert (closed.value.code, closed.value.text) == (
            320,
            "CONNECTION_FORCED - another broker serves the virtual host now; connect again",
        )
        assert len(made.passages) == 1


async def test_another_holder_is_known_before_the_first_has_answered() -> None:
    """It hangs, or its machine is gone."""
    adopted: list[socket.socket] = []
    async with brokers() as made:
        made.adopt = lambda passage: adopted.append
        opening = asyncio.create_task(made.wire().open())
        await until(lambda: adopted)
        made.adopt = None
        made.holder = ScopeHolder(incarnation=uuid4(), address=made.peer)
        with pytest.raises(Closed) as closed:
            await opening
        assert closed.value.code == 320
        await until(lambda: not made.member.connections)
        for each in adopted:
            each.close()


async def test_another_holder_is_known() -> None:
    async with brokers() as made, await made.wire().open() as wire:
        made.holder = ScopeHolder(incarnation=uuid4(), address=None)
        await wire.ended()
        await until(lambda: not made.coordinator.connections)


# TLS


def _tls(authority: Authority) -> dict[str, Any]:
    identity = authority.issue()
    return {
        "amqp_tls": Address("127.0.0.1", 0),
        "tls_certificate": identity.certificate,
        "tls_key": identity.key,
        "tls_client_ca": authority.file,
        "tls_client_certificates": ClientCertificates.OPTIONAL,
    }


def _context(authority: Authority, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if name is not None:
        own = authority.issue(name=name)
        context.load_cert_chain(own.certificate, own.key)
    return context


@pytest.mark.parametrize("is_certified", [False, True])
async def test_tls_ends_at_the_member(tmp_path: Path, is_certified: bool) -> None:
    authority = Authority(tmp_path)
    async with brokers(**_tls(authority), **logins(tmp_path)) as made:
        address = made.member.listeners["amqp_tls"]
        credentials: Any = pika.PlainCredentials(ADMIN, PASSWORD)
        if is_certified:
            credentials = pika.credentials.ExternalCredentials()
        shown: list[ConnectionInfo] = []

        def talk() -> None:
            context = _context(authority, ADMIN if is_certified else None)
            parameters = pika.ConnectionParameters(
                address.host,
                address.port,
                credentials=credentials,
                ssl_options=pika.SSLOptions(context, "127.0.0.1"),
            )
            connection = pika.BlockingConnection(parameters)
            channel = connection.channel()
            channel.queue_declare("q", exclusive=True)
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"hello" * 300_000)
            method, _, body = channel.basic_get("q")
            assert body == b"hello" * 300_000
            channel.basic_ack(method.delivery_tag)
            shown.append(only_connection(made.coordinator))
            connection.close()

        await asyncio.to_thread(talk)
        [info] = shown
        assert (info.user, info.has_tls) == (ADMIN, True)
        assert info.mechanism == ("EXTERNAL" if is_certified else "PLAIN")
        await until(lambda: not made.member.connections and not made.coordinator.connections)
        assert "q" not in made.coordinator.broker.namespaces.get("/").queues


async def test_aio_pika_with_tls_is_told_of_a_holder_that_stops(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with brokers(**_tls(authority)) as made:
        address = made.member.listeners["amqp_tls"]
        closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        connection = await aio_pika.connect(
            f"amqps://guest:guest@{address}/", ssl_context=_context(authority), timeout=SECONDS
        )

        def has_closed(_: AbstractConnection | None, error: BaseException | None) -> None:
            if not closed.done():
                closed.set_result(error)

        connection.close_callbacks.add(has_closed)
        channel = await connection.channel()
        await channel.declare_queue("q", exclusive=True)
        listener = made.coordinator.listener("amqp_tls")
        assert listener is not None
        for each in list(listener):
            each.finish()
        reason = await asyncio.wait_for(closed, SECONDS)
        assert "CONNECTION_FORCED" in str(reason)
        await until(lambda: not made.member.connections and not made.coordinator.connections)


async def test_a_certificate_counts_only_where_the_holder_takes_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with brokers(**_tls(authority), **logins(tmp_path)) as made:
        closed = await _introduced(made, ProvenUser(name=ADMIN, mechanism="certificate"))
        assert closed.reply_code == 403, "the listener has no TLS"
