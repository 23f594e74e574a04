"""Whatever members do, and whenever they stop doing it: those that live on end up in one generation."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from posthouse.broker.groups.states import ClassicState
from posthouse.model.errors import FencedInstance, NotCoordinator, RebalanceInProgress
from tests.broker.groups.classic_clients import Group, SimulatedMember
from tests.broker.groups.group_moves import move_classic
from tests.examples import examples

STEP = 0.5


class AnyGroup(RuleBasedStateMachine):
    members: Bundle[SimulatedMember] = Bundle("members")

    @initialize(initial=st.sampled_from([0.0, 1.0]))
    def begin(self, initial: float) -> None:
        self.group = Group(initial=initial)
        self.alive: list[SimulatedMember] = []
        self.generation = 0

    @rule(
        target=members,
        instance=st.sampled_from([None, None, "i", "j"]),
        needs_id=st.booleans(),
        skips=st.booleans(),
        session=st.sampled_from([2.0, 10.0]),
        rebalance=st.sampled_from([2.0, 20.0]),
        protocols=st.sampled_from([("x", "y"), ("y", "x"), ("y",)]),
    )
    def come(
        self,
        instance: str | None,
        needs_id: bool,
        skips: bool,
        session: float,
        rebalance: float,
        protocols: tuple[str, ...],
    ) -> SimulatedMember:
        if instance is not None:
            # The same static member twice at a time fences itself for ever: that is its own fault.
            self.alive = [each for each in self.alive if each.instance != instance]
        member = self.group.member(
            instance=instance,
            needs_id=needs_id,
            skips=skips,
            session=session,
            rebalance=rebalance,
            protocols=tuple((name, b"t") for name in protocols),
        )
        self.alive.append(member)
        member.ask()
        return member

    @rule(member=members)
    def act(self, member: SimulatedMember) -> None:
        if member in self.alive:
            live(member)

    @rule(member=members)
    def ask_again(self, member: SimulatedMember) -> None:
        if member in self.alive:
            member.ask()

    @rule(member=consumes(members), politely=st.booleans())
    def go(self, member: SimulatedMember, politely: bool) -> None:
        if member in self.alive:
            self.alive.remove(member)
            if politely:
                member.leave()

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.9, 5.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.group.pass_time(seconds)

    @rule()
    def move_to_another_broker(self) -> None:
        if not move_classic(self.group):
            self.generation = 0

    @invariant()
    def generations_only_grow(self) -> None:
        if hasattr(self, "group"):
            assert self.group.machine.generation >= self.generation
            self.generation = self.group.machine.generation

    @invariant()
    def nobody_waits_in_a_stable_group(self) -> None:
        if hasattr(self, "group") and self.group.machine.state is ClassicState.STABLE:
            assert not [member for member in self.group.machine.members if member.is_waiting]

    def teardown(self) -> None:
        if not hasattr(self, "group"):
            return
        for _ in range(int(120 / STEP)):
            self.group.pass_time(STEP)
            for member in self.alive:
                live(member)
        machine = self.group.machine
        assert {each.id for each in machine.members} == {each.id for each in self.alive}
        assert machine.state is (ClassicState.STABLE if self.alive else ClassicState.EMPTY)
        assert all(each.synced and each.generation == machine.generation for each in self.alive)
        assert [each.id for each in self.alive if each.leads] in ([], [machine.members.leader])
        assert machine.members.expected == {}


def live(member: SimulatedMember) -> None:
    """What a client does next: it waits for answers, follows, reports, and joins again when told to."""
    if member.waiting:
        return
    if member.joined is None:
        if member.error is not None and not isinstance(member.error, RebalanceInProgress | NotCoordinator):
            member.id = getattr(member.error, "member_id", None)
        if isinstance(member.error, FencedInstance):
            return
        member.ask()
    elif member.synced is None:
        member.follow()
    elif member.heartbeat() is not None:
        member.joined = member.synced = None


TestAnyGroup = AnyGroup.TestCase
TestAnyGroup.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
