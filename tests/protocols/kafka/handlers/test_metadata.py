"""Metadata: who is there, and the topics."""

import asyncio
import uuid

import pytest

from posthouse.broker.recent_deletions import RecentDeletions
from posthouse.model.clock import ManualClock
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, kio_module


async def describe(wire: Wire, *names: str, create: bool = True) -> list[MetadataResponseTopic]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
    )
    return (await wire.ask(request, MetadataResponse)).topics


async def test_the_node(broker: AsyncBroker, wire: Wire) -> None:
    answer = await wire.ask(MetadataRequest(), MetadataResponse)
    [node] = answer.brokers
    assert (node.node_id, f"{node.host}:{node.port}", node.rack) == (1, broker.kafka, None)
    assert answer.controller_id == 1
    assert answer.cluster_id == broker.app.broker.cluster_id


async def test_the_address_is_the_one_that_the_client_reached() -> None:
    async with AsyncBroker(kafka=Address("0.0.0.0", 0), allow_open_network=True) as broker:
        port = broker.app.listeners["kafka"].port
        async with Wire(f"127.0.0.2:{port}") as wire:
            [node] = (await wire.ask(MetadataRequest(), MetadataResponse)).brokers
            assert (node.host, node.port) == ("127.0.0.2", port)


async def test_the_address_can_be_set() -> None:
    advertised = Address("broker.example", 1234)
    async with AsyncBroker(kafka_advertised=advertised) as broker, Wire(broker.kafka) as wire:
        [node] = (await wire.ask(MetadataRequest(), MetadataResponse)).brokers
        assert (node.host, node.port) == ("broker.example", 1234)


async def test_a_topic(wire: Wire) -> None:
    topic_id = await wire.create_topic("t", 3)
    [topic] = await describe(wire, "t")
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "t", topic_id)
    assert [
        (each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
        for each in topic.partitions
    ] == [(index, 1, 0, [1], [1]) for index in range(3)]


async def test_a_deleted_topic_does_not_come_back_at_once(broker: AsyncBroker, wire: Wire) -> None:
    topic_id = await wire.create_topic("t")
    state = DeleteTopicState(name="t")
    await wire.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), DeleteTopicsResponse)
    by_id = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=topic_id)], allow_auto_topic_creation=True
    )
    assert (await wire.ask(by_id, MetadataResponse)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    gone, other = await describe(wire, "t", "other")
    assert (gone.error_code, other.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert [topic.name for topic in broker.app.broker.topics] == ["other"]
    await wire.create_topic("t")


def test_deletions_are_recent_for_a_second() -> None:
    clock = ManualClock()
    deletions = RecentDeletions(clock)
    deletions.add(["a", "b"])
    clock.advance(0.6)
    deletions.add(["b", "c"])
    assert [name in deletions for name in "abcd"] == [True, True, True, False]
    clock.advance(0.4)
    assert [name in deletions for name in "abcd"] == [False, True, True, False]
    clock.advance(0.6)
    assert [name in deletions for name in "abcd"] == [False] * 4


async def test_asking_creates(wire: Wire) -> None:
    [topic] = await describe(wire, "new")
    assert (topic.error_code, len(topic.partitions)) == (0, 4)
    [again] = await describe(wire, "new")
    assert again.topic_id == topic.topic_id


async def test_asking_twice_at_once_creates_once(broker: AsyncBroker) -> None:
    async with Wire(broker.kafka) as one, Wire(broker.kafka) as two:
        answers = await asyncio.gather(describe(one, "new", "new"), describe(two, "new"))
        topics = [topic for answer in answers for topic in answer]
        assert [topic.error_code for topic in topics] == [0, 0, 0]
        assert len({topic.topic_id for topic in topics}) == 1


async def test_the_client_may_ask_without_creating(wire: Wire) -> None:
    [topic] = await describe(wire, "new", create=False)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await wire.ask(MetadataRequest(), MetadataResponse)).topics == []


async def test_creating_can_be_switched_off() -> None:
    async with AsyncBroker(auto_create_topics=False) as broker, Wire(broker.kafka) as wire:
        [topic] = await describe(wire, "new")
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_number_of_partitions_can_be_set() -> None:
    async with AsyncBroker(default_partitions=7) as broker, Wire(broker.kafka) as wire:
        [topic] = await describe(wire, "new")
        assert len(topic.partitions) == 7


NAMES = {
    "plain": ("orders", True),
    "all kinds": ("aZ09._-", True),
    "longest": ("x" * 249, True),
    "dots": ("...", True),
    "empty": ("", False),
    "dot": (".", False),
    "two dots": ("..", False),
    "too long": ("x" * 250, False),
    "space": ("a b", False),
    "slash": ("a/b", False),
    "colon": ("a:b", False),
    "newline": ("a\n", False),
    "not ascii": ("größe", False),
    "nul": ("a\0", False),
}


@pytest.mark.parametrize(("name", "valid"), NAMES.values(), ids=NAMES.keys())
async def test_names(name: str, valid: bool, wire: Wire) -> None:
    good, topic = await describe(wire, "good", name)
    assert good.error_code == 0
    assert topic.error_code == (ErrorCode.NONE if valid else ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert topic.name == name


async def test_by_id(wire: Wire) -> None:
    topic_id = await wire.create_topic("t")
    unknown = b"u" * 16
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=topic_id), MetadataRequestTopic(topic_id=unknown)]
    )
    found, missing = (await wire.ask(request, MetadataResponse)).topics
    assert (found.error_code, found.name) == (0, "t")
    assert (missing.error_code, missing.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, unknown)


