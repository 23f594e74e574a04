"""Whatever members do: no partition is ever read by two, and in the end each is read by one."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from posthouse.broker.groups.consumer import ConsumerState
from tests.broker.groups.consumer_clients import SESSION, Group, SimulatedMember, settle, topic
from tests.broker.groups.group_moves import move_consumer
from tests.examples import examples


class AnyGroup(RuleBasedStateMachine):
    members: Bundle[SimulatedMember] = Bundle("members")

    @initialize(size=st.integers(1, 7))
    def begin(self, size: int) -> None:
        self.group = Group(topic("t", size), topic("u", 2))
        self.alive: list[SimulatedMember] = []

    @rule(
        target=members,
        topics=st.sampled_from([("t",), ("t",), ("t", "u"), ("u",)]),
        assignor=st.sampled_from([None, None, "range", "uniform"]),
    )
    def come(self, topics: tuple[str, ...], assignor: str | None) -> SimulatedMember:
        member = self.group.member(*topics, assignor=assignor)
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
        member.owned = frozenset()

    @rule(sizes=st.tuples(st.integers(1, 9), st.integers(0, 3)))
    def change_topics(self, sizes: tuple[int, int]) -> None:
        names = ("t", "u")
        self.group.change_topics(
            *(topic(name, size) for name, size in zip(names, sizes, strict=True) if size)
        )

    @rule(seconds=st.sampled_from([1.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        """Members that are thrown out for their silence stop reading: their own timeouts tell them."""
        self.group.pass_time(seconds)
        inside = {each.id for each in self.group.machine}
        for member in self.alive:
            if member.id not in inside:
                member.owned = member.told = frozenset()

    @rule()
    def move_to_another_broker(self) -> None:
        move_consumer(self.group)

    @invariant()
    def nothing_is_read_twice(self) -> None:
        if hasattr(self, "group"):
            read = Counter(partition for member in self.alive for partition in member.owned)
            assert not [partition for partition, times in read.items() if times > 1]

    def teardown(self) -> None:
        if not hasattr(self, "group"):
            return
        for _ in range(10):
            self.group.pass_time(SESSION / 5)
            settle(*self.alive, rounds=1)
        settle(*self.alive, rounds=len(self.alive) + 2)
        self.nothing_is_read_twice()
        wanted = {name for member in self.alive for name in member.topics}
        everything = {
            each
            for name, topic in self.group.topics.by_name.items()
            if name in wanted
            for each in topic.partition_ids()
        }
        assert {partition for member in self.alive for partition in member.owned} == everything
        assert self.group.machine.state is (ConsumerState.STABLE if self.alive else ConsumerState.EMPTY)
        assert all(member.epoch == self.group.machine.epoch for member in self.alive)


TestAnyGroup = AnyGroup.TestCase
TestAnyGroup.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
