"""Static members of a classic group: they go away and come back under their name."""

import pytest

from posthouse.broker.groups.membership import Leaving
from posthouse.broker.groups.states import ClassicState
from posthouse.model.errors import (
    FencedInstance,
    RebalanceInProgress,
    UnknownMember,
)
from posthouse.model.ids import InstanceId, MemberId
from tests.broker.groups.classic_clients import REBALANCE, SESSION, Group


class TestStaticMembers:
    def test_coming_back_disturbs_nobody(self, group: Group) -> None:
        first, second = group.member("a", instance="i-a"), group.member("b", instance="i-b")
        group.stable(first)
        second.join()
        first.join()
        first.follow()
        second.follow()
        again = group.member("b", instance="i-b")
        again.join()
        assert again.generation == 2
        assert group.machine.state is ClassicState.STABLE
        again.follow()
        assert again.synced is not None
        assert again.synced.assignment == (second.id or "").encode(), "it goes on with what it had"
        assert isinstance(second.heartbeat(), FencedInstance)
        assert first.heartbeat() is None

    @pytest.mark.parametrize("skips", [True, False])
    def test_a_leader_that_comes_back_does_not_share_out(self, group: Group, skips: bool) -> None:
        leader = group.member("a", instance="i-a")
        group.stable(leader)
        again = group.member("a", instance="i-a", skips=skips)
        again.join()
        assert not again.leads
        assert again.joined is not None
        assert again.joined.skip_assignment == skips
        assert bool(again.joined.members) == skips
        again.follow()
        assert again.synced is not None
        assert again.synced.assignment

    def test_coming_back_for_something_else_is_a_rebalance(self, group: Group) -> None:
        member = group.member("a", instance="i-a")
        group.stable(member)
        again = group.member("a", instance="i-a", protocols=(("range", b"other"),))
        again.join()
        assert again.generation == 2
        assert again.leads

    def test_away_for_too_long(self, group: Group) -> None:
        first, second = group.member("a", instance="i-a"), group.member("b")
        group.stable(first)
        second.join()
        first.join()
        first.follow()
        second.follow()
        for _ in range(4):
            group.pass_time(SESSION / 4)
            second.heartbeat()
        assert isinstance(second.error, RebalanceInProgress)
        second.join()
        assert second.joined is not None
        assert len(second.joined.members) == 1

    def test_a_gathering_does_not_throw_out_who_is_away(self, group: Group) -> None:
        first = group.member("a", instance="i-a", session=1000.0)
        second = group.member("b", instance="i-b", session=1000.0)
        group.stable(first)
        second.join()
        group.pass_time(REBALANCE)
        assert second.joined is not None
        assert second.leads
        assert len(second.joined.members) == 2
        assert first.id in group.machine.members

    def test_nobody_came(self, group: Group) -> None:
        first = group.member("a", instance="i-a", session=100.0)
        group.stable(first)
        second = group.member("b", session=1000.0)
        second.join()
        second.leave()
        states = []
        for seconds in (3 * REBALANCE, REBALANCE):
            group.pass_time(seconds)
            states.append(group.machine.state)
        assert states == [ClassicState.GATHERING, ClassicState.EMPTY]

    def test_leaving_by_name(self, group: Group) -> None:
        member = group.member("a", instance="i-a")
        group.stable(member)
        other = Leaving(member=MemberId("x"), instance=InstanceId("i-a"))
        unknown = Leaving(member=None, instance=InstanceId("i-z"))
        results = group.machine.leave([other, unknown], group.now)
        assert [type(each) for each in results] == [FencedInstance, UnknownMember]
        assert member.leave() is None
        assert group.machine.state is ClassicState.EMPTY

    def test_two_at_once(self, group: Group) -> None:
        """Whoever comes second wins; the first is told."""
        other = group.member("o")
        group.stable(other)
        first, second = group.member("a", instance="i"), group.member("a", instance="i")
        first.join()
        second.join()
        assert isinstance(first.error, FencedInstance)
        other.join()
        assert second.generation == 2
