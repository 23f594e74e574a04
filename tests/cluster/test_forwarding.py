"""Real clients of a member: what it does not serve itself reaches the coordinator."""

import asyncio
import socket
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import aio_pika
import httpx
import pika
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from pamqp.commands import Basic, Connection, Queue

from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.cluster.peer_connection import connect
from posthouse.cluster.preamble import (
    CHALLENGE_BYTES,
    PROOF_BYTES,
    Passage,
    PeerRefused,
    TransferPassage,
    read_request,
    request,
)
from posthouse.model.address import Address
from posthouse.model.proven_user import PLAIN, ProvenUser
from posthouse.model.scopes import COORDINATOR
from posthouse.node import Node
from posthouse.node_life import Role
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.introduction import FORWARDER
from posthouse.settings import Authentication
from tests.certificates import Authority
from tests.cluster import holders
from tests.cluster.nodes import CALM, coordinates, is_closed, node, nodes, until
from tests.protocols.amqp.wire import Closed, Wire

PASSWORD = "secret-of-admin"

Sql = psycopg.Connection[tuple[object, ...]]


def kafka(broker: Node) -> str:
    return str(broker.listeners["kafka"])


async def test_confluent_kafka_at_a_member(url: str) -> None:
    async with nodes(url, "a", "b") as (coordinator, member):
        await until(lambda: len(coordinator.view.brokers) == len(member.view.brokers) == 2)

        def talk() -> None:
            producer = Producer({"bootstrap.servers": kafka(member)})
            for number in range(100):
                producer.produce("orders", str(number))
            assert producer.flush(20) == 0
            consumer = Consumer(
                {"bootstrap.servers": kafka(member), "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["orders"])
            assert len(consumer.consume(100, 20)) == 100
            consumer.close()
            metadata = AdminClient({"bootstrap.servers": kafka(member)}).list_topics(timeout=10)
            addresses = {each.id: f"{each.host}:{each.port}" for each in metadata.brokers.values()}
            assert addresses == {1: kafka(coordinator), 2: kafka(member)}
            assert metadata.controller_id == 1
            assert {each.leader for each in metadata.topics["orders"].partitions.values()} <= {1, 2}

        await asyncio.to_thread(talk)


async def test_aiokafka_at_a_member(url: str) -> None:
    async with nodes(url, "a", "b") as (_, member):
        producer = AIOKafkaProducer(bootstrap_servers=kafka(member))
        await producer.start()
        await producer.send_and_wait("orders", b"x" * 500_000)
        await producer.stop()
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=kafka(member), auto_offset_reset="earliest")
        await consumer.start()
        found = await asyncio.wait_for(consumer.getone(), 20)
        assert len(found.value) == 500_000
        await consumer.stop()


async def test_pika_through_a_member(url: str) -> None:
    async with nodes(url, "a", "b") as (_, member):
        address = member.listeners["amqp"]

        def talk() -> None:
            connection = pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port))
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"hello" * 200_000)
            method, _, body = channel.basic_get("q")
            assert body == b"hello" * 200_000
            channel.basic_ack(method.delivery_tag)
            connection.close()

        await asyncio.to_thread(talk)


async def test_aio_pika_through_a_member(url: str) -> None:
    async with nodes(url, "a", "b") as (coordinator, member), asyncio.timeout(60):
        app = coordinator.parts.life.app
        assert app is not None
        connection = await aio_pika.connect(
            f"amqp://guest:guest@{member.listeners['amqp']}/",
            client_properties={"connection_name": "billing"},
        )
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            queue = await channel.declare_queue(exclusive=True)
            async with queue.iterator() as messages:
                for number in range(100):
                    message = aio_pika.Message(b"%d" % number)
                    assert await channel.default_exchange.publish(message, queue.name)
                for number in range(100):
                    found = await anext(messages)
                    assert found.body == b"%d" % number
                    await found.ack()
            with pytest.raises(aio_pika.exceptions.AMQPError, match="RESOURCE_LOCKED"):
                other = await aio_pika.connect(f"amqp://guest:guest@{coordinator.listeners['amqp']}/")
                async with other:
                    await (await other.channel()).declare_queue(queue.name, passive=True)
        await until(lambda: queue.name not in app.broker.namespaces.get("/").queues)