async def test_an_unknown_id_where_names_cannot_be_null(wire: Wire) -> None:
    v10 = kio_module("metadata.v10.request")
    topic = v10.MetadataRequestTopic(topic_id=uuid.UUID(int=7), name=None)
    response = kio_module("metadata.v10.response").MetadataResponse
    request = v10.MetadataRequest(
        topics=(topic,),
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    answer = await wire.ask_kio(request, response)
    assert [(each.name, each.error_code) for each in answer.topics] == [("", ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_all_and_none(wire: Wire) -> None:
    await wire.create_topic("b")
    await wire.create_topic("a")
    assert [topic.name for topic in (await wire.ask(MetadataRequest(), MetadataResponse)).topics] == [
        "a",
        "b",
    ]
    assert (await wire.ask(MetadataRequest(topics=[]), MetadataResponse)).topics == []


async def test_the_first_version_has_no_null(wire: Wire) -> None:
    await wire.create_topic("t")
    v0_request, v1_request = kio_module("metadata.v0.request"), kio_module("metadata.v1.request")
    response_v0 = kio_module("metadata.v0.response").MetadataResponse
    response_v1 = kio_module("metadata.v1.response").MetadataResponse
    none = await wire.ask_kio(v0_request.MetadataRequest(topics=()), response_v0)
    assert [topic.name for topic in none.topics] == ["t"]
    empty = await wire.ask_kio(v1_request.MetadataRequest(topics=()), response_v1)
    assert empty.topics == ()
    null = await wire.ask_kio(v1_request.MetadataRequest(topics=None), response_v1)
    assert [topic.name for topic in null.topics] == ["t"]
    old = v0_request.MetadataRequestTopic(name="made")
    created = await wire.ask_kio(v0_request.MetadataRequest(topics=(old,)), response_v0)
    assert len(created.topics[0].partitions) == 4


async def test_operations_are_listed_when_asked_for(wire: Wire) -> None:
    await wire.create_topic("t")
    plain = await wire.ask(MetadataRequest(), MetadataResponse)
    assert plain.topics[0].topic_authorized_operations == -(2**31)
    asked = await wire.ask(MetadataRequest(include_topic_authorized_operations=True), MetadataResponse)
    assert asked.topics[0].topic_authorized_operations == 0b110111111000


async def test_librdkafkas_way_to_ask_for_all_topics(wire: Wire) -> None:
    """Its null list takes four bytes where one is due, and Kafka does not mind."""
    await wire.create_topic("t")
    wire.writer.write(b"\0\0\0\x19\0\3\0\x0d\0\0\0\1\0\7rdkafka\0" + b"\0\0\0\0" + b"\0\0" + b"\0")
    assert b"\x02t" in await wire.receive_frame()
