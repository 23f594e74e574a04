"""Groups of two brokers: each serves those whose scopes it holds, and scopes move while members work."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.offset_fetch.v7 import request as fetch_v7
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as FetchedV7
from kio.schema.types import GroupId as KioGroupId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from posthouse.app import App
from posthouse.model.scopes import GROUPS, Scope, scope_of_group, scope_of_transactional_id
from posthouse.protocols.kafka import companions
from posthouse.protocols.kafka.codec.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import TopicPartitions
from posthouse.protocols.kafka.codec.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.codec.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from posthouse.protocols.kafka.codec.generated.join_group import JoinGroupResponse
from posthouse.protocols.kafka.codec.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from posthouse.protocols.kafka.codec.generated.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.storage.spaces import Space
from tests.protocols.kafka.handlers import share_wire
from tests.protocols.kafka.handlers.group_wire import (
    beat,
    commit,
    fetch_offsets,
    join,
    join_alone,
    join_request,
    places,
)
from tests.protocols.kafka.members import COORDINATOR as COORDINATING
from tests.protocols.kafka.members import OWN
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.two_brokers import TwoBrokers, two_brokers
from tests.protocols.kafka.wire import Wire, batch

SCOPE = scope_of_group("g")


@pytest.fixture
async def brokers() -> AsyncIterator[TwoBrokers]:
    """The member holds the scope of the group g."""
    async with two_brokers() as running:
        await running.hold(SCOPE, running.member)
        yield running


@pytest.fixture
async def wire(brokers: TwoBrokers) -> AsyncIterator[Wire]:
    """A client of the member."""
    async with Wire(_address(brokers.member)) as connected:
        yield connected


@pytest.fixture
async def there(brokers: TwoBrokers) -> AsyncIterator[Wire]:
    """A client of the coordinator."""
    async with Wire(_address(brokers.coordinator)) as connected:
        yield connected


def _address(app: App) -> str:
    return str(app.listeners["kafka"])


def _other_group(scope: Scope = SCOPE) -> str:
    """A group of another scope."""
    return next(name for name in map(str, range(999)) if scope_of_group(name) != scope)


async def _found(wire: Wire, group: str = "g", kind: int = 0) -> int:
    """The id of the coordinator, or its error code, which is negative then."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[group])
    [found] = (await wire.ask(request, FindCoordinatorResponse)).coordinators
    return -found.error_code if found.error_code else found.node_id


async def _listed(wire: Wire) -> list[str]:
    return [each.group_id for each in (await wire.ask(ListGroupsRequest(), ListGroupsResponse)).groups]