async def test_operators_see_who_has_connected_to_a_member(url: str, tmp_path: Path) -> None:
    async with (
        nodes(url, "a", "b", **_logins(tmp_path)) as (coordinator, member),
        httpx.AsyncClient() as http,
    ):
        through = member.listeners["amqp"]
        async with await Wire(through.host, through.port).open(
            user="admin", password=PASSWORD, name="billing", heartbeat=60
        ) as wire:
            host, port = wire.writer.get_extra_info("sockname")[:2]
            for broker in (coordinator, member):
                login = ("admin", PASSWORD)
                where = f"http://{broker.listeners['admin']}"
                found = (await http.get(f"{where}/v1/connections", auth=login)).json()
                [shown] = [each for each in found["items"] if each["listener"] == "amqp"]
                assert (shown["peer"], shown["user"]) == (f"{host}:{port}", "admin")
                [managed] = (await http.get(f"{where}/api/connections", auth=login)).json()
                assert (managed["peer_host"], managed["peer_port"]) == (host, port)
                assert (managed["user"], managed["vhost"], managed["ssl"]) == ("admin", "/", False)
                assert managed["client_properties"]["connection_name"] == "billing"
                assert (managed["timeout"], managed["auth_mechanism"]) == (60, "PLAIN")


async def test_a_client_waits_in_open_until_its_member_takes_over(url: str, sql: Sql) -> None:
    """The coordinator is dead, and its lease has yet to end. The member that the client has connected to
    becomes the coordinator, and opens the connection."""
    dead = holders.coordinator(sql, seconds=3600)
    member = node(url, "a")
    await member.start()
    try:
        assert not coordinates(member)()
        address = member.listeners["amqp"]
        wire = Wire(address.host, address.port)
        opening = asyncio.create_task(wire.open(heartbeat=1))
        app = member.parts.life.app
        assert app is not None
        await until(lambda: any(_is_waiting(each) for each in app.connections))
        sql.execute("UPDATE lease SET until = clock_timestamp() WHERE holder = %s", [dead])
        await asyncio.wait_for(opening, 30)
        assert coordinates(member)()
        await wire.channel(1)
        await wire.call(1, Queue.Declare(queue="q", exclusive=True))
        wire.publish(1, "", "q", b"hello")
        assert (await wire.call(1, Basic.Get(queue="q"))).body == b"hello"
        assert len(app.connections) == 2, "as those of other members it reaches the coordinator by a socket"
        async with await Wire(address.host, address.port).open():
            assert len(app.connections) == 3, "this one is served directly"
        await wire.close()
        await until(lambda: not app.connections)
    finally:
        await member.stop()


def _is_waiting(connection: Any) -> bool:
    return connection._transferring._task is not None


async def test_a_client_waits_in_open_while_the_coordinator_moves(url: str) -> None:
    async with nodes(url, "a", "b", "c", times=CALM) as (first, second, third):
        await until(lambda: all(len(each.view.brokers) == 3 for each in (first, second, third)))
        address = third.listeners["amqp"]
        async with await Wire(address.host, address.port).open() as told:
            await first.stop()
            close = await told.expect(0, Connection.Close)
            assert close.reply_code == 320
            async with await Wire(address.host, address.port).open() as wire:
                await wire.channel(1)
                await wire.call(1, Queue.Declare(queue="q"))
                assert Role.COORDINATOR in (second.role, third.role)


async def test_the_coordinator_sees_the_address_of_the_client(url: str) -> None:
    async with nodes(url, "a", "b") as (coordinator, member):
        address = member.listeners["amqp"]
        app = coordinator.parts.life.app
        assert app is not None
        async with await Wire(address.host, address.port).open() as wire:
            own = wire.writer.get_extra_info("sockname")
            assert [each.peer for each in app.connections] == [f"{own[0]}:{own[1]}"]
        await until(lambda: not app.connections)


