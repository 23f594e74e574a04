"""Describing, altering and deleting the offsets of share groups; what a restart leaves; settings."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import GroupId, PartitionId
from posthouse.protocols.kafka.codec.generated import describe_configs as describe
from posthouse.protocols.kafka.codec.generated import incremental_alter_configs as alter
from posthouse.protocols.kafka.codec.generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.share_wire import ACCEPT, RELEASE, Member, beat, joined, lag, set_config
from tests.protocols.kafka.wire import Wire, batch

GROUP = 32


async def move(
    wire: Wire, offsets: dict[int, int], topic: str = "t", group: str = "g"
) -> AlterShareGroupOffsetsResponse:
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted])
    return await wire.ask(request, AlterShareGroupOffsetsResponse)


async def forget(wire: Wire, topic: str = "t", group: str = "g") -> DeleteShareGroupOffsetsResponse:
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
    )
    return await wire.ask(request, DeleteShareGroupOffsetsResponse)


async def groups(wire: Wire) -> list[tuple[str, str, str]]:
    answer = await wire.ask(ListGroupsRequest(), ListGroupsResponse)
    return [(each.group_id, each.group_state, each.group_type) for each in answer.groups]


async def test_describe_offsets(wire: Wire) -> None:
    member = await joined(wire, partitions=2)
    await wire.produce(member.topic, batch(b"a", b"b", b"c"))
    await member.fetch(0, 1)
    await member.acknowledge({0: [(0, 0, [ACCEPT]), (2, 2, [ACCEPT])]})
    assert await lag(wire) == {0: (1, 1), 1: (0, 0)}
    topics = [
        DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0, 9]),
        DescribeShareGroupOffsetsRequestTopic(topic_name="?", partitions=[0]),
    ]
    groups = [
        DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics),
        DescribeShareGroupOffsetsRequestGroup(group_id="nobody", topics=[]),
    ]
    answer = await wire.ask(
        DescribeShareGroupOffsetsRequest(groups=groups), DescribeShareGroupOffsetsResponse
    )
    known, unknown = answer.groups
    assert (unknown.error_code, unknown.topics) == (0, [])
    [first, second] = known.topics
    assert first.topic_id == member.topic
    assert [(each.start_offset, each.lag, each.error_code) for each in first.partitions] == [
        (1, 1, 0),
        (-1, -1, 0),
    ]
    [nothing] = second.partitions
    assert (nothing.start_offset, nothing.lag, nothing.leader_epoch, nothing.error_code) == (-1, -1, 0, 0)


async def test_offsets_before_the_first_consumer(tmp_path: Path) -> None:
    """Each answer is the one that Kafka 4.3.1 gives."""
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t", 2)
        await wire.produce(topic, batch(b"a", b"b", b"c"))
        assert await lag(wire) == {}
        assert (await move(wire, {})).error_code == 0
        assert (await move(wire, {0: 0}, "?")).responses[0].partitions[0].error_code == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert (await forget(wire)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await groups(wire) == [], "there was nothing to begin in"
        answer = await move(wire, {0: 1, 7: 0})
        assert (answer.error_code, answer.responses[0].topic_id) == (0, topic)
        assert [each.error_code for each in answer.responses[0].partitions] == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await groups(wire) == [("g", "Empty", "share")]
        assert await lag(wire) == {0: (1, 2)}
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        assert await lag(wire) == {0: (1, 2)}
        await beat(wire, "m")
        got = await Member(wire, topic).take()
        assert got is not None
        assert got.values == [b"b", b"c"]


async def test_offsets_of_groups_of_another_kind_and_without_a_name(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    commit = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(topic_id=topic, partitions=[partition])]
    )
    committed = await wire.ask(commit, OffsetCommitResponse)
    assert committed.topics[0].partitions[0].error_code == 0
    assert await lag(wire) == {}
    assert (await move(wire, {0: 0})).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await forget(wire)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await move(wire, {0: 0}, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await forget(wire, group="")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_alter_offsets(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a", b"b", b"c"))
    await member.take()
    await member.acknowledge({0: [(0, 2, [ACCEPT])]})
    assert (await move(wire, {0: 1})).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(wire, "m", -1)
    answer = await move(wire, {0: 1, 7: 0})
    assert answer.error_code == 0
    [topic] = answer.responses
    assert topic.topic_id == member.topic
    assert [each.error_code for each in topic.partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await lag(wire) == {0: (1, 2)}
    await beat(wire, "m")
    got = await Member(wire, member.topic).take()
    assert got is not None
    assert (got.runs, got.values) == ([(1, 2, 1)], [b"b", b"c"])


async def test_delete_offsets(wire: Wire) -> None:
    assert (await forget(wire)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = await joined(wire)
    await wire.create_topic("other")
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    await member.acknowledge({0: [(0, 0, [ACCEPT])]})
    assert (await forget(wire)).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(wire, "m", -1)
    assert (await forget(wire)).responses[0].error_code == 0
    assert await lag(wire) == {}
    for topic in ("t", "other", "?"):
        [answer] = (await forget(wire, topic)).responses
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await beat(wire, "m")
    got = await Member(wire, member.topic).take()
    assert got is not None
    assert got.runs == [(0, 0, 1)]


async def test_offsets_while_a_topic_is_being_deleted(broker: AsyncBroker, wire: Wire) -> None:
    member = await joined(wire)
    other = await wire.create_topic("u")
    assert (await beat(wire, "n", subscribed_topic_names=["u"])).error_code == 0
    await Member(wire, other, "n").fetch(0)
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    inner = broker.app.broker
    await inner.topics.delete([inner.topic("t")])  # what groups know of it is dropped only after this
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    )
    [group] = (await wire.ask(request, DescribeShareGroupOffsetsResponse)).groups
    assert (group.error_code, [topic.topic_name for topic in group.topics]) == (0, ["u"])


async def test_an_error_of_one_group_is_not_that_of_others(
    broker: AsyncBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = await joined(wire)
    await member.fetch(0)
    subscriptions = broker.app.broker.subscriptions
    progress = subscriptions.progress

    def failing(group: GroupId) -> Mapping[PartitionId, SubscribedPartition]:
        if group == "bad":
            raise UnknownPartition("gone")
        return progress(group)

    monkeypatch.setattr(subscriptions, "progress", failing)
    wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in ("bad", "g")]
    request = DescribeShareGroupOffsetsRequest(groups=wanted)
    bad, good = (await wire.ask(request, DescribeShareGroupOffsetsResponse)).groups
    assert (bad.error_code, bad.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
    assert (good.error_code, [topic.topic_name for topic in good.topics]) == (0, ["t"])


async def test_a_topic_goes_with_its_progress(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    state = DeleteTopicState(name="t")
    await wire.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), DeleteTopicsResponse)
    assert (await member.fetch())[0].data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert await member.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: ErrorCode.UNKNOWN_TOPIC_ID}
    assert await lag(wire) == {}
    again = await wire.create_topic("t")
    await wire.produce(again, batch(b"b"))
    fresh = Member(wire, again)
    got = await fresh.take()
    assert got is not None
    assert (got.runs, got.values) == ([(0, 0, 1)], [b"b"])


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
async def test_what_a_restart_leaves(tmp_path: Path, crash: bool) -> None:
    """Everything but members, sessions and leases. A crash is the directory as it is while all runs."""
    data = tmp_path / "data"
    async with AsyncBroker(data=data) as broker, Wire(broker.kafka) as wire:
        member = await joined(wire, partitions=2)
        await wire.create_topic("late")
        for value in (b"a", b"b", b"c", b"d"):
            await wire.produce(member.topic, batch(value))
        await member.fetch(0, 1)
        assert await member.acknowledge({0: [(0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [ACCEPT])]}) == {
            0: 0
        }
        if crash:
            shutil.copytree(data, tmp_path / "crashed")
    async with (
        AsyncBroker(data=tmp_path / "crashed" if crash else data) as broker,
        Wire(broker.kafka) as wire,
    ):
        assert await lag(wire) == {0: (1, 2), 1: (0, 0)}
        assert (await beat(wire, "m", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (
            await member_on(wire, member).ask_fetch(epoch=2)
        ).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert (await beat(wire, "m")).error_code == 0
        again = member_on(wire, member)
        got = await again.take()
        assert got is not None
        assert (got.runs, got.values) == ([(1, 1, 2), (3, 3, 1)], [b"b", b"d"])
        assert await again.acknowledge({0: [(1, 1, [ACCEPT]), (3, 3, [ACCEPT])]}) == {0: 0}
        assert await lag(wire) == {0: (4, 0), 1: (0, 0)}


def member_on(wire: Wire, before: Member) -> Member:
    return Member(wire, before.topic, before.name)


async def test_where_a_group_begins_survives_a_crash(tmp_path: Path) -> None:
    """It began at the end; what came after that is for it, though it had read nothing when all stopped."""
    data = tmp_path / "data"
    async with AsyncBroker(data=data) as broker, Wire(broker.kafka) as wire:
        topic = await wire.create_topic("t")
        await wire.produce(topic, batch(b"before"))
        await beat(wire, "m")
        assert await Member(wire, topic).take() is None
        await wire.produce(topic, batch(b"after"))
        shutil.copytree(data, tmp_path / "crashed")
    async with AsyncBroker(data=tmp_path / "crashed") as broker, Wire(broker.kafka) as wire:
        await beat(wire, "m")
        got = await Member(wire, topic).take()
        assert got is not None
        assert got.values == [b"after"]


async def test_moved_and_deleted_progress_survives_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        member = await joined(wire, partitions=2)
        for index in (0, 1):
            await wire.produce(member.topic, batch(b"a", b"b", b"c"), partition=index)
        await member.fetch(0, 1)
        # Out of order, so that more than the floor is stored.
        await member.acknowledge({0: [(1, 1, [ACCEPT]), (2, 2, [RELEASE])], 1: [(2, 2, [ACCEPT])]})
        await beat(wire, "m", -1)
        await move(wire, {0: 0})
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        assert await lag(wire) == {0: (0, 3), 1: (0, 2)}
        await beat(wire, "m")
        got = (await Member(wire, member.topic).fetch(0))[0]
        assert got.runs == [(0, 2, 1)]
        await beat(wire, "m", -1)
        assert (await forget(wire)).responses[0].error_code == 0
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        assert await lag(wire) == {}


async def alter_group(
    wire: Wire, name: str, value: str | None, operation: int = 0
) -> alter.AlterConfigsResourceResponse:
    config = alter.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = alter.AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
    request = alter.IncrementalAlterConfigsRequest(resources=[resource])
    return (await wire.ask(request, alter.IncrementalAlterConfigsResponse)).responses[0]


async def group_configs(wire: Wire) -> dict[str, tuple[str | None, int]]:
    resource = describe.DescribeConfigsResource(resource_type=GROUP, resource_name="g")
    resource.configuration_keys = None
    request = describe.DescribeConfigsRequest(resources=[resource])
    [result] = (await wire.ask(request, describe.DescribeConfigsResponse)).results
    assert result.error_code == 0
    return {each.name: (each.value, each.config_source) for each in result.configs}


async def test_settings_of_groups(tmp_path: Path) -> None:
    default, own = 5, 8
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        assert (await group_configs(wire))["share.record.lock.duration.ms"] == ("30000", default)
        await set_config(wire, record_lock_duration_ms="20000", isolation_level="read_committed")
        for name, value in (
            ("share.record.lock.duration.ms", "1"),
            ("share.auto.offset.reset", "yesterday"),
            ("share.auto.offset.reset", "by_duration:P"),
            ("share.isolation.level", "none"),
            ("share.session.timeout.ms", "3000"),
            ("consumer.session.timeout.ms", "1000"),
            ("nonsense", "1"),
            ("share.delivery.count.limit", "many"),
        ):
            assert (await alter_group(wire, name, value)).error_code == ErrorCode.INVALID_CONFIG, name
        assert (
            await alter_group(wire, "share.isolation.level", None)
        ).error_code == ErrorCode.INVALID_REQUEST
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        configs = await group_configs(wire)
        assert configs["share.record.lock.duration.ms"] == ("20000", own)
        assert configs["share.isolation.level"] == ("read_committed", own)
        assert configs["share.auto.offset.reset"] == ("latest", default)
        listed = await wire.ask(
            ListConfigResourcesRequest(resource_types=[GROUP]), ListConfigResourcesResponse
        )
        assert [each.resource_name for each in listed.config_resources] == ["g"]
        assert (await alter_group(wire, "share.isolation.level", None, operation=1)).error_code == 0
        assert (await group_configs(wire))["share.isolation.level"] == ("read_uncommitted", default)
