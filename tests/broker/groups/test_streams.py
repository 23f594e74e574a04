"""Streams groups as plain objects: joining, epochs, giving up and taking over tasks, statuses, deadlines."""

from dataclasses import replace
from typing import Any

import pytest

from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.groups.streams import StreamsState
from posthouse.broker.groups.streams_answers import StreamsAnswer, Trouble
from posthouse.broker.groups.streams_assignor import NOTHING, Task, Tasks
from posthouse.broker.groups.streams_member import JOINING, UserEndpoint
from posthouse.broker.groups.streams_topology import InternalTopic, Obstacle, Subtopology, Topology
from posthouse.model.errors import (
    BadRequest,
    FencedMemberEpoch,
    GroupFull,
    InvalidTopology,
    PosthouseError,
    StaleMemberEpoch,
    UnknownMember,
)
from posthouse.model.ids import MemberId, PartitionId, TopicId
from tests.broker.groups.consumer_clients import topic
from tests.broker.groups.streams_clients import (
    COUNT,
    READ,
    REBALANCE,
    SESSION,
    TOPOLOGY,
    Group,
    SimulatedMember,
    settle,
    topics_for,
)


def statuses(answer: StreamsAnswer | None) -> list[Trouble | Obstacle]:
    assert answer is not None
    return [told.status for told in answer.statuses]


def state(group: Group) -> StreamsState:
    return group.machine.state


def test_one_member_gets_everything() -> None:
    group = Group(*topics_for(2))
    member = group.member()
    member.turn()
    assert member.names == ["0_0", "0_1", "1_0", "1_1"]
    assert statuses(member.answer) == []
    assert group.machine.state is StreamsState.STABLE
    assert member.epoch == group.machine.epoch == group.machine.target_epoch > 1
    member.report()
    assert member.answer is not None
    assert member.answer.tasks is None


def test_tasks_are_given_up_before_they_are_taken_over() -> None:
    group = Group(*topics_for(2))
    first, second = group.member(), group.member()
    settle(first)
    second.turn()
    assert (second.names, first.names) == ([], ["0_0", "0_1", "1_0", "1_1"])
    assert state(group) is StreamsState.RECONCILING
    first.report()
    assert first.epoch < group.machine.epoch
    second.turn()
    assert second.names == []
    first.obey()
    first.report()
    second.turn()
    assert (first.names, second.names) == (["0_0", "1_0"], ["0_1", "1_1"])
    assert state(group) is StreamsState.STABLE


def test_missing_topics_are_told_and_members_wait() -> None:
    group = Group()
    member = group.member()
    member.turn()
    assert statuses(member.answer) == [Obstacle.MISSING_SOURCE_TOPICS]
    assert group.machine.state is StreamsState.NOT_READY
    epoch = member.epoch
    assert epoch >= 1
    group.change_topics(topic("t", 2))
    member.turn()
    assert statuses(member.answer) == [Obstacle.MISSING_INTERNAL_TOPICS]
    assert member.answer is not None
    assert [(each.name, each.partitions) for each in member.answer.missing] == [("c", 2), ("r", 2)]
    assert member.names == []
    group.change_topics(*topics_for(2))
    member.turn()
    assert statuses(member.answer) == []
    assert member.names == ["0_0", "0_1", "1_0", "1_1"]
    assert member.epoch > epoch


def test_topics_that_the_application_does_not_use_change_nothing() -> None:
    group = Group(*topics_for(1))
    member = group.member()
    settle(member)
    epoch = group.machine.epoch
    group.change_topics(*topics_for(1), topic("other", 3))
    settle(member)
    assert group.machine.epoch == epoch
    group.change_topics(*topics_for(3))
    settle(member)
    assert group.machine.epoch > epoch
    assert len(member.names) == 6


def test_a_new_group_waits_for_more_members() -> None:
    group = Group(*topics_for(1), initial_seconds=3.0)
    first = group.member()
    first.turn()
    assert statuses(first.answer) == [Trouble.ASSIGNMENT_DELAYED]
    assert (first.names, first.epoch) == ([], 1)
    group.pass_time(2.9)
    second = group.member()
    second.turn()
    assert statuses(second.answer) == [Trouble.ASSIGNMENT_DELAYED]
    group.pass_time(0.2)
    assert group.machine.target_epoch == group.machine.epoch
    settle(first, second, rounds=1)
    assert statuses(first.answer) == []
    assert (first.names, second.names) == (["0_0"], ["1_0"])


def test_assignments_have_a_least_interval() -> None:
    group = Group(*topics_for(2), assignment_seconds=10.0)
    first, second = group.member(), group.member()
    settle(first, second)
    assert statuses(second.answer) == [Trouble.ASSIGNMENT_DELAYED]
    assert second.names == []
    group.pass_time(10.0)
    settle(first, second)
    assert statuses(second.answer) == []
    assert second.names == ["0_1", "1_1"]


