"""Groups whose partitions the broker assigns: epochs, hand-overs, static members, fencing."""

from typing import Any

import pytest

from posthouse.broker.groups.consumer import ConsumerState
from posthouse.broker.groups.consumer_member import JOINING, ConsumerMemberState
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.groups.patterns import TopicPattern
from posthouse.model.errors import (
    BadRequest,
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from posthouse.model.ids import MemberId, PartitionId
from tests.broker.groups.consumer_clients import REBALANCE, SESSION, Group, SimulatedMember, settle, topic


@pytest.fixture
def group() -> Group:
    return Group(topic("t", 4))


def test_the_first_member_gets_everything_at_once(group: Group) -> None:
    member = group.member()
    answer = member.send(JOINING)
    assert (answer.epoch, len(answer.assignment or ())) == (1, 4)
    assert group.machine.state is ConsumerState.STABLE


def test_the_second_gets_what_the_first_has_let_go(group: Group) -> None:
    first, second = group.member(), group.member()
    first.turn()
    second.turn()
    assert (second.epoch, second.numbers) == (2, [])
    assert group.machine.state == ConsumerState.RECONCILING
    first.report()
    assert (first.epoch, len(first.told)) == (1, 2), "told to let go, and not yet in the new epoch"
    second.turn()
    assert second.numbers == []
    first.obey()
    first.report()
    assert first.epoch == 2
    second.turn()
    assert len(second.numbers) == 2
    assert not first.owned & second.owned
    assert {member.progress for member in group.machine} == {ConsumerMemberState.STABLE}


def test_nothing_new_is_not_said_twice(group: Group) -> None:
    member = group.member()
    member.turn()
    assert member.send(1).assignment is None
    complete = member.send(1, rebalance_seconds=REBALANCE, topics=member.topics)
    assert complete.assignment == member.owned, "who says everything wants to hear everything"
    assert complete.epoch == 1


def test_leaving_frees_partitions(group: Group) -> None:
    first, second = group.member(), group.member()
    settle(first, second)
    assert first.leave().epoch == -1
    settle(second)
    assert second.numbers == [0, 1, 2, 3]
    assert second.leave().epoch == -1
    assert (group.machine.is_empty, group.machine.state) == (True, ConsumerState.EMPTY)


def test_silence_ends_a_session(group: Group) -> None:
    first, second = group.member(), group.member()
    settle(first, second)
    for _ in range(4):
        group.pass_time(SESSION / 4)
        second.turn()
    settle(second)
    assert second.numbers == [0, 1, 2, 3]
    with pytest.raises(UnknownMember):
        first.send(first.epoch)


def test_who_does_not_let_go_is_out(group: Group) -> None:
    first, second = group.member(), group.member()
    first.turn()
    second.turn()
    for _ in range(4):
        first.report()
        second.turn()
        group.pass_time(REBALANCE / 4)
    with pytest.raises(UnknownMember):
        first.send(first.epoch)
    settle(second)
    assert second.numbers == [0, 1, 2, 3]


def test_an_answer_that_was_lost(group: Group) -> None:
    first = group.member()
    first.turn()
    second = group.member()
    second.send(JOINING)
    second.turn()
    assert second.epoch == 2, "joining again is no reason to count up"
    first.turn()
    first.send(first.epoch)
    first.report()
    assert first.epoch == 2
    with pytest.raises(FencedMemberEpoch):
        first.send(1, owned=None)
    assert first.send(1, owned=first.owned).epoch == 2
    with pytest.raises(FencedMemberEpoch):
        first.send(7)


def test_starting_anew_gives_everything_back(group: Group) -> None:
    member = group.member()
    settle(member)
    group.change_topics(topic("t", 5))
    settle(member)
    member.owned = frozenset()
    member.epoch = JOINING
    member.turn()
    assert member.numbers == [0, 1, 2, 3, 4]


def test_topics_that_come_grow_and_go(group: Group) -> None:
    member = group.member("t", "later")
    settle(member)
    group.change_topics(topic("t", 6), topic("later", 1))
    settle(member)
    assert len(member.owned) == 7
    group.change_topics(topic("later", 1))
    settle(member)
    assert len(member.owned) == 1
    epoch = member.epoch
    group.change_topics(topic("later", 1), topic("other", 1))
    settle(member)
    assert member.epoch == epoch, "what nobody reads is no reason to count up"


def test_a_changed_subscription(group: Group) -> None:
    group.change_topics(topic("t", 2), topic("u", 3))
    member = group.member("t")
    settle(member)
    answer = member.send(member.epoch, topics=frozenset({"u"}))
    assert answer.assignment == frozenset(), "first it lets go of what it has"
    member.told = answer.assignment
    member.obey()
    settle(member)
    assert member.numbers == [0, 1, 2]


def test_patterns(group: Group) -> None:
    group.change_topics(topic("a1", 1), topic("a2", 1), topic("b", 1))
    member = group.member("b", pattern="a.*")
    settle(member)
    assert len(member.owned) == 3
    group.change_topics(topic("a1", 1), topic("a2", 1), topic("a3", 1), topic("b", 1))
    settle(member)
    assert len(member.owned) == 4


def test_the_assignor_that_most_ask_for(group: Group) -> None:
    members = [
        group.member(assignor="range"),
        group.member(assignor="range"),
        group.member(assignor="uniform"),
    ]
    settle(*members)
    assert group.machine.assignor == "range"
    assert [member.numbers for member in members] == [[0, 1], [2], [3]]
    with pytest.raises(UnsupportedAssignor):
        group.member(assignor="mine").send(JOINING)


def test_a_full_group() -> None:
    group = Group(topic("t", 4), max_size=1)
    group.member().turn()
    with pytest.raises(GroupFull):
        group.member().send(JOINING)


@pytest.mark.parametrize(
    ("epoch", "changes"),
    [
        (JOINING, {"topics": None}),
        (JOINING, {"owned": frozenset({PartitionId(topic("t", 1).id, 0)})}),
        (-2, {}),
        (-3, {}),
    ],
)
def test_requests_that_make_no_sense(group: Group, epoch: int, changes: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        group.member().send(epoch, **changes)


def test_a_member_may_join_for_nothing(group: Group) -> None:
    nothings: tuple[dict[str, Any], ...] = (
        {"topics": frozenset()},
        {"topics": None, "pattern": TopicPattern("")},
    )
    for nothing in nothings:
        answer = group.member().send(JOINING, **nothing)
        assert answer.assignment == frozenset()


def test_a_join_that_says_too_little_counts_as_one_that_owns_nothing(group: Group) -> None:
    static = group.member(instance="i")
    static.turn()
    static.leave(for_a_while=True)
    group.change_topics(topic("t", 2))
    back = group.member(instance="i")
    answer = back.send(JOINING, rebalance_seconds=None, owned=None)
    assert answer.assignment == group.machine.target[back.id]
    new = group.member()
    assert new.send(JOINING, rebalance_seconds=None, owned=None).epoch == group.machine.epoch
    member = group.machine.get(new.id)
    assert member is not None
    assert member.rebalance_seconds == 300


def test_who_may_commit(group: Group) -> None:
    nobody = MemberIdentity(member=MemberId(""))
    group.machine.check_commit(nobody, 0.0)
    member = group.member()
    settle(member)
    group.machine.check_commit(MemberIdentity(member=member.id, generation=member.epoch), 0.0)
    group.machine.check_commit(nobody, 0.0, transactional=True)
    with pytest.raises(UnknownMember):
        group.machine.check_commit(nobody, 0.0)
    with pytest.raises(StaleMemberEpoch):
        group.machine.check_commit(MemberIdentity(member=member.id, generation=member.epoch + 1), 0.0)


def commits(group: Group, member: SimulatedMember, epoch: int, partition: PartitionId) -> bool:
    identity = MemberIdentity(member=member.id, generation=epoch)
    try:
        group.machine.check_commit(identity, group.now)
        group.machine.check_commit_of(identity, "t", partition)
    except StaleMemberEpoch:
        return False
    return True


def test_a_partition_that_stays_can_be_committed_with_an_older_epoch(group: Group) -> None:
    first, second = group.member(), group.member()
    settle(first)
    old, before = first.epoch, first.owned
    second.report()
    first.report()
    lost = before - first.told
    assert lost
    # It still has what it is to give up, and commits that with the epoch that it knows.
    assert all(commits(group, first, old, each) for each in before)
    settle(first, second)
    assert first.epoch > old
    assert all(commits(group, first, old, each) for each in first.owned)
    assert not any(commits(group, first, old, each) for each in lost)
    assert not any(commits(group, second, old, each) for each in second.owned)
    assert all(commits(group, second, second.epoch, each) for each in second.owned)


class TestStaticMembers:
    def test_coming_back_disturbs_nobody(self, group: Group) -> None:
        first, second = group.member(instance="a"), group.member(instance="b")
        settle(first, second)
        kept, epoch = first.owned, group.machine.epoch
        assert first.leave(for_a_while=True).epoch == -2
        second.turn()
        assert group.machine.state is ConsumerState.STABLE
        again = group.member(instance="a")
        again.turn()
        assert (again.owned, again.epoch, group.machine.epoch) == (kept, epoch, epoch)
        with pytest.raises(FencedInstance):
            first.send(first.epoch)

    def test_away_for_too_long(self, group: Group) -> None:
        first, second = group.member(instance="a"), group.member(instance="b")
        settle(first, second)
        first.leave(for_a_while=True)
        for _ in range(4):
            group.pass_time(SESSION / 4)
            second.turn()
        settle(second)
        assert len(second.owned) == 4

    def test_a_name_in_use(self, group: Group) -> None:
        settle(group.member(instance="a"))
        with pytest.raises(UnreleasedInstance):
            group.member(instance="a").send(JOINING)

    def test_leaving_for_good(self, group: Group) -> None:
        member = group.member(instance="a")
        settle(member)
        member.leave()
        assert group.machine.is_empty
        settle(group.member(instance="a"))

    def test_unknown(self, group: Group) -> None:
        with pytest.raises(UnknownMember):
            group.member(instance="a").send(3)
        with pytest.raises(UnknownMember):
            group.member(instance="a").leave()
