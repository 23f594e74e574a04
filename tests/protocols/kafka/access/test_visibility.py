"""What is not permitted is not shown: in lists, by ids, by hints and by side effects."""

import asyncio

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.topics import NewTopic
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.roles import TOPIC, TRANSACTION
from tests.protocols.kafka.access.scene import Scene, connected, permit
from tests.protocols.kafka.wire import batch, produce_request

FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED

SEEN_TOPICS = {
    "admin": {"t", "tt", "other"},
    "everything": {"t", "tt", "other"},
    "topic": {"t"},
    "reader": {"t"},
    "writer": {"t"},
    "viewer": {"t"},
    "prefixed": {"t", "tt"},
    "denied": {"tt", "other"},
    "elsewhere": {"tt"},
    "cluster": set(),
    "configurer": set(),
    "nobody": set(),
}


async def make_topics(broker: AsyncBroker) -> dict[str, Topic]:
    made = await broker.app.broker.create_topics([NewTopic(name=name) for name in ("t", "tt", "other")])
    return {topic.name: topic for topic in made if isinstance(topic, Topic)}


@pytest.mark.parametrize("user", SEEN_TOPICS)
async def test_topics_in_lists(user: str, broker: AsyncBroker) -> None:
    await make_topics(broker)
    async with connected(broker, user) as wire:
        request = MetadataRequest()
        request.topics = None
        metadata = await wire.ask(request, MetadataResponse)
        assert {topic.name for topic in metadata.topics} == SEEN_TOPICS[user]
        described = await wire.ask(DescribeTopicPartitionsRequest(), DescribeTopicPartitionsResponse)
        assert {topic.name for topic in described.topics} == SEEN_TOPICS[user]


@pytest.mark.parametrize(
    ("user", "seen"),
    [
        ("admin", {"g", "gg", "h"}),
        ("cluster", {"g", "gg", "h"}),
        ("viewer", {"g", "gg", "h"}),
        ("reader", {"g"}),
        ("prefixed", {"g", "gg"}),
        ("denied", {"gg", "h"}),
        ("nobody", set()),
    ],
)
async def test_groups_in_lists(user: str, seen: set[str], broker: AsyncBroker) -> None:
    topics = await make_topics(broker)
    anybody = MemberIdentity(member=MemberId(""), generation=-1)
    for group in ("g", "gg", "h"):
        offset = NewOffset(partition=topics["t"].partition(0), offset=0, leader_epoch=-1, metadata="")
        await broker.app.broker.groups.offsets.commit(GroupId(group), anybody, [offset])
    async with connected(broker, user) as wire:
        answer = await wire.ask(ListGroupsRequest(), ListGroupsResponse)
        assert {group.group_id for group in answer.groups} == seen


@pytest.mark.parametrize(
    ("user", "seen"),
    [
        ("admin", {TRANSACTION, "t-y"}),
        ("writer", {TRANSACTION}),
        ("viewer", {TRANSACTION}),
        ("prefixed", {TRANSACTION, "t-y"}),
        ("denied", {"t-y"}),
        ("nobody", set()),
    ],
)
async def test_transactions_in_lists(user: str, seen: set[str], broker: AsyncBroker) -> None:
    for id in (TRANSACTION, "t-y"):
        await broker.app.broker.transactions.init_producer(id, 60_000, None)
    async with connected(broker, user) as wire:
        answer = await wire.ask(ListTransactionsRequest(duration_filter=-1), ListTransactionsResponse)
        assert {each.transactional_id for each in answer.transaction_states} == seen


@pytest.mark.parametrize(("user", "topics"), [("viewer", [TOPIC]), ("transaction", [])])
async def test_topics_of_a_transaction(user: str, topics: list[str], broker: AsyncBroker) -> None:
    await Scene(broker.app.broker).prepare()
    async with connected(broker, user) as wire:
        request = DescribeTransactionsRequest(transactional_ids=[TRANSACTION])
        [state] = (await wire.ask(request, DescribeTransactionsResponse)).transaction_states
        assert state.error_code == 0
        assert [topic.topic for topic in state.topics] == topics


@pytest.mark.parametrize(
    ("user", "topic_bits", "cluster_bits"),
    [
        ("admin", {3, 4, 5, 6, 7, 8, 10, 11}, {5, 7, 8, 9, 10, 11, 12}),
        ("reader", {3, 8}, set()),
        ("writer", {4, 8}, set()),
        ("viewer", {8}, {8}),
    ],
)
async def test_operations_in_bits(
    user: str, topic_bits: set[int], cluster_bits: set[int], broker: AsyncBroker
) -> None:
    await make_topics(broker)
    async with connected(broker, user) as wire:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=TOPIC)], include_topic_authorized_operations=True
        )
        [topic] = (await wire.ask(request, MetadataResponse)).topics
        assert topic.topic_authorized_operations == sum(1 << bit for bit in topic_bits)
        cluster = await wire.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse
        )
        assert cluster.cluster_authorized_operations == sum(1 << bit for bit in cluster_bits)


