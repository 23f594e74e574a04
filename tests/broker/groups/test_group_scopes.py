"""Groups of scopes that a broker takes and gives up: nothing is lost, and nothing is used afterwards."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.groups import handover, offset_reading
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.consumer_member import Beat
from posthouse.broker.groups.membership import (
    Joined,
    JoinRequest,
    MemberIdentity,
    OfferedProtocol,
    Synced,
    SyncRequest,
)
from posthouse.broker.groups.offset_reading import OffsetReading
from posthouse.broker.groups.states import ClassicState
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import (
    CoordinatorLoading,
    GroupNotEmpty,
    NotCoordinator,
    RebalanceInProgress,
    Unavailable,
    UnknownGroup,
    UnknownMember,
    UnstableOffset,
)
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.model.scopes import COORDINATOR, scope_of_group
from posthouse.model.topics import Topic
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space
from tests.broker.members import Pair, pair, started

GROUP = GroupId("g")
SCOPE = scope_of_group(GROUP)
NO_MEMBER = MemberIdentity(member=MemberId(""))


@pytest.fixture
async def brokers() -> AsyncIterator[Pair]:
    """The member holds the group's scope."""
    async with pair() as made:
        [created] = await made.coordinator.create_topics([NewTopic(name="t", partitions=2)])
        assert isinstance(created, Topic)
        async with started(made.member):
            await made.scopes.take(made.member, SCOPE)
            yield made


def partition(brokers: Pair, index: int = 0) -> PartitionId:
    return brokers.coordinator.topic("t").partition(index)


async def commit(broker: Broker, partition: PartitionId, offset: int, group: GroupId = GROUP) -> None:
    [error] = await broker.groups.offsets.commit(
        group, NO_MEMBER, [NewOffset(partition=partition, offset=offset)]
    )
    assert error is None


def committed(broker: Broker, partition: PartitionId, group: GroupId = GROUP) -> int | None:
    found = broker.groups.offsets.get(group, partition)
    return None if found is None else found.offset


async def stored(broker: Broker, partition: PartitionId, *, stable: bool = False) -> int | None:
    found = (await reading(broker).read([GROUP])).get(GROUP, partition, stable=stable)
    return None if found is None else found.offset


def reading(broker: Broker) -> OffsetReading:
    assert broker.groups.offsets.reading is not None
    return broker.groups.offsets.reading


def join_request(member: MemberId | None = None) -> JoinRequest:
    return JoinRequest(
        member=member,
        protocol_type="consumer",
        protocols=(OfferedProtocol(name="range", metadata=b""),),
        session_seconds=10,
        rebalance_seconds=10,
    )


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_a_scope_moves_with_its_groups(brokers: Pair) -> None:
    await commit(brokers.member, partition(brokers), 7)
    assert brokers.member.holds(SCOPE) and not brokers.coordinator.holds(SCOPE)
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    assert brokers.coordinator.holds(SCOPE) and not brokers.member.holds(SCOPE)
    assert committed(brokers.coordinator, partition(brokers)) == 7
    await commit(brokers.coordinator, partition(brokers), 8)
    with pytest.raises(NotCoordinator):
        await commit(brokers.member, partition(brokers), 9)
    await brokers.scopes.move(SCOPE, brokers.member)
    assert committed(brokers.member, partition(brokers)) == 8


async def test_nothing_of_a_scope_that_was_given_up_is_known(brokers: Pair) -> None:
    await commit(brokers.member, partition(brokers), 7)
    other = next(GroupId(f"h{n}") for n in range(99) if scope_of_group(GroupId(f"h{n}")) != SCOPE)
    await brokers.scopes.take(brokers.member, scope_of_group(other))
    await commit(brokers.member, partition(brokers), 5, other)
    brokers.member.groups.beat(GroupId("g"), Beat(member=MemberId("m"), epoch=0, topics=frozenset({"t"})))
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    assert [each.id for each in brokers.member.groups.listed()] == [other]
    assert committed(brokers.member, partition(brokers), other) == 5
    assert [each.id for each in brokers.coordinator.groups.listed()] == [GROUP]