async def test_limits_of_the_coordinator_count_connections_by_their_clients(url: str) -> None:
    async with nodes(url, "a", "b", max_connections_per_address=2) as (coordinator, member):
        address = coordinator.listeners["amqp"]
        two = [await asyncio.open_connection(address.host, address.port) for _ in range(2)]
        app = coordinator.parts.life.app
        assert app is not None
        await until(lambda: len(app.connections) == 2)
        through = member.listeners["amqp"]
        wire = Wire(through.host, through.port)
        with pytest.raises((Closed, ConnectionError, asyncio.IncompleteReadError)) as refused:
            await wire.open()  # by the coordinator, or by the member if it has heard of the others
        if isinstance(refused.value, Closed):
            assert refused.value.code == 320
        for _, each in two:
            each.close()


async def test_what_is_of_the_member_is_answered_there_and_the_rest_by_the_coordinator(
    url: str,
) -> None:
    async with nodes(url, "a", "b") as (coordinator, member), httpx.AsyncClient() as http:
        where = f"http://{member.listeners['admin']}"
        assert coordinator.parts.life.app is not None
        counters = coordinator.parts.life.app._gate.counters
        accepted = counters.accepted
        answer = await http.get(f"{where}/health/live")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert (await http.get(f"{where}/health/ready")).json() == {"status": "ok", "reasons": []}
        metrics = (await http.get(f"{where}/metrics")).text.splitlines()
        assert "posthouse_lease_held 0" in metrics
        for path in ("/v1/cluster", "/v1/brokers"):
            assert (await http.get(f"{where}{path}")).json()["current"]
        assert counters.accepted == accepted
        assert (await http.get(f"{where}/v1/topics")).status_code == 200
        assert counters.accepted > accepted


@pytest.mark.parametrize("first", [1, 8, 14])
async def test_requests_that_come_in_pieces_find_their_broker(url: str, first: int) -> None:
    async with nodes(url, "a", "b") as (_, member):
        address = member.listeners["admin"]
        for path, status in (
            ("/health/live", b"200"),
            ("/v1/topics", b"200"),
            ("/v1/brokers", b"200"),
            ("/metricsx", b"404"),
        ):
            request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(request[:first])
            await asyncio.sleep(0.05)
            writer.write(request[first:])
            answer = await asyncio.wait_for(reader.read(), 10)
            assert answer.split(b" ")[1] == status
            writer.close()


