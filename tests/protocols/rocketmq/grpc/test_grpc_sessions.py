"""Routes, Telemetry and connections: how clients begin, what they must say, and TLS."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from msgspec.structs import replace as replaced

from posthouse.protocols.rocketmq.grpc import clients as grpc_clients
from posthouse.protocols.rocketmq.grpc.messages import service
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Address as GrpcAddress
from posthouse.protocols.rocketmq.grpc.messages.definition import Endpoints
from posthouse.protocols.rocketmq.grpc.messages.enums import (
    AddressScheme,
    ClientType,
    MessageType,
    Permission,
)
from posthouse.protocols.rocketmq.grpc.messages.service import (
    HeartbeatRequest,
    HeartbeatResponse,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    SyncLiteSubscriptionRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    Settings,
    TelemetryCommand,
    ThreadStackTrace,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.certificates import Authority
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT, client_of, configure
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, OK, MessagingClient, bodies

ENDPOINTS = Endpoints(
    scheme=AddressScheme.DOMAIN_NAME, addresses=(GrpcAddress(host="broker.example", port=1234),)
)


# Routes


async def test_a_route_makes_the_topic(broker: AsyncBroker, client: MessagingClient) -> None:
    request = QueryRouteRequest(topic=client.resource("orders"), endpoints=ENDPOINTS)
    for _ in range(2):
        answer = await client.call(request, QueryRouteResponse)
        assert answer.status is not None and answer.status.code == Code.OK
        assert [each.id for each in answer.message_queues] == [0, 1, 2, 3]
        for each in answer.message_queues:
            assert each.topic == client.resource("orders")
            assert each.permission == Permission.READ_WRITE
            assert each.broker is not None and each.broker.endpoints == ENDPOINTS
            # Not PRIORITY, which clients in Java up to 5.1.0 cannot read.
            assert set(each.accept_message_types) == {
                MessageType.NORMAL,
                MessageType.FIFO,
                MessageType.DELAY,
                MessageType.TRANSACTION,
            }
    assert broker.app.broker.topic("orders").partitions == 4


async def test_routes_for_clients_in_python(client: MessagingClient) -> None:
    """They check the type of a message until they have read settings that say otherwise, and fail on answers
    that come before they wait for them."""
    client.metadata = (*client.metadata, ("x-mq-language", "PYTHON"))
    for _ in range(2):  # the topic is new, and is there
        began = time.monotonic()
        answer = await client.call(QueryRouteRequest(topic=client.resource("orders")), QueryRouteResponse)
        assert time.monotonic() - began >= 0.05
        assert len(answer.message_queues) == 4
        assert all(MessageType.PRIORITY in each.accept_message_types for each in answer.message_queues)


async def test_a_route_without_endpoints(broker: AsyncBroker, client: MessagingClient) -> None:
    answer = await client.call(QueryRouteRequest(topic=client.resource("orders")), QueryRouteResponse)
    address = Address.parse(broker.address("rocketmq_grpc"))
    found = answer.message_queues[0].broker
    assert found is not None and found.endpoints is not None
    assert found.endpoints.scheme == AddressScheme.IPv4
    assert found.endpoints.addresses == (GrpcAddress(host=address.host, port=address.port),)


async def test_routes_that_are_refused(client: MessagingClient) -> None:
    for name in ("", "a b", "x" * 300, "TBW102"):
        assert await client.code(QueryRouteRequest(topic=client.resource(name))) == Code.ILLEGAL_TOPIC
    assert await client.code(QueryRouteRequest()) == Code.ILLEGAL_TOPIC


async def test_a_route_that_makes_no_topic() -> None:
    async with (
        AsyncBroker(rocketmq_grpc=ANY_PORT, auto_create_topics=False) as broker,
        client_of(broker) as client,
    ):
        request = QueryRouteRequest(topic=client.resource("orders"))
        assert await client.code(request) == Code.TOPIC_NOT_FOUND


async def test_assignments(client: MessagingClient) -> None:
    await client.send("orders")
    request = QueryAssignmentRequest(
        topic=client.resource("orders"), group=client.resource("group"), endpoints=ENDPOINTS
    )
    answer = await client.call(request, QueryAssignmentResponse)
    [only] = answer.assignments
    assert only.message_queue is not None and only.message_queue.id == -1
    assert only.message_queue.permission == Permission.READ_WRITE
    assert only.message_queue.broker is not None and only.message_queue.broker.endpoints == ENDPOINTS
    unknown = replaced(request, topic=client.resource("unknown"))
    assert await client.code(unknown) == Code.TOPIC_NOT_FOUND
    for nobody in (None, client.resource("")):
        assert await client.code(replaced(request, group=nobody)) == Code.ILLEGAL_CONSUMER_GROUP


# Telemetry


async def test_settings_of_a_producer(client: MessagingClient) -> None:
    async with client.telemetry() as telemetry:
        for topics in (("orders",), ("orders", "others"), ()):
            said = client.publishing(*topics)
            answer = await telemetry.settings(replaced(said, access_point=ENDPOINTS))
            assert (answer.client_type, answer.access_point) == (ClientType.PRODUCER, ENDPOINTS)
            assert answer.publishing is not None and answer.subscription is None
            assert answer.publishing.max_body_size >= 1024 * 1024
            assert not answer.publishing.validate_message_type
            assert answer.backoff_policy is not None
            assert answer.backoff_policy.exponential_backoff is not None
            assert answer.metric is not None and not answer.metric.on


async def test_settings_of_a_consumer(broker: AsyncBroker, client: MessagingClient) -> None:
    async with client.telemetry() as telemetry:
        answer = await telemetry.settings(client.subscription(orders="red"))
        assert answer.client_type == ClientType.PUSH_CONSUMER
        assert answer.subscription is not None and answer.publishing is None
        assert answer.subscription.fifo is False
        assert answer.subscription.receive_batch_size == 32
        assert answer.subscription.long_polling_timeout == Duration(seconds=20)
        assert answer.backoff_policy is not None
        assert answer.backoff_policy.max_attempts == 17, "that of the group which its first receive makes"
        assert answer.backoff_policy.customized_backoff is not None
        assert answer.backoff_policy.customized_backoff.next[0] == Duration(seconds=10)
        await configure(broker, "group", rocketmq_fifo_enable="true", share_delivery_count_limit="3")
        answer = await telemetry.settings(client.subscription(orders="red"))
        assert answer.subscription is not None and answer.subscription.fifo is True
        assert answer.backoff_policy is not None
        assert answer.backoff_policy.max_attempts == 3


async def test_subscriptions_of_settings_are_filters(broker: AsyncBroker, client: MessagingClient) -> None:
    """Before the consumer has received anything."""
    async with client_of(broker, "green") as green, client.telemetry() as telemetry:
        await telemetry.settings(client.subscription(orders="red"))
        await green.send("orders", b"red", tag="red")
        assert await green.receive("orders", expression="green") == []
        assert bodies(await client.receive("orders", expression="red")) == [b"red"]


async def test_commands_that_say_nothing(client: MessagingClient) -> None:
    async with client.telemetry() as telemetry:
        await telemetry.write(b"")
        trace = ThreadStackTrace(nonce="n", thread_stack_trace="t")
        await telemetry.write(TelemetryCommand(thread_stack_trace=trace).encode())
        answer = await telemetry.settings(client.publishing())
        assert answer.publishing is not None
        await telemetry.close()


BAD_SETTINGS: dict[str, Callable[[MessagingClient], Settings]] = {
    "a bad group": lambda client: client.subscription("a b", orders="*"),
    "a bad filter": lambda client: client.subscription("group", orders="||"),
    "no group": lambda client: client.subscription("", orders="*"),
    "neither a producer nor a consumer": lambda client: Settings(client_type=ClientType.PUSH_CONSUMER),
    "a topic without name": lambda client: client.publishing(""),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
async def test_settings_that_are_refused(client: MessagingClient, name: str) -> None:
    async with client.telemetry() as telemetry:
        command = TelemetryCommand(settings=BAD_SETTINGS[name](client))
        await telemetry.write(command.encode())
        assert await telemetry.end() is grpc.StatusCode.INVALID_ARGUMENT
    answer = await client.beat()
    assert answer.status is not None and answer.status.code == OK


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x05", bytes(1024 * 1024 + 1)])
async def test_telemetry_that_is_malformed(client: MessagingClient, data: bytes) -> None:
    async with client.telemetry() as telemetry:
        await telemetry.write(data)
        assert await telemetry.end() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_second_stream_takes_the_place_of_the_first(
    broker: AsyncBroker, client: MessagingClient
) -> None:
    async with client.telemetry() as first:
        await first.settings(client.publishing("orders"))
        async with client.telemetry() as second:
            await second.settings(client.publishing("orders"))
            await first.close()
            [known] = [each for each in broker_clients(broker) if each.id == "client"]
            assert known.telemetry is not None


def broker_clients(broker: AsyncBroker) -> grpc_clients.GrpcClients:
    for served in broker.app._served:
        for connection in served.listener:
            server = getattr(getattr(connection, "session", None), "server", None)
            if server is not None and hasattr(server, "clients"):
                found: grpc_clients.GrpcClients = server.clients
                return found
    raise AssertionError("no client is connected")


# Calls of any kind


async def test_calls_without_a_client_id(broker: AsyncBroker) -> None:
    async with client_of(broker, None) as nobody, client_of(broker, "x" * 513) as long:
        for client in (nobody, long):
            for rpc in service.RPCS:
                if rpc.streams_requests:
                    continue
                if rpc.streams_responses:
                    [only] = [data async for data in client.stream(rpc.request())]
                else:
                    only = await client.call_bytes(rpc.name, b"")
                status = rpc.response.decode(only).status  # type: ignore[attr-defined]
                assert status.code == Code.CLIENT_ID_REQUIRED, rpc.name
            async with client.telemetry() as telemetry:
                assert await telemetry.end() is grpc.StatusCode.INVALID_ARGUMENT


async def test_malformed_requests(client: MessagingClient) -> None:
    """The connection goes on."""
    for rpc in service.RPCS:
        if rpc.streams_requests:
            continue
        for data in (b"\xff", b"\x0a\x05abc"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                if rpc.streams_responses:
                    call = client.channel.unary_stream(rpc.path)(data, metadata=client.metadata)
                    assert [each async for each in call] == []
                else:
                    await client.call_bytes(rpc.name, data)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, (rpc.name, data)
    answer = await client.beat()
    assert answer.status is not None and answer.status.code == OK


async def test_empty_requests(client: MessagingClient) -> None:
    """Every call has an answer with a status, and none is an error of the broker itself."""
    for rpc in service.RPCS:
        if rpc.streams_requests:
            continue
        if rpc.streams_responses:
            [data] = [each async for each in client.stream(rpc.request())]
        else:
            data = await client.call_bytes(rpc.name, b"")
        status = rpc.response.decode(data).status  # type: ignore[attr-defined]
        assert status is not None, rpc.name
        assert status.code < Code.INTERNAL_ERROR or status.code == Code.NOT_IMPLEMENTED, rpc.name


async def test_lite_topics(client: MessagingClient) -> None:
    assert await client.code(SyncLiteSubscriptionRequest()) == Code.NOT_IMPLEMENTED


async def test_a_connection_speaks_for_a_thousand_clients(
    client: MessagingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_clients, "MOST_OF_CONNECTION", 3)
    codes: list[int] = []
    for number in range(5):
        call = client.channel.unary_unary("/apache.rocketmq.v2.MessagingService/Heartbeat")
        data = await call(HeartbeatRequest().encode(), metadata=(("x-mq-client-id", f"client{number}"),))
        status = HeartbeatResponse.decode(data).status
        assert status is not None
        codes.append(int(status.code))
    assert codes == [Code.OK] * 3 + [Code.BAD_REQUEST] * 2


async def test_tls_and_not(tmp_path: Path) -> None:
    """On one port: the first byte says which it is."""
    authority = Authority(tmp_path)
    identity = authority.issue()
    async with AsyncBroker(
        rocketmq_grpc=ANY_PORT, tls_certificate=identity.certificate, tls_key=identity.key
    ) as broker:
        address = broker.address("rocketmq_grpc")
        roots = authority.file.read_bytes()
        async with MessagingClient(address) as plain, MessagingClient(address, "tls", roots=roots) as tls:
            await plain.send("orders", b"v")
            [message] = await tls.receive("orders")
            assert await tls.ack("orders", message) == Code.OK


async def test_a_client_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Its stream ends, so that it opens another one; anything else it may call as if nothing had been."""
    settings = {"data": tmp_path, "rocketmq_grpc": ANY_PORT}
    broker = AsyncBroker(**settings)  # type: ignore[arg-type]
    async with broker:
        client = client_of(broker)
        port = Address.parse(broker.address("rocketmq_grpc"))
        await client.send("orders", b"a", b"b")
        first, second = await client.receive("orders")
        assert await client.ack("orders", first) == Code.OK
        stream = client.channel.stream_stream("/apache.rocketmq.v2.MessagingService/Telemetry")(
            metadata=client.metadata
        )
        await stream.write(TelemetryCommand(settings=client.publishing("orders")).encode())
        assert await stream.read() is not grpc.aio.EOF
    async with asyncio.timeout(DEADLINE):
        await stream.code()
    async with AsyncBroker(data=tmp_path, rocketmq_grpc=replace(port)) as broker, client:
        [again] = await client.receive("orders")
        assert again.body == second.body
        assert await client.ack("orders", again) == Code.OK
        answer = await client.beat("group")
        assert answer.status is not None and answer.status.code == OK
        async with client.telemetry() as telemetry:
            await telemetry.settings(client.subscription(orders="*"))