def test_the_coordinator_has_a_scope_of_its_own() -> None:
    async def run() -> None:
        async with pair() as brokers, started(brokers.member):
            assert brokers.coordinator.holds(COORDINATOR) and not brokers.member.holds(COORDINATOR)

    asyncio.run(run())


async def test_requests_while_a_scope_is_loaded(brokers: Pair) -> None:
    await brokers.member.release_scope(SCOPE)
    state = brokers.member_storage.shared_state
    state.is_asked.clear()
    state.may_answer.clear()
    taking = asyncio.create_task(brokers.member.take_scope(SCOPE))
    await asyncio.wait_for(state.is_asked.wait(), 30)
    for ask in (brokers.member.groups.describe, brokers.member.groups.offsets.check_kind):
        with pytest.raises(CoordinatorLoading):
            ask(GROUP)
    assert brokers.member.groups.is_loading and not brokers.member.holds(SCOPE)
    state.may_answer.set()
    await taking
    assert brokers.member.holds(SCOPE) and not brokers.member.groups.is_loading


async def test_a_scope_that_cannot_be_read_is_not_served(brokers: Pair) -> None:
    await brokers.member.release_scope(SCOPE)
    brokers.member_storage.shared_state.failure = Unavailable("the database is away")
    with pytest.raises(Unavailable):
        await brokers.member.take_scope(SCOPE)
    with pytest.raises(NotCoordinator):
        brokers.member.groups.describe(GROUP)
    brokers.member_storage.shared_state.failure = None
    await brokers.member.take_scope(SCOPE)
    await brokers.member.take_scope(SCOPE)
    await commit(brokers.member, partition(brokers), 1)


async def test_waiting_members_look_for_the_other_broker(brokers: Pair) -> None:
    groups = brokers.member.groups
    joining = groups.join(GROUP, join_request())
    await asyncio.sleep(0)
    assert not joining.done()
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    assert isinstance(await asyncio.wait_for(joining, 30), NotCoordinator)
    assert isinstance(await groups.join(GROUP, join_request()), NotCoordinator)
    identity = MemberIdentity(member=MemberId("m"), generation=1)
    with pytest.raises(NotCoordinator):
        groups.heartbeat(GROUP, identity)
    with pytest.raises(UnknownMember):
        brokers.coordinator.groups.heartbeat(GROUP, identity)


async def test_a_timer_of_a_group_that_has_moved_stores_nothing(brokers: Pair) -> None:
    """The table of scopes would fail a commit."""
    brokers.member.groups.beat(GROUP, Beat(member=MemberId("m"), epoch=0, topics=frozenset({"t"})))
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    brokers.clock.advance(3600)
    await asyncio.sleep(0.01)
    assert brokers.member.groups.listed() == []


async def test_a_scope_is_not_given_up_before_its_commits_are_durable(brokers: Pair) -> None:
    brokers.member_storage.may_commit.clear()
    committing = asyncio.ensure_future(
        brokers.member.groups.offsets.commit(
            GROUP, NO_MEMBER, [NewOffset(partition=partition(brokers), offset=9)]
        )
    )
    moving = asyncio.create_task(brokers.scopes.move(SCOPE, brokers.coordinator))
    await asyncio.sleep(0.01)
    assert not moving.done()
    brokers.member_storage.may_commit.set()
    assert await committing == [None]
    await asyncio.wait_for(moving, 30)
    assert committed(brokers.coordinator, partition(brokers)) == 9