@pytest.mark.parametrize(("user", "name"), [("nobody", None), ("viewer", TOPIC)])
async def test_an_id_does_not_tell_a_name(user: str, name: str | None, broker: AsyncBroker) -> None:
    topic = (await make_topics(broker))[TOPIC]
    async with connected(broker, user) as wire:
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.id)])
        [deleted] = (await wire.ask(deletion, DeleteTopicsResponse)).responses
        assert (deleted.error_code, deleted.name) == (FORBIDDEN, name)
        assert broker.app.broker.topic(TOPIC) is topic
        [told] = (
            await wire.ask(
                MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.id)]), MetadataResponse
            )
        ).topics
        assert (told.error_code, told.name) == ((0, TOPIC) if name else (FORBIDDEN, None))


async def test_a_name_does_not_tell_an_id(broker: AsyncBroker) -> None:
    await make_topics(broker)
    async with connected(broker, "nobody") as wire:
        asked = [MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name="missing")]
        there, missing = (await wire.ask(MetadataRequest(topics=asked), MetadataResponse)).topics
        there.name = missing.name
        assert there == missing
        deletion = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=TOPIC), DeleteTopicState(name="missing")]
        )
        there_, missing_ = (await wire.ask(deletion, DeleteTopicsResponse)).responses
        there_.name = missing_.name
        assert there_ == missing_


async def test_whoever_may_create_need_not_see_settings(broker: AsyncBroker) -> None:
    await permit(broker.app.broker, "creator", Operation.CREATE, Kind.TOPIC, "made")
    async with connected(broker, "creator") as wire:
        wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("made", "x")]
        made, refused = (await wire.ask(CreateTopicsRequest(topics=wanted), CreateTopicsResponse)).topics
        assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, FORBIDDEN, -1)
        assert not made.configs
        assert refused.error_code == FORBIDDEN
    assert [topic.name for topic in broker.app.broker.topics] == ["made"]


async def test_asking_creates_nothing_without_permission(broker: AsyncBroker) -> None:
    async with connected(broker, "writer") as wire:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        [topic] = (await wire.ask(request, MetadataResponse)).topics
        assert topic.error_code == FORBIDDEN
    assert not list(broker.app.broker.topics)


async def test_refused_records_are_not_written(broker: AsyncBroker) -> None:
    topic = (await make_topics(broker))[TOPIC]
    async with connected(broker, "reader") as wire:
        assert (await wire.produce(topic.id, batch(b"x"))).error_code == FORBIDDEN
        # Who wants no answer learns of it by losing the connection.
        wire.send(produce_request(topic.id, batch(b"x"), acks=0))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await wire.receive_frame()
    assert broker.app.broker.bounds(topic, 0).end == 0


async def test_permissions_count_at_once(broker: AsyncBroker) -> None:
    topic = (await make_topics(broker))["other"]
    access = broker.app.broker.access
    async with connected(broker, "writer") as wire:
        assert (await wire.produce(topic.id, batch(b"x"))).error_code == FORBIDDEN
        await permit(broker.app.broker, "writer", Operation.WRITE, Kind.TOPIC, "other")
        assert (await wire.produce(topic.id, batch(b"x"))).error_code == 0
        await permit(broker.app.broker, "writer", Operation.WRITE, Kind.TOPIC, "other", allow=False)
        assert (await wire.produce(topic.id, batch(b"x"))).error_code == FORBIDDEN
        await access.acls.remove(lambda acl: acl.name == "other")
        assert (await wire.produce(topic.id, batch(b"x"))).error_code == FORBIDDEN


async def test_topics_in_a_long_list(broker: AsyncBroker) -> None:
    names = [f"t-{number}" for number in range(1200)] + [f"u-{number}" for number in range(1200)]
    await broker.app.broker.create_topics([NewTopic(name=name, partitions=1) for name in names])
    request = MetadataRequest()
    request.topics = None
    for user, seen in (("admin", names), ("prefixed", names[:1200]), ("nobody", [])):
        async with connected(broker, user) as wire:
            answer = await wire.ask(request, MetadataResponse)
            assert [topic.name for topic in answer.topics] == sorted(seen)
            described: list[str] = []
            page = DescribeTopicPartitionsRequest(response_partition_limit=700)
            while True:
                told = await wire.ask(page, DescribeTopicPartitionsResponse)
                described += [topic.name for topic in told.topics if topic.name is not None]
                page.cursor = told.next_cursor
                if told.next_cursor is None:
                    break
            assert described == sorted(seen)