async def test_kafka_with_tls_at_a_member(url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.issue()
    settings: dict[str, Any] = {
        "kafka_tls": Address("127.0.0.1", 0),
        "tls_certificate": identity.certificate,
        "tls_key": identity.key,
    }
    async with nodes(url, "a", "b", **settings) as (coordinator, member):
        where = member.listeners["kafka_tls"]

        def talk() -> None:
            client = AdminClient(
                {
                    "bootstrap.servers": str(where),
                    "security.protocol": "ssl",
                    "ssl.ca.location": str(authority.file),
                }
            )
            brokers = client.list_topics(timeout=20).brokers
            assert brokers[1].port == coordinator.listeners["kafka_tls"].port

        await asyncio.to_thread(talk)


async def test_half_closed_connections(url: str) -> None:
    async with nodes(url, "a", "b") as (_, member):
        address = member.listeners["admin"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 200")
        writer.close()


async def test_strangers_cannot_use_the_peer_listener(url: str) -> None:
    async with nodes(url, "a") as (coordinator,):
        peer = coordinator.parts.place.advertised["peer"]
        reader, writer = await asyncio.open_connection(peer.host, peer.port)
        challenge = await reader.readexactly(CHALLENGE_BYTES)
        passage = Passage(listener="kafka", client=Address("10.0.0.1", 5))
        writer.write(request(b"no secret", challenge, passage)[0])
        await is_closed(reader)
        writer.close()
        reader, writer = await asyncio.open_connection(peer.host, peer.port)
        assert await reader.readexactly(CHALLENGE_BYTES) != challenge
        writer.write(b"\xff\xff" + b"x" * 100)
        await is_closed(reader)
        writer.close()


@pytest.mark.parametrize("user", [None, ProvenUser(name="ä", mechanism=PLAIN, credential=b"\xff")])
def test_a_transfer_arrives_as_it_was_asked_for(user: ProvenUser | None) -> None:
    passage = TransferPassage(
        broker=uuid4(), listener="amqp_tls", client=Address("::1", 5), user=user, scope=COORDINATOR
    )
    sent, words = request(b"secret", b"challenge", passage)
    assert read_request(b"secret", b"challenge", words, sent[-PROOF_BYTES:]) == passage


async def test_a_member_of_an_older_release_forwards_amqp_as_it_is(url: str) -> None:
    async with nodes(url, "a") as (coordinator,):
        peer = coordinator.parts.place.advertised["peer"]
        secret = coordinator.parts.life._node.secret
        passage = Passage(listener="amqp", client=Address("10.0.0.1", 5))
        connected = await connect(peer, secret, passage)
        wire = Wire(peer.host, peer.port)
        wire.connect = partial(_over, wire, connected)  # type: ignore[method-assign]
        async with await wire.open():
            app = coordinator.parts.life.app
            assert app is not None
            assert [each.peer for each in app.connections] == ["10.0.0.1:5"]


async def _over(wire: Wire, connected: socket.socket) -> Wire:
    wire.reader, wire.writer = await asyncio.open_connection(sock=connected)
    return wire


def test_a_request_cannot_be_used_again() -> None:
    passage = Passage(listener="kafka", client=Address("::1", 5))
    sent, words = request(b"secret", b"challenge", passage)
    proof = sent[-PROOF_BYTES:]
    assert read_request(b"secret", b"challenge", words, proof) == passage
    with pytest.raises(PeerRefused):
        read_request(b"secret", b"another", words, proof)
    with pytest.raises(PeerRefused):
        read_request(b"secret", b"challenge", words.replace(b"kafka", b"admin"), proof)


def _logins(directory: Path) -> dict[str, Any]:
    password = directory / "password"
    password.touch(0o600)
    password.write_text(PASSWORD)
    return {"authentication": Authentication.REQUIRED, "admin_password_file": password}


async def test_a_login_through_a_member(url: str, tmp_path: Path) -> None:
    async with nodes(url, "a", "b", **_logins(tmp_path)) as (coordinator, member):
        address, app = member.listeners["amqp"], coordinator.parts.life.app
        assert app is not None
        accepted = app._gate.counters.accepted
        with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
            await aio_pika.connect(f"amqp://admin:wrong@{address}/")
        assert app._gate.counters.accepted == accepted, "the member has refused it"
        async with await aio_pika.connect(f"amqp://admin:{PASSWORD}@{address}/"):
            assert [each.info.user for each in app.connections] == ["admin"]
        users = app.broker.access.users
        await users.set_password("ann", "first", iterations=MIN_ITERATIONS)
        async with await aio_pika.connect(f"amqp://ann:first@{address}/"):
            pass
        await users.set_password("ann", "second", iterations=MIN_ITERATIONS)
        async with await aio_pika.connect(f"amqp://ann:second@{address}/"):
            pass


class _Transport(asyncio.Transport):
    def __init__(self, forwarder: Address | None) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), FORWARDER: forwarder})


@pytest.mark.parametrize(("forwarder", "may"), [(None, True), ("127.0.0.1", True), ("10.0.0.2", False)])
def test_passwords_do_not_go_in_the_clear_from_machine_to_machine(forwarder: str | None, may: bool) -> None:
    transport = _Transport(Address(forwarder, 9) if forwarder else None)
    assert PeerIdentity.of(transport, allow_cleartext=False).may_send_password is may