async def test_many_offsets_at_once_are_refused_if_the_scope_is_given_up_before_they_are_stored(
    brokers: Pair,
) -> None:
    offsets = [NewOffset(partition=partition(brokers, index % 2), offset=index) for index in range(3000)]
    committing = asyncio.create_task(brokers.member.groups.offsets.commit_in_turns(GROUP, NO_MEMBER, offsets))
    await asyncio.sleep(0)
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    assert committing.done()
    with pytest.raises(NotCoordinator):
        await committing  # the group was looked at once more before anything was stored
    assert committed(brokers.coordinator, partition(brokers)) is None


async def test_offsets_of_topics_that_were_deleted_are_removed_by_the_holder(brokers: Pair) -> None:
    """The holder hears of the deletion, or finds the offsets when it loads them."""
    await commit(brokers.member, partition(brokers), 7)
    await brokers.coordinator.delete_topics([brokers.coordinator.topic("t")])
    assert brokers.storage._state[Space.OFFSETS]
    brokers.member_storage.follow()
    async with asyncio.timeout(30):
        while brokers.storage._state[Space.OFFSETS]:
            await asyncio.sleep(0.01)


async def test_leftovers_of_deleted_topics(brokers: Pair) -> None:
    await commit(brokers.member, partition(brokers), 7)
    await brokers.member.release_scope(SCOPE)
    await brokers.coordinator.delete_topics([brokers.coordinator.topic("t")])
    assert brokers.storage._state[Space.OFFSETS]
    await brokers.member.take_scope(SCOPE)
    assert not brokers.storage._state[Space.OFFSETS]
    assert not brokers.member.groups.offsets.has(GROUP)


async def test_offsets_of_a_topic_that_the_broker_does_not_know_yet_are_kept(brokers: Pair) -> None:
    await brokers.member.release_scope(SCOPE)
    del brokers.scopes.holders[SCOPE]
    await brokers.scopes.take(brokers.coordinator, SCOPE)
    [created] = await brokers.coordinator.create_topics([NewTopic(name="new", partitions=1)])
    assert isinstance(created, Topic)
    await commit(brokers.coordinator, created.partition(0), 3)
    await brokers.scopes.move(SCOPE, brokers.member)
    assert committed(brokers.member, created.partition(0)) == 3


async def test_a_group_is_deleted_by_its_holder(brokers: Pair) -> None:
    await commit(brokers.member, partition(brokers), 7)
    with pytest.raises(NotCoordinator):
        await brokers.coordinator.groups.delete(GROUP)
    await brokers.member.groups.delete(GROUP)
    with pytest.raises(UnknownGroup):
        await brokers.member.groups.delete(GROUP)
    assert not brokers.storage._state[Space.OFFSETS]


async def test_groups_expire_where_they_are(brokers: Pair) -> None:
    await commit(brokers.member, partition(brokers), 7)
    brokers.clock.advance(30 * 24 * 3600)
    await brokers.coordinator.groups.expire()
    assert brokers.storage._state[Space.OFFSETS]
    await brokers.member.groups.expire()
    assert not brokers.storage._state[Space.OFFSETS]


# What transactions commit elsewhere


def end_transaction(
    brokers: Pair, offset: int | None, partition: PartitionId, *, pending: bool = False
) -> None:
    """As the coordinator does it: without holding the scope of the group."""
    coordinator = brokers.coordinator
    puts = (
        []
        if offset is None
        else coordinator.groups.offsets.puts(GROUP, [NewOffset(partition=partition, offset=offset)])
    )
    [key] = [
        put.key for put in coordinator.groups.offsets.puts(GROUP, [NewOffset(partition=partition, offset=0)])
    ]
    note = Put(Space.TRANSACTION_OFFSETS, b"\x00\x02tx" + key, b"-" if pending else None)
    brokers.storage.commit([*puts, note])
    coordinator.groups.offsets.apply_transaction(puts)


