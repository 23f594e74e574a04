"""A member of a cluster: what it answers, what it relays, in which order, and when the relay is lost."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from posthouse.app import App
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import SystemClock
from posthouse.model.errors import NotLeader, PosthouseError
from posthouse.model.scopes import scope_of_transactional_id
from posthouse.model.topics import Topic
from posthouse.protocols.kafka import companion
from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.codec.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_producers import TopicRequest as ProducersOf
from posthouse.protocols.kafka.codec.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from posthouse.protocols.kafka.codec.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from posthouse.protocols.kafka.codec.generated.end_txn import EndTxnRequest, EndTxnResponse
from posthouse.protocols.kafka.codec.generated.fetch import FetchResponse
from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from posthouse.protocols.kafka.codec.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.codec.generated.share_fetch import ShareFetchRequest, ShareFetchResponse
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.companions import MOST_IN_FLIGHT
from posthouse.protocols.kafka.config_resources import ResourceType
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.member_dispatch import LOCAL
from posthouse.protocols.kafka.nodes import NO_NODE_ID
from posthouse.protocols.kafka.served_apis import HANDLERS
from posthouse.protocols.leaders import leaders
from posthouse.settings import Authentication
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append, Operation
from tests.broker.members import CoordinatorStorage, MemberStorage
from tests.protocols.kafka.members import COORDINATOR, OTHER, OWN, VIEW, HeldRelay, Standing, member
from tests.protocols.kafka.test_login import PASSWORD, log_in
from tests.protocols.kafka.wire import Wire, batch, batch_of, fetch_request, produce_request
from tests.wire.kafka import PendingRequest, RequestEncoder


@pytest.fixture
async def relay() -> HeldRelay:
    return HeldRelay()


@pytest.fixture
async def app(relay: HeldRelay) -> AsyncIterator[App]:
    async with member(relay) as running:
        yield running


@pytest.fixture
async def wire(app: App) -> AsyncIterator[Wire]:
    async with Wire(_address(app)) as connected:
        yield connected


def _address(app: App) -> str:
    return str(app.listeners["kafka"])


async def _topic(app: App, name: str = "t", partitions: int = 1) -> Topic:
    [created] = await app.broker.create_topics([NewTopic(name=name, partitions=partitions)])
    assert isinstance(created, Topic)
    return created


def _member_storage() -> MemberStorage:
    clock = SystemClock()
    return MemberStorage(CoordinatorStorage(clock), clock)


async def _names(wire: Wire, pending: PendingRequest) -> list[str]:
    response = pending.response(memoryview(await wire.receive_frame()), DescribeProducersResponse)
    return [each.name for each in response.topics]


def _listing(*names: str) -> DescribeProducersResponse:
    return DescribeProducersResponse(topics=[TopicResponse(name=name) for name in names])


async def _is_closed(wire: Wire) -> bool:
    """Whether the connection ends without a further byte."""
    return await asyncio.wait_for(wire.reader.read(), 30) == b""


# What is relayed


async def test_a_request_goes_to_the_coordinator_as_it_is(relay: HeldRelay, wire: Wire) -> None:
    pending = wire.send(DescribeProducersRequest(topics=[ProducersOf(name="Stable", partition_indexes=[0])]))
    request = await relay.request()
    assert request.header.correlation_id == pending.correlation_id
    assert request.header.client_id == "test"
    assert b"Stable" in request.frame
    answer = request.answer(_listing("g"))
    assert await wire.receive_frame() == answer
    [connection] = relay.opened
    host, port = wire.writer.get_extra_info("sockname")
    assert (connection.listener, connection.user) == ("kafka", None)
    assert (connection.client.host, connection.client.port) == (host, port)


async def test_one_connection_relays_all_requests_of_a_client(relay: HeldRelay, wire: Wire) -> None:
    for number in range(3):
        pending = wire.send(DescribeProducersRequest())
        (await relay.request(number)).answer(_listing(str(number)))
        assert await _names(wire, pending) == [str(number)]
    assert len(relay.opened) == 1


async def test_the_served_logs_need_no_coordinator(app: App, relay: HeldRelay, wire: Wire) -> None:
    topic = await _topic(app)
    assert (await wire.produce(topic.id, batch(b"x"))).error_code == 0
    assert (await wire.fetch(topic.id)).records
    await wire.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), ApiVersionsResponse
    )
    await wire.ask(MetadataRequest(), MetadataResponse)
    await wire.ask(DescribeClusterRequest(), DescribeClusterResponse)
    await wire.ask(
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=10),
        DescribeTopicPartitionsResponse,
    )
    await wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    partition = ListOffsetsPartition(timestamp=-1)
    listed = await wire.ask(
        ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])]), ListOffsetsResponse
    )
    assert listed.topics[0].partitions[0].offset == 1
    ends = await wire.ask(
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition()])]
        ),
        OffsetForLeaderEpochResponse,
    )
    assert ends.topics[0].partitions[0].end_offset == 1
    assert relay.opened == []


def test_local_apis_are_served_apis() -> None:
    assert HANDLERS.keys() > LOCAL


async def test_a_transactional_produce_without_a_response_is_refused(
    app: App, relay: HeldRelay, wire: Wire
) -> None:
    await _topic(app)
    asked = produce_request(bytes(16), batch(b"x"), acks=0)
    asked.transactional_id = "tx"
    wire.send(asked)
    assert await _is_closed(wire)
    assert relay.opened == []


async def test_a_member_assigns_producer_ids_while_there_is_no_coordinator() -> None:
    standing = Standing(view=replace(VIEW, holder_incarnation=None))
    relay = HeldRelay()
    async with (
        member(relay, standing, _member_storage(), coordinates=False) as app,
        Wire(_address(app)) as wire,
    ):
        found = [await wire.ask(InitProducerIdRequest(), InitProducerIdResponse) for _ in range(3)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in found] == [
        (ErrorCode.NONE, number, 0) for number in range(3)
    ]
    assert not relay.opened


async def test_the_producer_of_a_transactional_id_is_that_of_its_holder(relay: HeldRelay, wire: Wire) -> None:
    pending = wire.send(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000))
    request = await relay.request()
    assert b"tx" in request.frame and relay.opened[0].scope == scope_of_transactional_id("tx")
    request.answer(InitProducerIdResponse(producer_id=5, producer_epoch=7))
    answer = await wire.receive(pending)
    assert isinstance(answer, InitProducerIdResponse)
    assert (answer.producer_id, answer.producer_epoch) == (5, 7)


async def test_a_member_creates_topics_that_clients_ask_for(relay: HeldRelay, wire: Wire) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    response = await wire.ask(asked, MetadataResponse)
    assert [(each.name, each.error_code) for each in response.topics] == [("new", 0)]
    assert relay.opened == []


async def test_unknown_topics_that_nobody_creates_are_unknown(relay: HeldRelay, wire: Wire) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=False)
    response = await wire.ask(asked, MetadataResponse)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert relay.opened == []


async def test_relayed_requests_are_counted_by_their_api(app: App, relay: HeldRelay, wire: Wire) -> None:
    pending = wire.send(DescribeProducersRequest())
    (await relay.request()).answer(_listing())
    await wire.receive(pending)
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://{app.listeners['admin']}/metrics")).text
    [line] = [each for each in text.splitlines() if "DescribeProducers" in each and "_count" in each]
    assert line.endswith(" 1")


async def test_a_member_lists_no_log_directories(relay: HeldRelay) -> None:
    standing = Standing()
    async with member(relay, standing) as app, Wire(_address(app)) as wire:
        directories = await wire.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert directories == DescribeLogDirsResponse()
        standing.view = replace(VIEW, holder_incarnation=None)
        refused = await wire.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert relay.opened == []


async def test_a_broker_lists_and_describes_the_transactions_of_its_scopes(relay: HeldRelay) -> None:
    log = CoordinatorStorage(SystemClock())
    async with member(relay, storage=log) as app, Wire(_address(app)) as wire:
        await log.scopes.take(app.broker, scope_of_transactional_id("own"))
        begin = InitProducerIdRequest(transactional_id="own", transaction_timeout_ms=1000)
        assert (await wire.ask(begin, InitProducerIdResponse)).error_code == 0
        listed = await wire.ask(ListTransactionsRequest(), ListTransactionsResponse)
        assert [each.transactional_id for each in listed.transaction_states] == ["own"]
        asked = DescribeTransactionsRequest(transactional_ids=["own", "another"])
        described = await wire.ask(asked, DescribeTransactionsResponse)
        assert [each.error_code for each in described.transaction_states] == [
            ErrorCode.NONE,
            ErrorCode.NOT_COORDINATOR,
        ]
        await log.scopes.holders[scope_of_transactional_id("own")].release_scope(
            scope_of_transactional_id("own")
        )
        assert not (await wire.ask(ListTransactionsRequest(), ListTransactionsResponse)).transaction_states
        assert relay.opened == []


async def test_a_member_describes_its_own_settings(relay: HeldRelay, wire: Wire) -> None:
    own, all_brokers = (
        DescribeConfigsResource(resource_type=ResourceType.BROKER, resource_name=name)
        for name in (str(OWN.id), "")
    )
    found = await wire.ask(DescribeConfigsRequest(resources=[own]), DescribeConfigsResponse)
    settings = {each.name: each.value for each in found.results[0].configs}
    assert settings["node.id"] == str(OWN.id)
    assert relay.opened == []
    wire.send(DescribeConfigsRequest(resources=[own, all_brokers]))
    answered = (await relay.request()).answer(DescribeConfigsResponse())
    assert await wire.receive_frame() == answered


# Order


async def test_responses_keep_the_order_of_the_requests(app: App, relay: HeldRelay, wire: Wire) -> None:
    topic = await _topic(app)
    relayed = [wire.send(DescribeProducersRequest())]
    produced = wire.send(produce_request(topic.id, batch(b"x")))
    relayed.append(wire.send(DescribeProducersRequest()))
    fetched = wire.send(fetch_request((topic.id, 0, 0)))
    relayed.append(wire.send(DescribeProducersRequest()))
    first, second, third = await (await relay.connection()).until(3)
    third.answer(_listing("c"))
    second.answer(_listing("b"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.reader.readexactly(1), 0.2)
    first.answer(_listing("a"))
    assert await _names(wire, relayed[0]) == ["a"]
    assert isinstance(await wire.receive(produced), ProduceResponse)
    assert await _names(wire, relayed[1]) == ["b"]
    assert isinstance(await wire.receive(fetched), FetchResponse)
    assert await _names(wire, relayed[2]) == ["c"]


async def test_a_limited_number_of_requests_waits_for_the_coordinator(relay: HeldRelay, wire: Wire) -> None:
    pending = [wire.send(DescribeProducersRequest()) for _ in range(2 * MOST_IN_FLIGHT + 1)]
    connection = await relay.connection()
    await connection.until(MOST_IN_FLIGHT)
    await asyncio.sleep(0.1)
    assert len(connection.requests) == MOST_IN_FLIGHT
    for number, each in enumerate(pending):
        (await relay.request(number)).answer(_listing(str(number)))
        assert await _names(wire, each) == [str(number)]


async def test_local_requests_wait_behind_the_limit(app: App, relay: HeldRelay, wire: Wire) -> None:
    topic = await _topic(app)
    pending = [wire.send(DescribeProducersRequest()) for _ in range(MOST_IN_FLIGHT)]
    wire.send(produce_request(topic.id, batch(b"x")))
    requests = await (await relay.connection()).until(MOST_IN_FLIGHT)
    await asyncio.sleep(0.1)
    assert app.broker.bounds(topic, 0).end == 0
    for request in requests:
        request.answer(_listing())
    for each in pending:
        await _names(wire, each)
    assert await wire.receive_frame()
    assert app.broker.bounds(topic, 0).end == 1


# A lost coordinator


@pytest.mark.parametrize("answered", range(4))
async def test_the_connection_ends_with_the_relay(answered: int, relay: HeldRelay, wire: Wire) -> None:
    """After any number of answers, those before the loss arrive."""
    pending = [wire.send(DescribeProducersRequest()) for _ in range(4)]
    requests = await (await relay.connection()).until(4)
    for request in requests[:answered]:
        request.answer(_listing("g"))
    for request in requests[answered:]:
        request.fail()
    for each in pending[:answered]:
        assert await _names(wire, each) == ["g"]
    assert await _is_closed(wire)
    assert relay.opened[0].is_closed


async def test_a_later_answer_is_not_sent_if_an_earlier_one_is_lost(relay: HeldRelay, wire: Wire) -> None:
    for _ in range(2):
        wire.send(DescribeProducersRequest())
    first, second = await (await relay.connection()).until(2)
    second.answer(_listing("g"))
    first.fail()
    assert await _is_closed(wire)


async def test_the_connection_ends_if_the_relay_is_lost_behind_a_local_request(
    app: App, relay: HeldRelay, wire: Wire
) -> None:
    topic = await _topic(app)
    wire.send(DescribeProducersRequest())
    wire.send(produce_request(topic.id, batch(b"x")))
    (await relay.request()).fail()
    assert await _is_closed(wire)


async def test_the_connection_ends_if_the_relay_is_lost_at_its_limit(relay: HeldRelay, wire: Wire) -> None:
    for _ in range(MOST_IN_FLIGHT + 10):
        wire.send(DescribeProducersRequest())
    connection = await relay.connection()
    requests = await connection.until(MOST_IN_FLIGHT)
    for each in requests:
        each.fail()
    assert await _is_closed(wire)
    assert len(connection.requests) == MOST_IN_FLIGHT


async def test_other_connections_go_on(app: App, relay: HeldRelay, wire: Wire) -> None:
    async with Wire(_address(app)) as other:
        wire.send(DescribeProducersRequest())
        (await relay.request()).fail()
        assert await _is_closed(wire)
        assert await other.ask(MetadataRequest(), MetadataResponse)


async def test_the_relay_ends_with_the_connection(relay: HeldRelay, wire: Wire) -> None:
    wire.send(DescribeProducersRequest())
    await relay.request()
    wire.writer.close()
    await relay.opened[0].until_closed()


async def test_back_pressure_of_a_client_that_does_not_read(app: App, relay: HeldRelay, wire: Wire) -> None:
    pending = [wire.send(DescribeProducersRequest()) for _ in range(3)]
    requests = await (await relay.connection()).until(3)
    relayed = relay.opened[0]
    assert not relayed.is_paused
    names = [f"{number:0>30000}" for number in range(1000)]
    requests[0].answer(_listing(*names))
    while not relayed.is_paused:
        await asyncio.sleep(0.01)
    assert await _names(wire, pending[0]) == names
    while relayed.is_paused:
        await asyncio.sleep(0.01)
    for request, each in zip(requests[1:], pending[1:], strict=True):
        request.answer(_listing("g"))
        assert await _names(wire, each) == ["g"]


async def test_incomplete_responses_count_as_memory_of_the_client(
    app: App, relay: HeldRelay, wire: Wire
) -> None:
    pending = wire.send(DescribeProducersRequest())
    request = await relay.request()
    relayed, [client] = relay.opened[0], app.connections
    relayed.held = 2**20
    relayed.grown()
    assert client.info.held_bytes >= 2**20
    relayed.held = 0
    request.answer(_listing("g"))
    assert await _names(wire, pending) == ["g"]
    client.tick()
    assert client.info.held_bytes == 0


def _tick(app: App) -> None:
    for each in app.connections:
        each.tick()


async def test_an_idle_relay_is_closed_and_opened_again(
    app: App, relay: HeldRelay, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "IDLE_SECONDS", -1.0)
    pending = wire.send(DescribeProducersRequest())
    request = await relay.request()
    _tick(app)
    assert not relay.opened[0].is_closed, "a request is in flight"
    request.answer(_listing("a"))
    assert await _names(wire, pending) == ["a"]
    _tick(app)
    assert relay.opened[0].is_closed
    pending = wire.send(DescribeProducersRequest())
    while len(relay.opened) < 2:
        await asyncio.sleep(0.01)
    [request] = await relay.opened[1].until(1)
    request.answer(_listing("b"))
    assert await _names(wire, pending) == ["b"]


@pytest.mark.parametrize(
    ("asked", "response"),
    [
        (ShareFetchRequest(group_id="g", member_id="m"), ShareFetchResponse()),
        (EndTxnRequest(), EndTxnResponse()),
    ],
    ids=["share session", "transaction"],
)
async def test_a_relay_on_which_something_depends_is_not_idle(
    asked: Message,
    response: Message,
    app: App,
    relay: HeldRelay,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(companion, "IDLE_SECONDS", -1.0)
    wire.send(asked)
    (await relay.request()).answer(response)
    await wire.receive_frame()
    _tick(app)
    assert not relay.opened[0].is_closed


async def test_a_client_without_a_relay_closes_nothing(relay: HeldRelay, wire: Wire) -> None:
    await wire.ask(MetadataRequest(), MetadataResponse)
    wire.writer.close()
    await wire.writer.wait_closed()
    assert relay.opened == []


# Who leads


async def test_partitions_are_spread_over_the_brokers(app: App, wire: Wire) -> None:
    topic = await _topic(app, partitions=50)
    expected = leaders(topic.id, 50, (1, 2, 3))
    assert set(expected) == {1, 2, 3}
    response = await wire.ask(MetadataRequest(), MetadataResponse)
    assert [(each.node_id, each.host) for each in response.brokers] == [
        (id, f"broker-{id}") for id in (1, 2, 3)
    ]
    assert response.controller_id == COORDINATOR.id
    partitions = response.topics[0].partitions
    assert tuple(each.leader_id for each in partitions) == expected
    assert all(each.replica_nodes == each.isr_nodes == [each.leader_id] for each in partitions)
    described = await wire.ask(
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=100),
        DescribeTopicPartitionsResponse,
    )
    assert tuple(each.leader_id for each in described.topics[0].partitions) == expected
    cluster = await wire.ask(DescribeClusterRequest(), DescribeClusterResponse)
    assert cluster.controller_id == COORDINATOR.id


async def test_every_partition_is_served_whoever_leads_it(app: App, wire: Wire) -> None:
    topic = await _topic(app, partitions=10)
    for partition in range(10):
        assert (await wire.produce(topic.id, batch(b"x"), partition=partition)).error_code == 0


_OF_TRANSACTION = FindCoordinatorRequest(key_type=1, coordinator_keys=["g"])


async def test_the_holder_of_a_transactional_id_is_found(wire: Wire) -> None:
    response = await wire.ask(_OF_TRANSACTION, FindCoordinatorResponse)
    [found] = response.coordinators
    assert (found.node_id, found.host, found.error_code) == (OTHER.id, "broker-3", 0)


async def test_without_a_coordinator(relay: HeldRelay) -> None:
    standing = Standing(view=replace(VIEW, holder_incarnation=None, holders={}))
    async with member(relay, standing) as app, Wire(_address(app)) as wire:
        response = await wire.ask(_OF_TRANSACTION, FindCoordinatorResponse)
        [found] = response.coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE_ID)
        assert (await wire.ask(MetadataRequest(), MetadataResponse)).controller_id == NO_NODE_ID


# Coordinated topics


class _Coordinated(MemoryStorage):
    """All topics are."""

    def _refusal(self, operation: Operation) -> PosthouseError | None:
        if isinstance(operation, Append):
            return NotLeader("the topic is coordinated")
        return super()._refusal(operation)


async def test_a_member_refuses_batches_for_coordinated_topics(relay: HeldRelay) -> None:
    storage = _Coordinated(SystemClock())
    async with member(relay, storage=storage) as app, Wire(_address(app)) as wire:
        topic = await _topic(app)
        refused = await wire.produce(topic.id, batch(b"x"))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        wire.send(produce_request(topic.id, batch(b"x"), acks=0))
        assert await _is_closed(wire)
        assert relay.opened == []


# Logins


@pytest.fixture
async def guarded(relay: HeldRelay, tmp_path: Path) -> AsyncIterator[App]:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    async with member(relay, authentication=Authentication.REQUIRED, admin_password_file=file) as running:
        yield running


async def test_the_relay_has_the_user_who_logged_in_at_the_member(guarded: App, relay: HeldRelay) -> None:
    async with Wire(_address(guarded)) as wire:
        await log_in(wire)
        assert relay.opened == []
        pending = wire.send(DescribeProducersRequest())
        (await relay.request()).answer(_listing())
        assert await _names(wire, pending) == []
        proven = relay.opened[0].user
        assert proven is not None and (proven.name, proven.mechanism) == ("admin", "PLAIN")
        guarded.broker.access.proven_users.check(proven, has_tls=False)
        await log_in(wire)  # a session may log in again, as the same user
        pending = wire.send(DescribeProducersRequest())
        (await relay.request(1)).answer(_listing())
        assert await _names(wire, pending) == []
        assert len(relay.opened) == 1


async def test_nothing_is_relayed_before_a_login(guarded: App, relay: HeldRelay) -> None:
    async with Wire(_address(guarded)) as wire:
        wire.send(DescribeProducersRequest())
        assert await _is_closed(wire)
    assert relay.opened == []


async def test_a_revoked_login_ends_the_relay(guarded: App, relay: HeldRelay) -> None:
    async with Wire(_address(guarded)) as wire:
        await log_in(wire)
        wire.send(DescribeProducersRequest())
        await relay.request()
        await guarded.broker.access.users.set_password("admin", "another one")
        assert await _is_closed(wire)
        await relay.opened[0].until_closed()


async def test_nothing_is_relayed_for_a_client_that_has_left(
    guarded: App, relay: HeldRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata finds that it needs the coordinator after the connection was lost, in the same turn."""

    async def lose_clients() -> None:
        for each in guarded.connections:
            each.abort()

    async with Wire(_address(guarded)) as wire:
        await log_in(wire)
        monkeypatch.setattr(guarded.broker._storage, "refresh_definitions", lose_clients)
        wire.send(MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True))
        assert await _is_closed(wire)
    assert relay.opened == []


