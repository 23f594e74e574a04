"""OffsetCommit, OffsetFetch, OffsetDelete."""

import asyncio
from typing import Any

import pytest
from kio.schema.offset_fetch.v1 import request as fetch_v1
from kio.schema.offset_fetch.v1.response import OffsetFetchResponse as FetchedV1
from kio.schema.offset_fetch.v7 import request as fetch_v7
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as FetchedV7
from kio.schema.types import GroupId as KioGroupId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from posthouse.model.ids import GroupId, PartitionId
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.late_commits import late_commits
from tests.protocols.kafka.handlers.group_wire import beat, commit, fetch_offsets, join_alone, places
from tests.protocols.kafka.wire import Wire


@pytest.fixture
async def topic(wire: Wire) -> bytes:
    return await wire.create_topic("t", 3)


async def test_what_is_committed_is_found(wire: Wire, topic: bytes) -> None:
    assert await commit(wire, topic, {0: 5, 1: 7}, metadata="by hand") == [0, 0]
    found = await fetch_offsets(wire, topic, [0, 1, 2])
    assert places(found) == {0: 5, 1: 7, 2: -1}
    assert [each.metadata for each in found.topics[0].partitions] == ["by hand", "by hand", ""]
    everything = await fetch_offsets(wire, None, [])
    assert places(everything) == {0: 5, 1: 7}
    assert everything.topics[0].topic_id == topic


async def test_an_offset_that_is_still_being_stored_is_found(
    wire: Wire, broker: AsyncBroker, topic: bytes
) -> None:
    assert await commit(wire, topic, {0: 1}) == [0]
    async with Wire(broker.kafka) as other, Wire(broker.kafka) as third:
        with late_commits(broker.app.broker._storage) as late:
            committing = asyncio.create_task(commit(wire, topic, {0: 5}))
            await late.began.wait()
            fetching = asyncio.create_task(fetch_offsets(other, topic, [0]))
            assert places(await fetch_offsets(third, topic, [0], group="another")) == {0: -1}
            late.go_on.set()
            assert await committing == [0]
            assert places(await fetching) == {0: 5}


async def test_a_group_that_nobody_knows_has_read_nothing(wire: Wire, topic: bytes) -> None:
    found = await fetch_offsets(wire, topic, [0], group="unknown")
    assert (found.error_code, places(found)) == (0, {0: -1})
    assert (await fetch_offsets(wire, None, [], group="unknown")).topics == []


async def test_several_groups_at_once(wire: Wire, topic: bytes) -> None:
    await commit(wire, topic, {0: 1}, group="a")
    await commit(wire, topic, {0: 2}, group="b")
    groups = [OffsetFetchRequestGroup(group_id=name) for name in ("a", "b", "")]
    for group in groups:
        group.topics = None
    answer = await wire.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse)
    assert [places(group) for group in answer.groups] == [{0: 1}, {0: 2}, {}]
    assert [group.error_code for group in answer.groups] == [0, 0, 0]


async def test_old_versions_name_topics(wire: Wire, topic: bytes) -> None:
    await commit(wire, topic, {1: 9}, metadata="note")
    wanted = fetch_v1.OffsetFetchRequestTopic(name=TopicName("t"), partition_indexes=(i32(0), i32(1)))
    unknown = fetch_v1.OffsetFetchRequestTopic(name=TopicName("nobody"), partition_indexes=(i32(0),))
    request = fetch_v1.OffsetFetchRequest(group_id=KioGroupId("g"), topics=(wanted, unknown))
    answer = await wire.ask_kio(request, FetchedV1)
    first, second = answer.topics
    assert [(each.committed_offset, each.metadata) for each in first.partitions] == [(-1, ""), (9, "note")]
    assert [(each.committed_offset, each.error_code) for each in second.partitions] == [(-1, 0)]
    everything = await wire.ask_kio(
        fetch_v7.OffsetFetchRequest(group_id=KioGroupId("g"), topics=None, require_stable=True), FetchedV7
    )
    assert [(each.name, len(each.partitions)) for each in everything.topics] == [("t", 1)]