async def test_offsets_are_answered_as_they_are_stored(brokers: Pair) -> None:
    where = partition(brokers)
    await commit(brokers.member, where, 7)
    end_transaction(brokers, None, where, pending=True)
    assert await stored(brokers.member, where) == 7
    with pytest.raises(UnstableOffset):
        await stored(brokers.member, where, stable=True)
    assert await stored(brokers.member, partition(brokers, 1), stable=True) is None
    end_transaction(brokers, 8, where)
    assert await stored(brokers.member, where, stable=True) == 8
    assert committed(brokers.member, where) == 8
    assert not brokers.coordinator.groups.offsets.has(GROUP)


async def test_what_is_read_late_does_not_hide_what_was_committed_meanwhile(brokers: Pair) -> None:
    where, other = partition(brokers), partition(brokers, 1)
    await commit(brokers.member, where, 7)
    await commit(brokers.member, other, 1)
    state = brokers.member_storage.shared_state
    state.is_asked.clear()
    state.may_answer.clear()
    asked = asyncio.create_task(stored(brokers.member, where))
    await asyncio.wait_for(state.is_asked.wait(), 30)
    await commit(brokers.member, where, 9)
    await brokers.member.groups.offsets.remove(GROUP, [other])
    state.may_answer.set()
    assert await asked == 7  # as it was when the request came
    assert committed(brokers.member, where) == 9
    assert committed(brokers.member, other) is None
    assert await stored(brokers.member, where) == 9


async def test_a_scope_stays_while_its_offsets_are_read(brokers: Pair) -> None:
    state = brokers.member_storage.shared_state
    state.is_asked.clear()
    state.may_answer.clear()
    asked = asyncio.create_task(stored(brokers.member, partition(brokers)))
    await asyncio.wait_for(state.is_asked.wait(), 30)
    moving = asyncio.create_task(brokers.scopes.move(SCOPE, brokers.coordinator))
    await asyncio.sleep(0.01)
    assert not moving.done()
    state.may_answer.set()
    await asked
    await asyncio.wait_for(moving, 30)
    with pytest.raises(NotCoordinator):
        await stored(brokers.member, partition(brokers))


async def test_offsets_on_their_way_to_the_coordinator_are_unstable(brokers: Pair) -> None:
    where = partition(brokers)
    first, second = (reading(brokers.member).begin(GROUP, [where]) for _ in range(2))
    first.end(is_answered=True)
    with pytest.raises(UnstableOffset):
        await stored(brokers.member, where, stable=True)
    assert await stored(brokers.member, partition(brokers, 1), stable=True) is None
    second.end(is_answered=True)
    assert await stored(brokers.member, where, stable=True) is None


async def test_offsets_that_arrive_while_others_are_read_are_unstable(brokers: Pair) -> None:
    """They may have been stored after the statement has looked, and the answer has come before its own."""
    where = partition(brokers)
    state = brokers.member_storage.shared_state
    sent = reading(brokers.member).begin(GROUP, [where])
    state.is_asked.clear()
    state.may_answer.clear()
    asked = asyncio.create_task(stored(brokers.member, where, stable=True))
    await asyncio.wait_for(state.is_asked.wait(), 30)
    sent.end(is_answered=True)
    state.may_answer.set()
    with pytest.raises(UnstableOffset):
        await asked


async def test_offsets_without_an_answer_may_still_arrive(
    brokers: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_reading, "DOUBT_SECONDS", 0.1)
    where = partition(brokers)
    reading(brokers.member).begin(GROUP, [where]).end(is_answered=False)
    with pytest.raises(UnstableOffset):
        await stored(brokers.member, where, stable=True)
    moving = asyncio.create_task(brokers.scopes.move(SCOPE, brokers.coordinator))
    await asyncio.sleep(0)
    assert not moving.done()
    await asyncio.wait_for(moving, 30)


async def test_groups_that_only_transactions_commit_to_are_followed(brokers: Pair) -> None:
    where = partition(brokers)
    reading(brokers.member).begin(GROUP, [where]).end(is_answered=True)
    end_transaction(brokers, 8, where)
    await brokers.member.groups.offsets.follow()
    assert [each.id for each in brokers.member.groups.listed()] == [GROUP]
    assert committed(brokers.member, where) == 8
    end_transaction(brokers, 9, where)
    await brokers.member.groups.offsets.follow()
    assert committed(brokers.member, where) == 8  # nothing was sent through this broker since


