"""Whatever members do: no task is active twice, or twice in a process; in the end each is active once."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from posthouse.broker.groups.streams import StreamsState
from posthouse.broker.groups.streams_assignor import NOTHING
from tests.broker.groups.streams_clients import SESSION, Group, SimulatedMember, settle, topics_for
from tests.examples import examples


class AnyStreamsGroup(RuleBasedStateMachine):
    members: Bundle[SimulatedMember] = Bundle("members")

    @initialize(size=st.integers(1, 5), standbys=st.integers(0, 2))
    def begin(self, size: int, standbys: int) -> None:
        self.group = Group(*topics_for(size), standbys=standbys)
        self.alive: list[SimulatedMember] = []

    @rule(target=members, process=st.sampled_from("pqr"))
    def come(self, process: str) -> SimulatedMember:
        member = self.group.member(process)
        self.alive.append(member)
        member.report()
        return member

    @rule(member=members)
    def report(self, member: SimulatedMember) -> None:
        if member in self.alive:
            member.report()

    @rule(member=members)
    def obey(self, member: SimulatedMember) -> None:
        if member in self.alive:
            member.obey()

    @rule(member=members)
    def let_go(self, member: SimulatedMember) -> None:
        if member in self.alive:
            member.let_go()

    @rule(member=consumes(members), politely=st.booleans())
    def go(self, member: SimulatedMember, politely: bool) -> None:
        self.alive.remove(member)
        if politely and member.id in {each.id for each in self.group.machine}:
            member.leave()
        member.owned = NOTHING

    @rule(size=st.integers(1, 6))
    def change_topics(self, size: int) -> None:
        self.group.change_topics(*topics_for(size))

    @rule(seconds=st.sampled_from([1.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        """Members that are thrown out for their silence stop working: their own timeouts tell them."""
        self.group.pass_time(seconds)
        inside = {each.id for each in self.group.machine}
        for member in self.alive:
            if member.id not in inside:
                member.owned = member.told = NOTHING

    @invariant()
    def nothing_is_worked_on_twice(self) -> None:
        if not hasattr(self, "group"):
            return
        active = Counter(task for member in self.alive for task in member.owned.active)
        assert not [task for task, times in active.items() if times > 1]
        for process in "pqr":
            own = [member.owned for member in self.alive if member.process == process]
            held = Counter(task for each in own for task in (*each.active, *each.standby))
            assert not [task for task, times in held.items() if times > 1]

    def teardown(self) -> None:
        if not hasattr(self, "group"):
            return
        for _ in range(10):
            self.group.pass_time(SESSION / 5)
            settle(*self.alive, rounds=1)
        settle(*self.alive, rounds=len(self.alive) + 4)
        self.nothing_is_worked_on_twice()
        if self.alive:
            size = self.group.topics.by_name["t"].partitions
            assert sum(len(member.owned.active) for member in self.alive) == 2 * size
            assert self.group.machine.state is StreamsState.STABLE
        else:
            assert self.group.machine.state is StreamsState.EMPTY


TestAnyStreamsGroup = AnyStreamsGroup.TestCase
TestAnyStreamsGroup.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
