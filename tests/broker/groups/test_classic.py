"""The classic group: who gets which answer, when."""

import pytest

from posthouse.broker.groups.membership import Leaving, MemberIdentity, SyncRequest
from posthouse.broker.groups.states import TRANSITIONS, ClassicState, Event, after
from posthouse.model.errors import (
    GroupFull,
    GroupsClosed,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from posthouse.model.ids import MemberId
from tests.broker.groups.classic_clients import REBALANCE, SESSION, Group


def test_a_deleted_group_has_no_way_back() -> None:
    assert not [event for state, event in TRANSITIONS if state is ClassicState.DEAD]
    with pytest.raises(KeyError):
        after(ClassicState.STABLE, Event.DELETED)


def test_one_member(group: Group) -> None:
    member = group.member()
    group.stable(member)
    assert member.joined is not None
    assert member.leads
    assert [each.id for each in member.joined.members] == [member.id]
    assert member.synced is not None
    assert member.synced.assignment == (member.id or "").encode()
    assert (group.machine.state, group.machine.generation) == (ClassicState.STABLE, 1)


def test_a_new_member_is_first_given_an_id(group: Group) -> None:
    member = group.member()
    member.ask()
    assert isinstance(member.error, MemberIdRequired)
    assert group.machine.state is ClassicState.EMPTY
    old = group.member(needs_id=False)
    old.ask()
    assert old.joined is None, "somebody was promised a place, and is waited for"
    group.pass_time(SESSION)
    assert old.joined is not None


def test_the_second_member_makes_the_first_join_again(group: Group) -> None:
    first, second = group.member("a"), group.member("b")
    group.stable(first)
    second.join()
    assert second.waiting
    assert isinstance(first.heartbeat(), RebalanceInProgress)
    first.join()
    assert (first.generation, second.generation) == (2, 2)
    second.follow()
    assert second.waiting, "the leader has not said who reads what"
    first.follow()
    assert second.synced is not None
    assert second.synced.assignment == (second.id or "").encode()


def test_the_first_members_wait_for_more() -> None:
    group = Group(initial=3.0)
    first, second = group.member("a"), group.member("b")
    first.join()
    group.pass_time(2.9)
    second.join()
    group.pass_time(0.2)
    assert first.waiting, "somebody came, so the wait is prolonged"
    group.pass_time(3.0)
    assert (first.generation, second.generation) == (1, 1)
    third = group.member("c")
    third.join()
    first.join()
    second.join()
    assert third.generation == 2, "later on, members wait only for each other"


def test_the_first_wait_ends_with_the_rebalance_timeout() -> None:
    group = Group(initial=3.0)
    first = group.member("a", rebalance=7.0)
    first.join()
    for index in range(10):
        group.pass_time(1.0)
        if first.joined:
            break
        group.member(f"x{index}", rebalance=7.0).join()
    assert first.joined is not None
    assert group.now <= 8.0


def test_who_does_not_come_back_is_out(group: Group) -> None:
    first, second = group.member("a"), group.member("b", session=1000.0)
    group.stable(first)
    second.join()
    first.join()
    first.follow()
    second.follow()
    third = group.member("c")
    third.join()
    first.join()
    group.pass_time(REBALANCE - 1)
    assert third.waiting
    group.pass_time(1)
    assert third.generation == first.generation == 3
    assert isinstance(second.heartbeat(), UnknownMember)


def test_silence_ends_a_session(group: Group) -> None:
    first, second = group.member("a"), group.member("b")
    group.stable(first)
    second.join()
    first.join()
    first.follow()
    second.follow()
    for _ in range(4):
        group.pass_time(SESSION / 4)
        first.heartbeat()
    assert isinstance(first.error, RebalanceInProgress)
    first.join()
    assert first.joined is not None
    assert [each.id for each in first.joined.members] == [first.id]


def test_whoever_waits_does_not_expire(group: Group) -> None:
    first, second = group.member("a", session=1000.0), group.member("b", session=1.0)
    group.stable(first)
    second.join()
    group.pass_time(REBALANCE - 1)
    assert second.waiting
    first.join()
    second.follow()
    group.pass_time(REBALANCE - 1)
    assert second.waiting
    first.follow()
    assert second.synced is not None


def test_who_joins_and_does_not_fetch_its_part_is_out(group: Group) -> None:
    first, second = group.member("a", session=1000.0), group.member("b", session=1000.0)
    group.stable(first)
    second.join()
    first.join()
    first.follow()
    assert group.machine.state is ClassicState.STABLE
    group.pass_time(REBALANCE)
    assert isinstance(first.heartbeat(), RebalanceInProgress)
    assert second.id not in group.machine.members


def test_a_leader_that_dies_before_sharing_out(group: Group) -> None:
    first, second = group.member("a", session=5.0), group.member("b", session=1000.0)
    group.stable(first)
    second.join()
    first.join()
    second.follow()
    group.pass_time(5.0)
    assert isinstance(second.error, RebalanceInProgress)
    second.join()
    assert second.leads
    assert second.generation == 3


def test_leaving(group: Group) -> None:
    first, second = group.member("a"), group.member("b")
    group.stable(first)
    second.join()
    first.join()
    first.follow()
    second.follow()
    assert first.leave() is None
    assert isinstance(first.leave(), UnknownMember)
    assert isinstance(second.heartbeat(), RebalanceInProgress)
    second.join()
    assert second.leads
    assert second.leave() is None
    assert (group.machine.state, group.machine.generation) == (ClassicState.EMPTY, 4)


def test_leaving_before_coming_in(group: Group) -> None:
    first, second = group.member("a"), group.member("b")
    group.stable(first)
    second.ask()
    assert isinstance(second.error, MemberIdRequired)
    [result] = group.machine.leave([Leaving(member=second.error.member_id)], group.now)
    assert result is None
    assert group.machine.state is ClassicState.STABLE, "nobody else has to notice"


def test_who_leaves_while_waiting_is_told(group: Group) -> None:
    first, second = group.member("a"), group.member("b")
    group.stable(first)
    second.join()
    second.leave()
    assert isinstance(second.error, UnknownMember)


def test_the_same_again_changes_nothing(group: Group) -> None:
    leader, follower = group.member("a"), group.member("b")
    group.stable(leader)
    follower.join()
    leader.join()
    follower.ask()
    assert (follower.generation, group.machine.state) == (2, ClassicState.AWAITING_ASSIGNMENT)
    leader.follow()
    follower.follow()
    follower.ask()
    assert (follower.generation, group.machine.state) == (2, ClassicState.STABLE)
    follower.protocols = (("range", b"other"),)
    follower.ask()
    assert group.machine.state is ClassicState.GATHERING


def test_a_leader_that_asks_again_wants_to_share_out_anew(group: Group) -> None:
    leader = group.member("a")
    group.stable(leader)
    leader.ask()
    assert leader.generation == 2


def test_votes(group: Group) -> None:
    a = group.member("a", protocols=(("x", b""), ("y", b"")))
    b = group.member("b", protocols=(("z", b""), ("y", b""), ("x", b"")))
    c = group.member("c", protocols=(("y", b""), ("x", b"")))
    group.stable(a)
    b.join()
    c.join()
    a.join()
    assert a.joined is not None
    assert a.joined.protocol == "y"
    stranger = group.member("d", protocols=(("z", b""),))
    stranger.join()
    assert isinstance(stranger.error, InconsistentProtocol)


@pytest.mark.parametrize("options", [{"protocol_type": "connect"}, {"protocol_type": ""}, {"protocols": ()}])
def test_another_kind_of_group(group: Group, options: dict[str, object]) -> None:
    group.stable(group.member("a"))
    stranger = group.member("b", **options)
    stranger.join()
    assert isinstance(stranger.error, InconsistentProtocol)


def test_generations_are_fenced(group: Group) -> None:
    member = group.member()
    group.stable(member)
    stale = MemberIdentity(member=member.id or MemberId(""), generation=0)
    with pytest.raises(IllegalGeneration):
        group.machine.heartbeat(stale, group.now)
    with pytest.raises(IllegalGeneration):
        group.machine.sync(SyncRequest(identity=stale), group.now, lambda _: None)
    with pytest.raises(IllegalGeneration):
        group.machine.check_commit(stale, group.now)
    with pytest.raises(UnknownMember):
        group.machine.heartbeat(MemberIdentity(member=MemberId("x"), generation=1), group.now)


def test_a_sync_for_another_protocol(group: Group) -> None:
    member = group.member()
    group.stable(member)
    for changes in ({"protocol": "sticky"}, {"protocol_type": "connect"}):
        with pytest.raises(InconsistentProtocol):
            group.machine.sync(
                SyncRequest(identity=member.identity(), **changes),  # type: ignore[arg-type]
                group.now,
                lambda _: None,
            )


def test_a_full_group() -> None:
    group = Group(max_size=2)
    first, second, third = (group.member(name) for name in "abc")
    group.stable(first)
    second.join()
    third.join()
    assert isinstance(third.error, GroupFull)
    first.join()
    assert first.generation == 2, "who is in, may come again"


def test_who_may_commit(group: Group) -> None:
    nobody = MemberIdentity(member=MemberId(""))
    group.machine.check_commit(nobody, group.now)
    member = group.member()
    group.stable(member)
    group.machine.check_commit(member.identity(), group.now)
    with pytest.raises(UnknownMember):
        group.machine.check_commit(nobody, group.now)
    group.machine.check_commit(nobody, group.now, transactional=True)
    second = group.member("b")
    second.join()
    group.machine.check_commit(member.identity(), group.now)
    member.join()
    with pytest.raises(RebalanceInProgress):
        group.machine.check_commit(member.identity(), group.now)


def test_a_commit_is_a_sign_of_life(group: Group) -> None:
    member = group.member()
    group.stable(member)
    for _ in range(5):
        group.pass_time(SESSION / 2)
        group.machine.check_commit(member.identity(), group.now)
    assert group.machine.state is ClassicState.STABLE


def test_closing_leaves_nobody_waiting(group: Group) -> None:
    first, second = group.member("a"), group.member("b")
    group.stable(first)
    second.join()
    group.machine.close(GroupsClosed("the broker is stopping"))
    assert isinstance(second.error, GroupsClosed)