def test_a_silent_member_is_out() -> None:
    group = Group(*topics_for(1))
    first, second = group.member(), group.member()
    settle(first, second)
    group.pass_time(SESSION - 1)
    settle(second)
    group.pass_time(2)
    settle(second)
    assert second.names == ["0_0", "1_0"]
    with pytest.raises(UnknownMember):
        first.send(first.epoch)
    group.pass_time(2 * SESSION)
    assert group.machine.state is StreamsState.EMPTY


def test_a_member_that_does_not_give_up_is_out() -> None:
    group = Group(*topics_for(2))
    stubborn, other = group.member(), group.member()
    settle(stubborn)
    other.turn()
    for _ in range(int(REBALANCE)):
        stubborn.report()
        other.turn()
        group.pass_time(1)
    with pytest.raises(UnknownMember):
        stubborn.send(stubborn.epoch)
    other.turn()
    assert other.names == ["0_0", "0_1", "1_0", "1_1"]


def test_leaving() -> None:
    group = Group(*topics_for(1))
    first, second = group.member(), group.member()
    settle(first, second)
    assert first.leave().epoch == -1
    settle(second)
    assert second.names == ["0_0", "1_0"]
    with pytest.raises(UnknownMember):
        first.leave()
    second.leave()
    assert group.machine.state is StreamsState.EMPTY


def test_epochs() -> None:
    group = Group(*topics_for(1))
    member = group.member()
    settle(member)
    with pytest.raises(FencedMemberEpoch):
        member.send(member.epoch + 1)
    old = member.epoch
    group.change_topics(*topics_for(2))
    member.report()
    assert member.epoch > old
    # The answer was lost: the member is where it was and owns no more than it was told.
    assert member.send(old).epoch == member.epoch
    with pytest.raises(FencedMemberEpoch):
        member.send(old, owned=None)
    with pytest.raises(FencedMemberEpoch):
        member.send(old, owned=Tasks(active=frozenset({Task("0", 7)})))
    answer = member.send(JOINING, owned=NOTHING)
    assert answer.tasks == group.machine.target[member.id]


def test_what_cannot_be() -> None:
    group = Group(*topics_for(1), max_size=1)
    member = group.member()
    settle(member)
    for wrong in ({"topology": None}, {"rebalance_seconds": None}, {"rack": ""}):
        with pytest.raises(BadRequest):
            member.send(JOINING, **wrong)
    with pytest.raises(BadRequest):
        member.send(JOINING)  # it still owns tasks
    with pytest.raises(BadRequest):
        member.send(member.epoch, topology=TOPOLOGY)
    with pytest.raises(BadRequest):
        member.send(-2)
    for task in (Task("9", 0), Task("0", 1), Task("0", -1)):
        with pytest.raises(BadRequest):
            member.send(member.epoch, owned=Tasks(active=frozenset({task})))
    with pytest.raises(GroupFull):
        group.member().send(JOINING)
    sized = replace(COUNT, changelogs=(InternalTopic(name="c", partitions=1),))
    with pytest.raises(InvalidTopology):
        SimulatedMember(group, "x", "x", Topology(epoch=0, subtopologies=(READ, sized))).send(JOINING)


def test_an_impossible_topology_leaves_no_trace() -> None:
    group = Group(topic("t", 1))
    bad = SimulatedMember(group, "x", "x", Topology(epoch=0, subtopologies=(COUNT,)))
    with pytest.raises(InvalidTopology):
        bad.send(JOINING)
    assert group.machine.is_empty
    assert group.machine.topology is None


def test_the_topology_of_members_cannot_change_under_them() -> None:
    group = Group(*topics_for(1), topic("u", 1))
    member = group.member()
    settle(member)
    other = Topology(epoch=0, subtopologies=(Subtopology(id="0", sources=("u",)),))
    newcomer = group.member(topology=other)
    with pytest.raises(BadRequest, match="another topology"):
        newcomer.send(JOINING)
    member.leave()
    newcomer.turn()
    assert newcomer.names == ["0_0"]
    assert group.machine.topology == other


def test_a_stale_topology_is_told() -> None:
    group = Group(*topics_for(1))
    new = group.member(topology=replace(TOPOLOGY, epoch=2))
    settle(new)
    old = group.member(topology=TOPOLOGY)
    settle(new, old)
    assert statuses(old.answer) == [Trouble.STALE_TOPOLOGY]
    assert statuses(new.answer) == []


def test_a_shutdown_reaches_all_until_the_group_is_empty() -> None:
    group = Group(*topics_for(1))
    first, second = group.member(), group.member()
    settle(first, second)
    first.send(first.epoch, shuts_down=True)
    second.turn()
    assert statuses(second.answer) == [Trouble.SHUTDOWN_APPLICATION]
    first.leave()
    second.leave()
    third = group.member()
    third.turn()
    assert statuses(third.answer) == []


def test_standbys_follow_the_setting() -> None:
    group = Group(*topics_for(2))
    first, second = group.member(), group.member()
    settle(first, second)
    group.machine.rules = replace(group.machine.rules, standbys=1)
    settle(first, second)
    assert first.names == ["0_0", "1_0", "s1_1"]
    assert second.names == ["0_1", "1_1", "s1_0"]
    first.leave()
    settle(second)
    assert second.names == ["0_0", "0_1", "1_0", "1_1"]