async def test_every_broker_names_the_holder_of_the_scope(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    assert await _found(wire) == await _found(there) == OWN.id
    assert await _found(wire, kind=1) == await _found(there, kind=1) == COORDINATING.id
    assert await _found(wire, _other_group()) == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    await brokers.hold(SCOPE, brokers.coordinator)
    assert await _found(wire) == await _found(there) == COORDINATING.id


async def test_a_view_that_is_old_names_no_broker_that_knows_better(brokers: TwoBrokers, wire: Wire) -> None:
    await brokers.member.broker.release_scope(SCOPE)
    assert await _found(wire) == -ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("by_topic", [True, False])
async def test_partitions_of_old_versions_have_the_error(
    brokers: TwoBrokers, there: Wire, by_topic: bool
) -> None:
    """aiokafka looks only there."""
    wanted = fetch_v7.OffsetFetchRequestTopic(name=TopicName("t"), partition_indexes=(i32(0), i32(2)))
    request = fetch_v7.OffsetFetchRequest(
        group_id=KioGroupId("g"), topics=(wanted,) if by_topic else None, require_stable=False
    )
    answer = await there.ask_kio(request, FetchedV7)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    found = [(each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]
    assert found == ([(0, ErrorCode.NOT_COORDINATOR), (2, ErrorCode.NOT_COORDINATOR)] if by_topic else [])


async def test_a_classic_member_at_the_holder(brokers: TwoBrokers, wire: Wire, there: Wire) -> None:
    topic = await there.create_topic("t")
    joined = await join_alone(wire)
    identity: dict[str, Any] = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert (await wire.ask(HeartbeatRequest(group_id="g", **identity), HeartbeatResponse)).error_code == 0
    who: dict[str, Any] = {
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": joined.generation_id,
    }
    assert await commit(wire, topic, {0: 5}, **who) == [0]
    assert places(await fetch_offsets(wire, topic, [0])) == {0: 5}
    assert await _listed(wire) == ["g"] and await _listed(there) == []
    assert brokers.relayed == []


async def test_requests_to_a_broker_that_does_not_hold_the_scope(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    topic = await there.create_topic("t")
    assert await commit(wire, topic, {0: 5}) == [0]
    no = ErrorCode.NOT_COORDINATOR
    assert (await join(there)).error_code == no
    assert (await there.ask(HeartbeatRequest(group_id="g"), HeartbeatResponse)).error_code == no
    assert (await there.ask(LeaveGroupRequest(group_id="g"), LeaveGroupResponse)).error_code == no
    assert await commit(there, topic, {0: 6}) == [no]
    assert (await fetch_offsets(there, topic, [0])).error_code == no
    assert (await beat(there, "m")).error_code == no
    assert (await share_wire.beat(there, "m")).error_code == no
    described = await there.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse)
    assert described.groups[0].error_code == no
    for request, response in (
        (ConsumerGroupDescribeRequest(group_ids=["g"]), ConsumerGroupDescribeResponse),
        (ShareGroupDescribeRequest(group_ids=["g"]), ShareGroupDescribeResponse),
        (StreamsGroupDescribeRequest(group_ids=["g"]), StreamsGroupDescribeResponse),
    ):
        assert (await there.ask(request, response)).groups[0].error_code == no  # type: ignore[attr-defined]
    deleted = await there.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse)
    assert deleted.results[0].error_code == no
    partition = OffsetDeleteRequestPartition(partition_index=0)
    asked = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=[partition])]
    )
    assert (await there.ask(asked, OffsetDeleteResponse)).error_code == no
    assert (await wire.ask(asked, OffsetDeleteResponse)).error_code == 0
    assert places(await fetch_offsets(wire, topic, [0])) == {0: -1}


async def test_one_of_several_groups_is_elsewhere(brokers: TwoBrokers, there: Wire) -> None:
    other = _other_group()
    await brokers.hold(scope_of_group(other), brokers.coordinator)
    topic = await there.create_topic("t")
    assert await commit(there, topic, {0: 5}, group=other) == [0]
    described = await there.ask(DescribeGroupsRequest(groups=["g", other]), DescribeGroupsResponse)
    assert [each.error_code for each in described.groups] == [ErrorCode.NOT_COORDINATOR, 0]
    deleted = await there.ask(DeleteGroupsRequest(groups_names=["g", other]), DeleteGroupsResponse)
    assert [each.error_code for each in deleted.results] == [ErrorCode.NOT_COORDINATOR, 0]


async def test_while_a_scope_is_loaded(brokers: TwoBrokers, wire: Wire, there: Wire) -> None:
    topic = await there.create_topic("t")
    state = brokers.member_storage.shared_state
    await brokers.member.broker.release_scope(SCOPE)
    state.is_asked.clear()
    state.may_answer.clear()
    taking = asyncio.create_task(brokers.member.broker.take_scope(SCOPE))
    await asyncio.wait_for(state.is_asked.wait(), 30)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await commit(wire, topic, {0: 5}) == [loading]
    assert (await wire.ask(ListGroupsRequest(), ListGroupsResponse)).error_code == loading
    state.may_answer.set()
    await taking
    assert await commit(wire, topic, {0: 5}) == [0]