async def test_transactions_that_were_open_when_the_scope_was_taken_are_followed(brokers: Pair) -> None:
    where = partition(brokers)
    end_transaction(brokers, None, where, pending=True)
    await brokers.member.release_scope(SCOPE)
    await brokers.member.take_scope(SCOPE)
    end_transaction(brokers, 8, where)
    await brokers.member.groups.offsets.follow()
    assert committed(brokers.member, where) == 8


async def test_a_group_does_not_expire_whose_offsets_a_transaction_has_committed(brokers: Pair) -> None:
    where = partition(brokers)
    await commit(brokers.member, where, 7)
    brokers.clock.advance(30 * 24 * 3600)
    end_transaction(brokers, 8, where)
    await brokers.member.groups.expire()
    assert committed(brokers.member, where) == 8


async def test_all_offsets_go_with_a_group_those_of_transactions_among_them(brokers: Pair) -> None:
    await commit(brokers.member, partition(brokers), 7)
    end_transaction(brokers, 8, partition(brokers, 1))
    await brokers.member.groups.delete(GROUP)
    assert not brokers.storage._state[Space.OFFSETS]


async def test_the_coordinator_knows_what_transactions_commit_to_its_own_groups(brokers: Pair) -> None:
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    end_transaction(brokers, 8, partition(brokers))
    assert committed(brokers.coordinator, partition(brokers)) == 8


async def test_offsets_of_a_group_that_another_broker_holds(brokers: Pair) -> None:
    where = partition(brokers)
    await commit(brokers.member, where, 7)
    found = (await brokers.coordinator.groups.offsets.stored(GROUP)).get(GROUP, where)
    assert found is not None and found.offset == 7


async def test_a_group_with_members_is_not_deleted(brokers: Pair) -> None:
    brokers.member.groups.beat(GROUP, Beat(member=MemberId("m"), epoch=0, topics=frozenset({"t"})))
    with pytest.raises(GroupNotEmpty):
        await brokers.member.groups.delete(GROUP)


async def classic_member(broker: Broker, *, session_seconds: float = 10) -> Joined:
    """The only member of the group, with its assignment."""
    joined = await broker.groups.join(GROUP, replace(join_request(), session_seconds=session_seconds))
    assert isinstance(joined, Joined)
    synced = await broker.groups.sync(
        GROUP,
        SyncRequest(
            identity=MemberIdentity(member=joined.member, generation=joined.generation),
            assignments=((joined.member, b"all"),),
        ),
    )
    assert isinstance(synced, Synced)
    return joined


async def commit_as(broker: Broker, identity: MemberIdentity, partition: PartitionId, offset: int) -> None:
    offsets = [NewOffset(partition=partition, offset=offset)]
    assert await broker.groups.offsets.commit(GROUP, identity, offsets) == [None]


@pytest.fixture
async def at_once() -> AsyncIterator[Pair]:
    """As `brokers`, without the delay of a new group."""
    async with pair(group_initial_rebalance_ms=0, group_min_session_ms=1) as made:
        await made.coordinator.create_topics([NewTopic(name="t", partitions=2)])
        async with started(made.member):
            await made.scopes.take(made.member, SCOPE)
            yield made


async def test_members_of_a_classic_group_move_with_it(at_once: Pair) -> None:
    """Heartbeats and commits of their generation succeed at the next broker: there is no rebalance."""
    joined = await classic_member(at_once.member)
    identity = MemberIdentity(member=joined.member, generation=joined.generation)
    at_once.clock.advance(9)
    await at_once.scopes.move(SCOPE, at_once.coordinator)
    groups = at_once.coordinator.groups
    at_once.clock.advance(9)
    groups.heartbeat(GROUP, identity)
    await commit_as(at_once.coordinator, identity, partition(at_once), 7)
    [member] = groups.describe(GROUP).members
    assert (member.id, member.assignment) == (joined.member, b"all")
    assert groups.describe(GROUP).state is ClassicState.STABLE
    with pytest.raises(NotCoordinator):
        at_once.member.groups.heartbeat(GROUP, identity)
    await at_once.scopes.move(SCOPE, at_once.member)
    at_once.member.groups.heartbeat(GROUP, identity)