def test_a_process_never_has_a_task_twice() -> None:
    group = Group(*topics_for(1), standbys=1)
    first = group.member("p")
    settle(first)
    second = group.member("q")
    settle(first, second)
    third = group.member("p")
    for _ in range(6):
        for member in (first, second, third):
            member.turn()
            own = [*first.owned.active, *first.owned.standby, *third.owned.active, *third.owned.standby]
            assert len(own) == len(set(own))


@pytest.mark.parametrize(
    "said",
    [{"tags": {"zone": "a"}}, {"rack": "r"}, {"endpoint": UserEndpoint("h", 9)}, {"rebalance_seconds": 5.0}],
)
def test_what_the_assignment_does_not_depend_on_leaves_the_epoch(said: dict[str, Any]) -> None:
    group = Group(*topics_for(2))
    member = group.member(tags={"zone": "b"}, endpoint=UserEndpoint("a", 1))
    member.turn()
    target = group.machine.target
    answer = member.send(member.epoch, **said)
    assert answer.epoch == group.machine.epoch == member.epoch
    assert group.machine.target is target
    member.send(member.epoch, process="another")
    assert group.machine.epoch == member.epoch + 1


def test_another_endpoint_is_told() -> None:
    group = Group(*topics_for(2))
    first, second = group.member(endpoint=UserEndpoint("a", 1)), group.member()
    settle(first, second)
    assert second.answer is not None
    known = second.answer.endpoint_epoch
    first.send(first.epoch, endpoint=UserEndpoint("b", 2))
    answer = second.send(second.epoch, endpoint_epoch=known)
    assert [each.endpoint for each in answer.endpoints or ()] == [UserEndpoint("b", 2)]


def test_many_tasks_are_not_assigned_again_at_once() -> None:
    group = Group(topic("t", 100))
    wide = Topology(
        epoch=0, subtopologies=tuple(Subtopology(id=str(number), sources=("t",)) for number in range(60))
    )
    first, second = group.member(topology=wide), group.member(topology=wide)
    first.turn()
    assert len(first.owned.active) == 6000
    second.turn()
    assert statuses(second.answer) == [Trouble.ASSIGNMENT_DELAYED]
    for number in range(3):
        first.epoch = first.send(first.epoch, process=f"p{number}").epoch
    assert group.machine.target_epoch == first.epoch < group.machine.epoch
    group.pass_time(1.1)
    second.turn()
    assert statuses(second.answer) == [Trouble.ASSIGNMENT_DELAYED]
    group.pass_time(0.1)
    settle(first, second, rounds=3)
    assert len(first.owned.active) == len(second.owned.active) == 3000


def test_endpoints_are_told_when_they_change() -> None:
    group = Group(*topics_for(2))
    first = group.member(endpoint=UserEndpoint("a", 1))
    first.turn()
    assert first.answer is not None
    [known] = first.answer.endpoints or ()
    assert (known.endpoint, known.active) == (UserEndpoint("a", 1), {"t": [0, 1], "r": [0, 1]})
    epoch = first.answer.endpoint_epoch
    assert first.send(first.epoch, endpoint_epoch=epoch).endpoints is None
    second = group.member(endpoint=UserEndpoint("b", 2))
    settle(first, second)
    answer = first.send(first.epoch, endpoint_epoch=epoch)
    assert {each.endpoint.host: each.active["t"] for each in answer.endpoints or ()} == {"a": [0], "b": [1]}


def commits(group: Group, member: str, epoch: int, partition: int, *, name: str = "t") -> bool:
    identity = MemberIdentity(member=MemberId(member), generation=epoch)
    try:
        group.machine.check_commit(identity, group.now)
        group.machine.check_commit_of(identity, name, PartitionId(TopicId(bytes(16)), partition))
    except PosthouseError:
        return False
    return True


def test_who_may_commit_offsets() -> None:
    group = Group(*topics_for(2))
    assert commits(group, "", -1, 0)
    first, second = group.member(), group.member()
    settle(first)
    old = first.epoch
    assert commits(group, first.id, old, 1)
    assert not commits(group, first.id, old + 1, 1)
    assert not commits(group, "stranger", old, 0)
    assert not commits(group, "", -1, 0)
    settle(first, second)
    # A task that stayed can be committed with the epoch from before; one that went cannot.
    assert commits(group, first.id, old, 0)
    assert not commits(group, first.id, old, 1)
    assert not commits(group, first.id, old, 0, name="unknown")
    assert commits(group, second.id, second.epoch, 1)
    assert not commits(group, second.id, second.epoch - 1, 1)
    stale = MemberIdentity(member=first.id, generation=old)
    with pytest.raises(StaleMemberEpoch):
        group.machine.check_epoch(stale)
    group.machine.check_commit(MemberIdentity(member=MemberId("")), group.now, transactional=True)
