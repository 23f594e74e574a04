"""Real clients of a member: what it does not serve itself reaches the coordinator."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from posthouse.cluster.preamble import (
    CHALLENGE_BYTES,
    PROOF_BYTES,
    Passage,
    PeerRefused,
    read_request,
    request,
)
from posthouse.model.address import Address
from posthouse.node import Node
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.introduction import FORWARDER
from posthouse.settings import Authentication
from tests.certificates import Authority
from tests.cluster.nodes import is_closed, nodes, until


def kafka(node: Node) -> str:
    return str(node.listeners["kafka"])


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


async def test_the_coordinator_sees_the_address_of_the_client(url: str) -> None:
    async with nodes(url, "a", "b") as (coordinator, member):
        address = member.listeners["amqp"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"AMQP\x00\x00\x09\x01")
        assert await reader.read(1)
        assert coordinator.parts.life.app is not None
        own = writer.get_extra_info("sockname")
        assert [each.peer for each in coordinator.parts.life.app.connections] == [f"{own[0]}:{own[1]}"]
        writer.close()
        await until(
            lambda: coordinator.parts.life.app is not None and not coordinator.parts.life.app.connections
        )


async def test_limits_of_the_coordinator_count_connections_by_their_clients(url: str) -> None:
    async with nodes(url, "a", "b", max_connections_per_address=2) as (coordinator, member):
        address = coordinator.listeners["amqp"]
        two = [await asyncio.open_connection(address.host, address.port) for _ in range(2)]
        app = coordinator.parts.life.app
        assert app is not None
        await until(lambda: len(app.connections) == 2)
        through = member.listeners["amqp"]
        reader, writer = await asyncio.open_connection(through.host, through.port)
        writer.write(b"AMQP\x00\x00\x09\x01")
        await is_closed(reader)
        for _, each in [*two, (reader, writer)]:
            each.close()


async def test_health_and_metrics_are_answered_by_the_member_and_the_rest_by_the_coordinator(
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
        assert counters.accepted == accepted
        assert (await http.get(f"{where}/v1/topics")).status_code == 200
        assert counters.accepted > accepted


@pytest.mark.parametrize("first", [1, 8, 14])
async def test_requests_that_come_in_pieces_find_their_broker(url: str, first: int) -> None:
    async with nodes(url, "a", "b") as (_, member):
        address = member.listeners["admin"]
        for path, status in (("/health/live", b"200"), ("/v1/topics", b"200"), ("/metricsx", b"404")):
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


def test_a_request_cannot_be_used_again() -> None:
    passage = Passage(listener="kafka", client=Address("::1", 5))
    sent, words = request(b"secret", b"challenge", passage)
    proof = sent[-PROOF_BYTES:]
    assert read_request(b"secret", b"challenge", words, proof) == passage
    with pytest.raises(PeerRefused):
        read_request(b"secret", b"another", words, proof)
    with pytest.raises(PeerRefused):
        read_request(b"secret", b"challenge", words.replace(b"kafka", b"admin"), proof)


async def test_a_login_through_a_member(url: str, tmp_path: Path) -> None:
    """Both brokers are on this machine, so a client of this machine may send its password."""
    password = tmp_path / "password"
    password.write_text("secret-of-admin")
    password.chmod(0o600)
    settings: dict[str, Any] = {"authentication": Authentication.REQUIRED, "admin_password_file": password}
    async with nodes(url, "a", "b", **settings) as (_, member):
        address = member.listeners["amqp"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"AMQP\x00\x00\x09\x01")
        start = await asyncio.wait_for(reader.read(4096), 10)
        assert b"PLAIN" in start
        writer.close()


class _Transport(asyncio.Transport):
    def __init__(self, forwarder: Address | None) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), FORWARDER: forwarder})


@pytest.mark.parametrize(("forwarder", "may"), [(None, True), ("127.0.0.1", True), ("10.0.0.2", False)])
def test_passwords_do_not_go_in_the_clear_from_machine_to_machine(forwarder: str | None, may: bool) -> None:
    transport = _Transport(Address(forwarder, 9) if forwarder else None)
    assert PeerIdentity.of(transport, allow_cleartext=False).may_send_password is may