async def test_members_of_a_kip_848_group_move_with_it(brokers: Pair) -> None:
    me = MemberId("m")
    answer = brokers.member.groups.beat(
        GROUP, Beat(member=me, epoch=0, topics=frozenset({"t"}), rebalance_seconds=30)
    )
    assert answer.assignment is not None and len(answer.assignment) == 2
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    identity = MemberIdentity(member=me, generation=answer.epoch)
    await commit_as(brokers.coordinator, identity, partition(brokers), 7)
    again = brokers.coordinator.groups.beat(
        GROUP,
        Beat(
            member=me,
            epoch=answer.epoch,
            topics=frozenset({"t"}),
            rebalance_seconds=30,
            owned=answer.assignment,
        ),
    )
    assert again == answer


async def test_members_that_were_stored_are_removed_before_the_next_broker_serves(at_once: Pair) -> None:
    joined = await classic_member(at_once.member)
    await at_once.member.release_scope(SCOPE)
    del at_once.scopes.holders[SCOPE]
    assert list(at_once.storage._state[Space.GROUP_MEMBERS]) == [GROUP.encode()]
    at_once.storage.may_commit.clear()
    taking = asyncio.create_task(at_once.scopes.take(at_once.coordinator, SCOPE))
    await until(lambda: bool(at_once.storage._waiting))
    with pytest.raises(CoordinatorLoading):
        at_once.coordinator.groups.describe(GROUP)
    at_once.storage.may_commit.set()
    await asyncio.wait_for(taking, 30)
    assert not at_once.storage._state[Space.GROUP_MEMBERS]
    assert [each.id for each in at_once.coordinator.groups.describe(GROUP).members] == [joined.member]


async def test_a_member_that_does_not_come_to_the_next_broker_expires(at_once: Pair) -> None:
    await classic_member(at_once.member, session_seconds=0.05)
    await at_once.scopes.move(SCOPE, at_once.coordinator)
    assert at_once.coordinator.groups.has_members(GROUP)
    at_once.clock.advance(0.05)
    await until(lambda: not at_once.coordinator.groups.has_members(GROUP))


async def test_a_group_that_rebalances_moves_with_the_members_that_it_had(at_once: Pair) -> None:
    joined = await classic_member(at_once.member)
    second = at_once.member.groups.join(GROUP, join_request())
    await at_once.scopes.move(SCOPE, at_once.coordinator)
    assert isinstance(await second, NotCoordinator)
    groups = at_once.coordinator.groups
    identity = MemberIdentity(member=joined.member, generation=joined.generation)
    await commit_as(at_once.coordinator, identity, partition(at_once), 7)
    with pytest.raises(RebalanceInProgress):
        groups.heartbeat(GROUP, identity)
    again = await asyncio.wait_for(groups.join(GROUP, join_request(joined.member)), 30)
    assert isinstance(again, Joined)
    assert (again.member, again.generation) == (joined.member, joined.generation + 1)


async def test_members_that_were_stored_long_ago_have_gone(at_once: Pair) -> None:
    """Their sessions are over, whichever broker takes the scope then."""
    await commit(at_once.member, partition(at_once), 7)
    await classic_member(at_once.member)
    await at_once.member.release_scope(SCOPE)
    del at_once.scopes.holders[SCOPE]
    at_once.clock.advance(10.1)
    await at_once.scopes.take(at_once.coordinator, SCOPE)
    assert not at_once.coordinator.groups.has_members(GROUP)
    assert not at_once.storage._state[Space.GROUP_MEMBERS]
    assert at_once.coordinator.groups._registry.empty_since(GROUP) == at_once.clock.now_ms()


