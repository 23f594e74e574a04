"""Groups that go on at another broker as they were."""

from typing import Any

import pytest

from posthouse.broker.groups.consumer import ConsumerState
from posthouse.broker.groups.membership import Leaving, MemberIdentity
from posthouse.broker.groups.states import ClassicState
from posthouse.model.errors import IllegalGeneration, NotCoordinator, RebalanceInProgress, StaleMemberEpoch
from posthouse.model.ids import MemberId
from tests.broker.groups import classic_clients, consumer_clients
from tests.broker.groups.classic_clients import REBALANCE
from tests.broker.groups.consumer_clients import settle, topic
from tests.broker.groups.group_moves import move_classic, move_consumer

SESSION = classic_clients.SESSION
INITIAL = 1.0


def stable(*options: dict[str, Any]) -> tuple[classic_clients.Group, list[classic_clients.SimulatedMember]]:
    """A group in which all members have their assignments."""
    group = classic_clients.Group(initial=INITIAL)
    members = [group.member(f"m{number}", **each) for number, each in enumerate(options)]
    for member in members:
        member.join()
    group.pass_time(2 * INITIAL)
    follow(members)
    assert group.machine.state is ClassicState.STABLE
    return group, members


def follow(members: list[classic_clients.SimulatedMember]) -> None:
    """The leader may be any of them."""
    for member in members * 2:
        member.follow()


def join_again(*members: classic_clients.SimulatedMember) -> None:
    for member in members:
        member.join()
    follow(list(members))


def test_a_stable_classic_group_goes_on() -> None:
    group, [one, two, static] = stable({}, {}, {"instance": "i"})
    group.pass_time(SESSION - 1)
    before = group.machine
    assert move_classic(group)
    assert group.machine is not before and group.machine.state is ClassicState.STABLE
    group.pass_time(SESSION - 1)
    for member in (one, two, static):
        assert member.heartbeat() is None
        group.machine.check_commit(member.identity(), group.now)
    assert [(each.id, each.assignment, each.client) for each in group.machine.members] == [
        (each.id, each.assignment, each.client) for each in before.members
    ]
    assert group.machine.members.leader == before.members.leader
    with pytest.raises(IllegalGeneration):
        old = MemberIdentity(member=one.id or MemberId(""), generation=one.generation - 1)
        group.machine.heartbeat(old, group.now)


def test_a_member_that_does_not_come_to_the_next_broker_expires() -> None:
    group, [one, _] = stable({}, {})
    move_classic(group)
    group.pass_time(SESSION - 1)
    assert one.heartbeat() is None
    group.pass_time(1.0)
    assert [each.id for each in group.machine.members] == [one.id]
    assert isinstance(one.heartbeat(), RebalanceInProgress)


def test_a_static_member_comes_back_at_the_next_broker_without_a_rebalance() -> None:
    group, [one, static] = stable({}, {"instance": "i"})
    move_classic(group)
    again = group.member("m1", instance="i")
    again.join()
    again.follow()
    assert again.generation == one.generation and again.synced == static.synced
    assert one.heartbeat() is None


def test_a_rebalance_begins_anew_at_the_next_broker() -> None:
    group, [one, two] = stable({}, {})
    three = group.member("three")
    three.join()
    assert three.waiting
    move_classic(group)
    assert isinstance(three.error, NotCoordinator)
    assert group.machine.state is ClassicState.GATHERING
    group.machine.check_commit(one.identity(), group.now)  # what it has read before it joins
    assert isinstance(one.heartbeat(), RebalanceInProgress)
    before = one.generation
    ids = {one.id, two.id, three.id}
    join_again(one, two, three)
    assert {each.id for each in group.machine.members} == ids
    assert all(each.synced and each.generation == before + 1 for each in (one, two, three))


def test_members_that_do_not_know_their_ids_are_not_waited_for() -> None:
    group, [one] = stable({})
    old_client = group.member("old", needs_id=False)
    old_client.join()
    move_classic(group)
    assert [each.id for each in group.machine.members] == [one.id]
    join_again(old_client, one)
    assert len(group.machine.members) == 2 and old_client.synced and one.synced


def test_a_rebalance_that_waits_for_the_assignment_begins_anew() -> None:
    group, [one, two] = stable({}, {})
    group.machine.rebalance(group.now)
    one.join()
    two.join()
    follower = two if one.leads else one
    assert group.machine.state is ClassicState.AWAITING_ASSIGNMENT
    follower.follow()
    assert follower.waiting
    move_classic(group)
    assert isinstance(follower.error, NotCoordinator)
    join_again(one, two)
    assert one.synced and two.synced
    group.pass_time(REBALANCE)
    assert not len(group.machine.members), "all have expired"


def test_groups_without_members_are_not_handed_over() -> None:
    assert not move_classic(classic_clients.Group())
    group, [one] = stable({})
    group.machine.leave([Leaving(member=one.id)], group.now)
    assert not move_classic(group)


def test_a_consumer_group_goes_on() -> None:
    group = consumer_clients.Group(topic("t", 6))
    one, two = group.member("t"), group.member(pattern="t.*", assignor="range")
    settle(one, two)
    before = group.machine
    owned = (one.owned, two.owned)
    group.pass_time(consumer_clients.SESSION - 1)
    move_consumer(group)
    assert group.machine is not before and group.machine.state is ConsumerState.STABLE
    assert group.machine.epoch == before.epoch and group.machine.target == before.target
    for member in (one, two):
        group.machine.check_commit(MemberIdentity(member=member.id, generation=member.epoch), group.now)
    settle(one, two)
    assert (one.owned, two.owned) == owned and group.machine.epoch == before.epoch
    assert group.machine.assignor == before.assignor
    group.pass_time(consumer_clients.SESSION - 1)
    one.turn()
    group.pass_time(1.0)
    assert [each.id for each in group.machine] == [one.id], "the other one did not come"


def test_partitions_that_a_member_is_to_give_up_stay_with_it() -> None:
    group = consumer_clients.Group(topic("t", 4))
    one = group.member("t")
    settle(one)
    two = group.member("t")
    two.turn()
    one.report()
    assert len(one.told) == 2 and len(one.owned) == 4
    move_consumer(group)
    two.turn()
    assert not two.owned
    partition = next(iter(one.owned - one.told))
    identity = MemberIdentity(member=one.id, generation=one.epoch)
    group.machine.check_commit_of(identity, "t", partition)
    with pytest.raises(StaleMemberEpoch):
        group.machine.check_epoch(MemberIdentity(member=one.id, generation=one.epoch + 9))
    move_consumer(group)
    group.pass_time(consumer_clients.REBALANCE)
    assert [each.id for each in group.machine] == [two.id], "it did not give them up in time"


def test_topics_that_have_changed_meanwhile() -> None:
    group = consumer_clients.Group(topic("t", 2), topic("other", 1))
    one = group.member("t")
    settle(one)
    group.change_topics(topic("t", 2), topic("other", 7))
    move_consumer(group)
    epoch = one.epoch
    settle(one)
    assert one.epoch == epoch and len(one.owned) == 2
    group.change_topics(topic("t", 3))
    move_consumer(group)
    settle(one)
    assert one.epoch > epoch and len(one.owned) == 3


def test_a_smaller_limit_refuses_no_member_that_is_there() -> None:
    group = consumer_clients.Group(topic("t", 2))
    one, two = group.member("t"), group.member("t")
    settle(one, two)
    group.machine.rules = consumer_clients.Group(max_size=1).machine.rules
    move_consumer(group)
    assert {each.id for each in group.machine} == {one.id, two.id}
    assert group.machine.rules.max_size == 1