async def test_errors_of_single_partitions(wire: Wire, topic: bytes) -> None:
    assert await commit(wire, topic, {0: 1, 9: 1}) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await commit(wire, bytes(range(16)), {0: 1}) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert await commit(wire, topic, {0: 2}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await commit(wire, topic, {0: 3}, metadata="x" * 4096) == [0]
    assert await commit(wire, topic, {0: 4}, metadata=None) == [0]
    assert places(await fetch_offsets(wire, topic, [0])) == {0: 4}
    unknown = await fetch_offsets(wire, bytes(range(16)), [0])
    assert unknown.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_who_may_commit(wire: Wire, topic: bytes) -> None:
    assert await commit(wire, topic, {0: 1}, generation_id_or_member_epoch=3) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    joined = await join_alone(wire)
    who: dict[str, Any] = {
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": joined.generation_id,
    }
    assert await commit(wire, topic, {0: 1}, **who) == [0]
    assert await commit(wire, topic, {0: 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await commit(wire, topic, {0: 1}, **(who | {"member_id": "x"})) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await commit(wire, topic, {0: 1}, **(who | {"generation_id_or_member_epoch": 9})) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert await commit(wire, topic, {0: 1}, group="") == [0], "very old clients have no group"


async def test_member_epochs(wire: Wire, topic: bytes) -> None:
    joined = await beat(wire, "m")
    who: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": joined.member_epoch}
    assert await commit(wire, topic, {0: 1}, **who) == [0]
    assert await commit(wire, topic, {0: 1}, **(who | {"generation_id_or_member_epoch": 9})) == [
        ErrorCode.STALE_MEMBER_EPOCH
    ]

    async def fetched(member: str, epoch: int) -> int:
        return (await fetch_offsets(wire, topic, [0], member_id=member, member_epoch=epoch)).error_code

    assert await fetched("m", joined.member_epoch) == 0
    assert await fetched("m", 9) == ErrorCode.STALE_MEMBER_EPOCH
    assert await fetched("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_offset_that_a_transaction_may_change(wire: Wire, broker: AsyncBroker, topic: bytes) -> None:
    await commit(wire, topic, {0: 1, 1: 1})

    def unstable(group: GroupId, partition: PartitionId) -> bool:
        return (group, partition.index) == ("g", 1)

    broker.app.broker.groups.offsets.unstable = unstable
    found = await fetch_offsets(wire, topic, [0, 1])
    assert [each.error_code for each in found.topics[0].partitions] == [0, ErrorCode.UNSTABLE_OFFSET_COMMIT]


def deletion(*indexes: int, name: str = "t", group: str = "g") -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    return OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=name, partitions=partitions)]
    )


async def test_deleting_offsets(wire: Wire, topic: bytes) -> None:
    await commit(wire, topic, {0: 1, 1: 2})

    async def delete(request: OffsetDeleteRequest) -> list[int]:
        answer = await wire.ask(request, OffsetDeleteResponse)
        if answer.error_code:
            return [answer.error_code]
        return [each.error_code for each in answer.topics[0].partitions]

    assert await delete(deletion(0, 9)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert places(await fetch_offsets(wire, topic, [0, 1])) == {0: -1, 1: 2}
    assert await delete(deletion(0, group="nobody")) == [ErrorCode.GROUP_ID_NOT_FOUND]
    other = await wire.create_topic("u")
    await commit(wire, other, {0: 3})
    await join_alone(wire)
    assert await delete(deletion(1)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert await delete(deletion(0, name="u")) == [0]
    await join_alone(wire, "connectors", protocol_type="connect")
    assert await delete(deletion(1, group="connectors")) == [ErrorCode.NON_EMPTY_GROUP]


async def test_offsets_go_with_their_topic(wire: Wire, topic: bytes) -> None:
    await commit(wire, topic, {0: 1})
    await wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), DeleteTopicsResponse)
    again = await wire.create_topic("t", 3)
    assert (await fetch_offsets(wire, None, [])).topics == []
    assert places(await fetch_offsets(wire, again, [0])) == {0: -1}