async def test_versions_that_are_not_served_are_not_relayed(relay: HeldRelay, wire: Wire) -> None:
    encoder = RequestEncoder("test")
    chunks, _ = encoder.encode_body(15, 5, [b""])
    frame = bytearray(b"".join(chunks))
    frame[6:8] = (99).to_bytes(2, "big")
    wire.writer.write(frame)
    assert await _is_closed(wire)
    assert relay.opened == []


# Cut off from the database


@pytest.mark.parametrize("asked", [MetadataRequest(), DescribeClusterRequest()])
async def test_a_member_that_is_cut_off_names_no_leaders(asked: Message, relay: HeldRelay) -> None:
    standing = Standing()
    async with member(relay, standing) as app, Wire(_address(app)) as wire:
        assert await wire.ask(MetadataRequest(), MetadataResponse)
        standing.is_cut_off = True
        wire.send(asked)
        assert await _is_closed(wire)


async def test_a_member_that_is_cut_off_reads_and_relays(relay: HeldRelay) -> None:
    standing = Standing()
    async with member(relay, standing) as app, Wire(_address(app)) as wire:
        topic = await _topic(app)
        assert (await wire.produce(topic.id, batch(b"x"))).error_code == 0
        standing.is_cut_off = True
        assert (await wire.fetch(topic.id)).records
        refused = await wire.produce(topic.id, batch(b"x"))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = await wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
        assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        pending = wire.send(DescribeProducersRequest())
        (await relay.request()).answer(_listing("g"))
        assert await _names(wire, pending) == ["g"]
        pending = wire.send(InitProducerIdRequest())
        (await relay.request(1)).answer(InitProducerIdResponse(producer_id=5))
        answer = await wire.receive(pending)
        assert isinstance(answer, InitProducerIdResponse) and answer.producer_id == 5
        standing.is_cut_off = False
        assert (await wire.produce(topic.id, batch(b"x"))).error_code == 0


async def test_a_member_that_is_cut_off_does_not_answer_the_first_batch_of_a_producer(
    relay: HeldRelay,
) -> None:
    """It may serve again when the second one arrives, which it would take without the first."""
    standing = Standing()
    async with member(relay, standing) as app, Wire(_address(app)) as wire:
        topic = await _topic(app)
        assert (await wire.produce(topic.id, batch_of(7))).error_code == 0
        standing.is_cut_off = True
        for refused in (batch_of(7, 1), batch_of(-1, 0)):
            answer = await wire.produce(topic.id, refused)
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        wire.send(produce_request(topic.id, batch_of(8)))
        assert await _is_closed(wire)
        standing.is_cut_off = False
        async with Wire(_address(app)) as again:
            for sequence in range(2):
                assert (await again.produce(topic.id, batch_of(8, sequence))).error_code == 0