async def test_damaged_members_join_again(at_once: Pair, caplog: pytest.LogCaptureFixture) -> None:
    await classic_member(at_once.member)
    await at_once.member.release_scope(SCOPE)
    del at_once.scopes.holders[SCOPE]
    at_once.storage._state[Space.GROUP_MEMBERS][GROUP.encode()] += b"?"
    await at_once.scopes.take(at_once.coordinator, SCOPE)
    assert "its members join again: a stored value is longer than its fields" in caplog.text
    assert not at_once.coordinator.groups.has_members(GROUP)
    assert isinstance(await at_once.coordinator.groups.join(GROUP, join_request()), Joined)


async def test_groups_that_are_too_large_join_again(
    at_once: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_MAX_BYTES", 50)
    await classic_member(at_once.member)
    await at_once.scopes.move(SCOPE, at_once.coordinator)
    assert "its 1 members join again" in caplog.text
    assert not at_once.coordinator.groups.has_members(GROUP)


async def test_members_that_cannot_be_stored_are_forgotten_as_well(at_once: Pair) -> None:
    """Otherwise they would be there when the scope comes back, after another broker has had other ones."""
    await classic_member(at_once.member)
    at_once.member_storage.may_commit.clear()
    releasing = asyncio.create_task(at_once.member.release_scope(SCOPE))
    await until(lambda: bool(at_once.member_storage._waiting))
    [(_, stored)] = at_once.member_storage._waiting
    stored.set_exception(Unavailable("the database is away"))
    at_once.member_storage._waiting.clear()
    with pytest.raises(Unavailable):
        await releasing
    at_once.member_storage.may_commit.set()
    await at_once.member.take_scope(SCOPE)
    assert not at_once.member.groups.has_members(GROUP)


async def test_members_of_a_broker_that_stops_go_on_at_another_one() -> None:
    async with pair(group_initial_rebalance_ms=0) as brokers:
        async with started(brokers.member):
            await brokers.scopes.take(brokers.member, SCOPE)
            joined = await classic_member(brokers.member)
            brokers.member.wake_readers()
        del brokers.scopes.holders[SCOPE]
        await brokers.scopes.take(brokers.coordinator, SCOPE)
        identity = MemberIdentity(member=joined.member, generation=joined.generation)
        brokers.coordinator.groups.heartbeat(GROUP, identity)


async def test_a_broker_that_cannot_store_its_members_stops(caplog: pytest.LogCaptureFixture) -> None:
    async with pair(group_initial_rebalance_ms=0) as brokers, started(brokers.member):
        await brokers.scopes.take(brokers.member, SCOPE)
        await classic_member(brokers.member)
        await brokers.member_storage.barrier()
        brokers.member_storage.may_commit.clear()
        stopping = asyncio.create_task(brokers.member._group_scopes.stop())
        await until(lambda: bool(brokers.member_storage._waiting))
        _, stored = brokers.member_storage._waiting.popleft()
        stored.set_exception(Unavailable("the lease is lost"))
        await asyncio.wait_for(stopping, 30)
        assert "have to join again: the lease is lost" in caplog.text
        brokers.member_storage.may_commit.set()


async def test_a_broker_that_is_alone_forgets_members_of_a_cluster() -> None:
    """Of data that was exported."""
    clock = ManualClock()
    storage = MemoryStorage(clock)
    storage._state[Space.GROUP_MEMBERS] = {GROUP.encode(): b"whatever"}
    broker = Broker(storage, Settings(memory=True), clock)
    await broker.start()
    await broker.coordinate()
    await storage.barrier()
    assert not storage._state[Space.GROUP_MEMBERS] and not broker.groups.has_members(GROUP)
    await broker.stop()