async def test_a_topic_that_the_holder_does_not_know_yet(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    topic = await there.create_topic("t")
    assert await commit(wire, topic, {0: 5}) == [0]
    unknown = bytes([7]) * 16
    assert await commit(wire, unknown, {0: 5}) == [ErrorCode.UNKNOWN_TOPIC_ID]
    await there.create_topic("u")
    joined = await beat(wire, "m", subscribed_topic_names=["u"])
    assert joined.assignment is not None and len(joined.assignment.topic_partitions) == 1


async def test_a_waiting_member_is_told_that_its_group_moves(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    await join_alone(wire)
    async with Wire(_address(brokers.member)) as second:
        answer = await second.ask(join_request(), JoinGroupResponse)
        pending = second.send(join_request(member=answer.member_id))
        await asyncio.sleep(0.05)
        await brokers.hold(SCOPE, brokers.coordinator)
        refused = await second.receive(pending)
        assert isinstance(refused, JoinGroupResponse)
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert await _found(wire) == COORDINATING.id
    assert (await join_alone(there)).error_code == 0


async def test_a_member_goes_on_at_the_next_holder(brokers: TwoBrokers, wire: Wire, there: Wire) -> None:
    topic = await there.create_topic("t")
    joined = await beat(wire, "m")
    assert await commit(wire, topic, {0: 5}, member_id="m", generation_id_or_member_epoch=1) == [0]
    await brokers.hold(SCOPE, brokers.coordinator)
    assert (await beat(wire, "m", joined.member_epoch)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await beat(there, "m", joined.member_epoch)).error_code == 0
    assert await commit(there, topic, {0: 6}, member_id="m", generation_id_or_member_epoch=1) == [0]
    offsets = await fetch_offsets(there, topic, [0], member_id="m", member_epoch=joined.member_epoch)
    assert places(offsets) == {0: 6}


async def test_a_holder_that_is_cut_off_serves_no_groups(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    topic = await there.create_topic("t")
    assert await commit(wire, topic, {0: 5}) == [0]
    brokers.is_cut_off = True
    assert await commit(wire, topic, {0: 6}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    listed = await wire.ask(ListGroupsRequest(), ListGroupsResponse)
    assert listed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# Share groups


async def _share_member(brokers: TwoBrokers, wire: Wire, there: Wire, at: Wire) -> share_wire.Member:
    """Joined at the holder, with a session by the broker `at`."""
    topic = await there.create_topic("t")
    await share_wire.set_config(there, auto_offset_reset="earliest")
    brokers.member_storage.follow()
    assert (await share_wire.beat(wire, "m")).error_code == 0
    return share_wire.Member(at, topic)


async def test_a_share_session_by_a_broker_that_does_not_hold_the_scope(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    member = await _share_member(brokers, wire, there, there)
    assert (await there.produce(member.topic, batch(b"a", b"b"))).error_code == 0
    await brokers.member_storage.refresh(list(brokers.storage._logs))
    got = await member.take(max_wait_ms=30_000)
    assert got is not None and got.values == [b"a", b"b"]
    assert await member.acknowledge({0: [(0, 1, [share_wire.ACCEPT])]}) == {0: 0}
    assert brokers.relayed == [SCOPE]
    assert await share_wire.lag(wire) == {0: (2, 0)}


async def test_share_sessions_end_with_the_hold_and_begin_at_the_next_holder(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    member = await _share_member(brokers, wire, there, wire)
    assert (await there.produce(member.topic, batch(b"a", b"b", b"c"))).error_code == 0
    await brokers.member_storage.refresh(list(brokers.storage._logs))
    got = await member.take()
    assert got is not None and len(got.values) == 3
    assert await member.acknowledge({0: [(0, 0, [share_wire.ACCEPT])]}) == {0: 0}
    await brokers.hold(SCOPE, brokers.coordinator)
    refused = await member.ask_fetch()
    assert refused.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await share_wire.beat(wire, "m", 1)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await share_wire.beat(there, "m")).error_code == 0
    member.epoch = 0
    got = await member.take()
    assert got is not None and got.values == [b"b", b"c"]


async def test_a_share_fetch_that_waits_ends_when_the_scope_moves(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    member = await _share_member(brokers, wire, there, there)
    assert await member.take() is None
    waiting = asyncio.create_task(member.ask_fetch(max_wait_ms=3_600_000))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(brokers.hold(SCOPE, brokers.coordinator), 30)
    answer = await asyncio.wait_for(waiting, 30)
    assert (answer.error_code, answer.responses) == (0, [])


async def test_a_broker_that_is_relayed_to_relays_no_further(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    """The one that relays has an old view."""
    member = await _share_member(brokers, wire, there, there)
    await brokers.member.broker.release_scope(SCOPE)
    answer = await member.ask_fetch(0)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_connection_has_a_limited_number_of_companions(
    brokers: TwoBrokers, there: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companions, "MOST_COMPANIONS", 2)
    groups: dict[Scope, str] = {}
    for name in map(str, range(999)):
        groups.setdefault(scope_of_group(name), name)
    for scope in GROUPS[:4]:
        if scope != SCOPE:
            await brokers.hold(scope, brokers.member)
    topic = await there.create_topic("t")
    asked = [groups[scope] for scope in (*GROUPS[:4], *GROUPS[:2])]
    for group in asked:
        answer = await share_wire.Member(there, topic, group=group).ask_fetch(0)
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert brokers.relayed == [*GROUPS[:4], *GROUPS[:2]]


# Transactions


@pytest.mark.parametrize("newer", [False, True])
async def test_offsets_of_a_transaction_go_by_the_holder_of_the_group(
    newer: bool, brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    topic = await there.create_topic("t")
    producer = TransactionalWire(there, newer=newer)
    by_holder = TransactionalWire(wire, newer=newer, id=producer.id)
    assert await producer.init() == 0
    for offset in (5, 6):
        by_holder._be(producer.producer_id, producer.epoch)
        await producer.write(b"x")
        if not newer:
            assert await producer.add_group() == 0
        assert await producer.send_offset(offset) == ErrorCode.NOT_COORDINATOR
        assert await by_holder.send_offset(offset) == 0
        unstable = await fetch_offsets(wire, topic, [0])
        assert unstable.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await producer.end() == 0
        assert places(await fetch_offsets(wire, topic, [0])) == {0: offset}
    assert set(brokers.relayed) == {scope_of_transactional_id(producer.id)}


async def test_the_holder_checks_the_member_of_a_transaction(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    await there.create_topic("t")
    joined = await join_alone(wire)
    producer = TransactionalWire(there, newer=True)
    assert await producer.init() == 0
    await producer.write(b"x")
    by_holder = TransactionalWire(wire, newer=True, id=producer.id)
    by_holder._be(producer.producer_id, producer.epoch)
    stale: dict[str, Any] = {"member_id": joined.member_id, "generation_id": joined.generation_id - 1}
    assert await by_holder.send_offset(5, **stale) == ErrorCode.ILLEGAL_GENERATION
    assert brokers.relayed == []
    current: dict[str, Any] = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert await by_holder.send_offset(5, **current) == 0
    assert brokers.relayed == [scope_of_transactional_id(producer.id)]


async def test_a_member_with_an_older_epoch_commits_what_it_still_has(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    """The coordinator of transactions does not know whose partitions they are."""
    await there.create_topic("t", 2)
    joined = await beat(wire, "m")
    assert joined.member_epoch == 1
    second = await beat(wire, "n")
    assert second.error_code == 0
    # It gives up one of both partitions, and is in the next epoch then.
    reported = await beat(wire, "m", 1)
    assert reported.assignment is not None
    [kept] = reported.assignment.topic_partitions
    [index] = kept.partitions
    owned = [TopicPartitions(topic_id=kept.topic_id, partitions=[index])]
    assert (await beat(wire, "m", 1, topic_partitions=owned)).member_epoch == 2
    producer = TransactionalWire(there, newer=True)
    assert await producer.init() == 0
    await producer.write(b"x")
    by_holder = TransactionalWire(wire, newer=True, id=producer.id)
    by_holder._be(producer.producer_id, producer.epoch)
    old: dict[str, Any] = {"member_id": "m", "generation_id": 1}
    assert await by_holder.send_offset(5, partition=index, **old) == 0
    assert await by_holder.send_offset(5, partition=1 - index, **old) == ErrorCode.STALE_MEMBER_EPOCH


async def test_the_coordinator_takes_offsets_only_from_the_holder(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    """It has seen that another broker holds the scope."""
    await there.create_topic("t")
    producer = TransactionalWire(there, newer=True)
    assert await producer.init() == 0
    await producer.write(b"x")
    by_holder = TransactionalWire(wire, newer=True, id=producer.id)
    by_holder._be(producer.producer_id, producer.epoch)
    brokers.view = type(brokers.view)(
        brokers=brokers.view.brokers,
        holder_incarnation=COORDINATING.incarnation,
        holders={**brokers.view.holders, SCOPE: COORDINATING.incarnation},
    )
    assert await by_holder.send_offset(5) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("newer", [False, True])
async def test_a_group_moves_during_a_transaction(
    newer: bool, brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    topic = await there.create_topic("t", 2)
    producer = TransactionalWire(there, newer=newer)
    assert await producer.init() == 0
    await producer.write(b"x")
    by_member = TransactionalWire(wire, newer=newer, id=producer.id)
    by_member._be(producer.producer_id, producer.epoch)
    if not newer:
        assert await producer.add_group() == 0
    assert await by_member.send_offset(5) == 0
    await brokers.hold(SCOPE, brokers.coordinator)
    assert await by_member.send_offset(6, partition=1) == ErrorCode.NOT_COORDINATOR
    assert await producer.send_offset(6, partition=1) == 0
    unstable = await fetch_offsets(there, topic, [0])
    assert unstable.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await producer.end() == 0
    assert places(await fetch_offsets(there, topic, [0, 1])) == {0: 5, 1: 6}
    await brokers.hold(SCOPE, brokers.member)
    assert places(await fetch_offsets(wire, topic, [0, 1])) == {0: 5, 1: 6}


@pytest.mark.parametrize("newer", [False, True])
async def test_offsets_of_several_groups_in_one_transaction(
    newer: bool, brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    other = _other_group()
    await brokers.hold(scope_of_group(other), brokers.coordinator)
    topic = await there.create_topic("t")
    producer = TransactionalWire(there, newer=newer)
    assert await producer.init() == 0
    await producer.write(b"x")
    by_member = TransactionalWire(wire, newer=newer, id=producer.id)
    by_member._be(producer.producer_id, producer.epoch)
    assert newer or [await producer.add_group(each) for each in ("g", other)] == [0, 0]
    assert await producer.send_offset(1, group=other) == 0
    assert await by_member.send_offset(2) == 0
    assert await producer.send_offset(3, group=other) == 0
    assert await producer.end() == 0
    assert places(await fetch_offsets(there, topic, [0], group=other)) == {0: 3}
    assert places(await fetch_offsets(wire, topic, [0])) == {0: 2}


async def test_an_aborted_transaction_leaves_offsets_as_they_were(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    topic = await there.create_topic("t")
    assert await commit(wire, topic, {0: 1}) == [0]
    producer = TransactionalWire(there, newer=True)
    assert await producer.init() == 0
    await producer.write(b"x")
    by_holder = TransactionalWire(wire, newer=True, id=producer.id)
    by_holder._be(producer.producer_id, producer.epoch)
    assert await by_holder.send_offset(5) == 0
    assert await producer.end(commit=False) == 0
    assert places(await fetch_offsets(wire, topic, [0])) == {0: 1}


# Streams groups


async def test_the_coordinator_makes_the_internal_topics_of_a_streams_group(
    brokers: TwoBrokers, wire: Wire, there: Wire
) -> None:
    await there.create_topic("t", 3)
    changelog = TopicInfo(name="app-store-changelog", partitions=0, replication_factor=1)
    topology = Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=[changelog])
        ],
    )
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        topology=topology,
        process_id="p",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    first = await wire.ask(request, StreamsGroupHeartbeatResponse)
    assert first.error_code == 0, first.error_message
    topic = brokers.coordinator.broker.topic("app-store-changelog")
    assert topic.partitions == 3 and topic.config.cleanup_policy is not None
    assert brokers.member.broker.topic("app-store-changelog") == topic
    assert brokers.storage._state[Space.STREAMS_GROUPS]
