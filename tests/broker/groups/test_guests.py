"""Classic members in a group whose partitions the broker assigns, and the way there and back."""

import itertools
from collections.abc import Iterable

import pytest

from posthouse.broker.groups.classic import ClassicGroup, ClassicRules
from posthouse.broker.groups.consumer import ConsumerState
from posthouse.broker.groups.consumer_member import ConsumerMemberState
from posthouse.broker.groups.guests import Guests
from posthouse.broker.groups.membership import (
    Joined,
    JoinRequest,
    Leaving,
    MemberClient,
    MemberIdentity,
    OfferedProtocol,
    SyncRequest,
)
from posthouse.broker.groups.metadata import MemberSubscription, NamedPartition
from posthouse.broker.groups.migration import downgraded, upgraded
from posthouse.broker.groups.states import ClassicState
from posthouse.model.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    PosthouseError,
    RebalanceInProgress,
    UnknownMember,
)
from posthouse.model.ids import InstanceId, MemberId
from tests.broker.groups.classic_clients import Group as ClassicTestGroup
from tests.broker.groups.consumer_clients import Group, settle, topic

SESSION, REBALANCE = 10.0, 20.0


class PlainText:
    """Metadata as people would write it: 't,u/t0,t1' subscribes to t and u and owns two partitions of t."""

    def subscription(self, protocol_type: str, metadata: bytes) -> MemberSubscription | None:
        if protocol_type != "consumer" or not metadata:
            return None
        topics, _, owned = metadata.decode().partition("/")
        return MemberSubscription(topics=frozenset(topics.split(",")), owned=self.assignment(owned.encode()))

    def assignment(self, data: bytes) -> frozenset[NamedPartition]:
        return frozenset(NamedPartition(each[0], int(each[1:])) for each in data.decode().split(",") if each)

    def encoded_assignment(self, partitions: Iterable[NamedPartition]) -> bytes:
        return ",".join(sorted(f"{each.topic}{each.index}" for each in partitions)).encode()


_numbers = itertools.count(1)


def new_member_id(prefix: str) -> MemberId:
    return MemberId(f"{prefix}-{next(_numbers)}")


class Guest:
    def __init__(
        self, group: Group, name: str, *, cooperative: bool = True, instance: str | None = None
    ) -> None:
        self.group = group
        self.client = MemberClient(id=name)
        self.cooperative = cooperative
        self.instance = None if instance is None else InstanceId(instance)
        self.id: MemberId | None = None
        self.joined: Joined | None = None
        self.owned = b""

    @property
    def view(self) -> Guests:
        return Guests(self.group.machine, PlainText(), new_member_id)

    def join(self, *, must_know_its_id: bool = False, protocol: str = "range") -> Joined:
        owned = self.owned if self.cooperative else b""
        self.joined = self.view.join(
            JoinRequest(
                member=self.id,
                instance=self.instance,
                client=self.client,
                protocol_type="consumer",
                protocols=(OfferedProtocol(name=protocol, metadata=b"t/" + owned),),
                session_seconds=SESSION,
                rebalance_seconds=REBALANCE,
                must_know_its_id=must_know_its_id,
            ),
            self.group.topics,
            self.group.now,
        )
        self.id = self.joined.member
        return self.joined

    def identity(self) -> MemberIdentity:
        assert self.joined is not None
        return MemberIdentity(
            member=self.joined.member, generation=self.joined.generation, instance=self.instance
        )

    def sync(self) -> bytes:
        self.owned = self.view.sync(
            SyncRequest(identity=self.identity()), self.group.topics, self.group.now
        ).assignment
        return self.owned

    def heartbeat(self) -> None:
        self.view.heartbeat(self.identity(), self.group.now)

    def turn(self) -> None:
        """Report; join again where that is asked for, twice where something had to be given up."""
        try:
            self.heartbeat()
        except RebalanceInProgress:
            self.join()
            self.sync()


@pytest.fixture
def group() -> Group:
    return Group(topic("t", 4))


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_guest_gets_its_share(group: Group, cooperative: bool) -> None:
    host, guest = group.member(), Guest(group, "g", cooperative=cooperative)
    settle(host)
    joined = guest.join()
    assert (joined.leader, joined.members) == ("", ())
    assert guest.sync() == b""
    settle(host, rounds=2)
    guest.turn()
    assert len(guest.owned.split(b",")) == 2
    assert len(host.owned) == 2
    assert group.machine.state is ConsumerState.STABLE


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_guest_gives_up(group: Group, cooperative: bool) -> None:
    guest = Guest(group, "g", cooperative=cooperative)
    guest.join()
    assert guest.sync() == b"t0,t1,t2,t3"
    host = group.member()
    host.turn()
    for _ in range(3):
        guest.turn()
        host.turn()
    assert len(guest.owned.split(b",")) == 2
    assert len(host.owned) == 2


def test_a_guest_that_does_not_give_up_is_out(group: Group) -> None:
    guest = Guest(group, "g")
    guest.join()
    guest.sync()
    host = group.member()
    host.turn()
    for _ in range(6):
        group.pass_time(REBALANCE / 5)
        host.turn()
        try:
            guest.heartbeat()
        except RebalanceInProgress:
            continue
        except UnknownMember:
            break
    else:
        pytest.fail("it is still there")
    settle(host)
    assert len(host.owned) == 4


def test_guests_need_not_join_again_while_the_assignment_is_delayed() -> None:
    group = Group(topic("t", 4), assignment_seconds=5.0)
    first, second = Guest(group, "g"), Guest(group, "h")
    first.join()
    assert first.sync() == b"t0,t1,t2,t3"
    second.join()
    assert second.sync() == b""
    assert group.machine.epoch > group.machine.target_epoch
    first.heartbeat()
    second.heartbeat()
    group.pass_time(5.0)
    for guest in (first, second):
        with pytest.raises(RebalanceInProgress):
            guest.heartbeat()
    for _ in range(3):
        first.turn()
        second.turn()
    assert len(first.owned.split(b",")) == len(second.owned.split(b",")) == 2
    assert group.machine.state is ConsumerState.STABLE


def test_silence_ends_a_session(group: Group) -> None:
    guest = Guest(group, "g")
    guest.join()
    group.pass_time(SESSION)
    with pytest.raises(UnknownMember):
        guest.heartbeat()


def test_ids_are_given_out_first(group: Group) -> None:
    guest = Guest(group, "g")
    with pytest.raises(MemberIdRequired) as given:
        guest.join(must_know_its_id=True)
    guest.id = given.value.member_id
    assert guest.join(must_know_its_id=True).member == guest.id
    other = Guest(group, "h")
    with pytest.raises(MemberIdRequired) as unused:
        other.join(must_know_its_id=True)
    group.pass_time(SESSION)
    other.id = unused.value.member_id
    with pytest.raises(UnknownMember):
        other.join(must_know_its_id=True)


def test_refused(group: Group) -> None:
    guest = Guest(group, "g")
    guest.join()
    guest.sync()
    stale = MemberIdentity(member=guest.id or MemberId(""), generation=99)
    with pytest.raises(IllegalGeneration):
        guest.view.heartbeat(stale, 0.0)
    with pytest.raises(IllegalGeneration):
        group.machine.check_commit(stale, 0.0)
    with pytest.raises(InconsistentProtocol):
        guest.view.sync(SyncRequest(identity=guest.identity(), protocol="sticky"), group.topics, 0.0)
    with pytest.raises(InconsistentProtocol):
        Guest(group, "h").join(protocol="sticky")
    assert [
        type(each) for each in guest.view.leave([Leaving(member=MemberId("x")), Leaving(member=guest.id)])
    ] == [
        UnknownMember,
        type(None),
    ]


def test_a_static_guest_comes_back(group: Group) -> None:
    first = Guest(group, "g", instance="i")
    first.join()
    held = first.sync()
    again = Guest(group, "h", instance="i")
    again.join()
    assert again.sync() == held
    with pytest.raises(FencedInstance):
        first.heartbeat()
    [result] = again.view.leave([Leaving(member=first.id, instance=again.instance)])
    assert isinstance(result, FencedInstance)


class TestMigration:
    def classic(self, *names: str) -> tuple[ClassicTestGroup, ClassicGroup]:
        group = ClassicTestGroup()
        members = [group.member(name, protocols=(("range", b"t"),), needs_id=False) for name in names]
        group.stable(members[0])
        for member in members[1:]:
            member.join()
            members[0].join()
        for number, member in enumerate(members):
            member.follow()
            group.machine.members.checked(member.id or MemberId(""), None).assignment = b"t%d" % number
        return group, group.machine

    def test_members_keep_what_they_have(self) -> None:
        _, classic = self.classic("a", "b")
        there = Group(topic("t", 2))
        there.machine = upgraded(classic, there.machine.rules, PlainText(), there.topics, 0.0)
        assert there.machine.epoch == classic.generation
        assert {member.assigned for member in there.machine} == {
            frozenset({topic("t", 2).partition(index)}) for index in range(2)
        }
        new = there.member()
        new.turn()
        assert new.epoch == classic.generation + 1
        assert new.owned == frozenset()
        for member in there.machine:
            if member.guest is not None:
                identity = MemberIdentity(member=member.id, generation=classic.generation)
                with pytest.raises(RebalanceInProgress):
                    Guests(there.machine, PlainText(), MemberId).heartbeat(identity, 0.0)

    def test_whoever_waits_is_sent_to_join_again(self) -> None:
        group, classic = self.classic("a")
        waiting = group.member("c", protocols=(("range", b"t"),), needs_id=False)
        waiting.join()
        there = Group(topic("t", 2))
        upgraded(classic, there.machine.rules, PlainText(), there.topics, 0.0)
        assert isinstance(waiting.error, RebalanceInProgress)

    def test_metadata_that_nobody_can_read(self) -> None:
        group = ClassicTestGroup()
        group.stable(group.member("a", protocols=(("range", b""),)))
        there = Group(topic("t", 2))
        with pytest.raises(InconsistentProtocol):
            upgraded(group.machine, there.machine.rules, PlainText(), there.topics, 0.0)
        assert group.machine.state is ClassicState.STABLE

    def test_back(self, group: Group) -> None:
        host, guest = group.member(), Guest(group, "g")
        settle(host)
        guest.join()
        settle(host, rounds=2)
        guest.turn()
        host.leave()
        assert group.machine.has_only_guests
        rules = ClassicRules(
            initial_seconds=0.0, max_size=10, new_member_id=MemberId, same_subscription=lambda *_: False
        )
        classic = downgraded(group.machine, rules, PlainText(), group.topics, group.now)
        with pytest.raises(RebalanceInProgress):
            classic.heartbeat(guest.identity(), group.now)
        answers: list[Joined | PosthouseError] = []
        classic.join(
            JoinRequest(
                member=guest.id,
                protocol_type="consumer",
                protocols=(OfferedProtocol(name="range", metadata=b"t"),),
                session_seconds=SESSION,
                rebalance_seconds=REBALANCE,
            ),
            group.now,
            answers.append,
        )
        [joined] = answers
        assert isinstance(joined, Joined)
        assert joined.leader == guest.id
        assert joined.generation > guest.identity().generation


def test_a_member_may_change_the_protocol_and_keep_its_id(group: Group) -> None:
    host = group.member()
    settle(host)
    guest = Guest(group, "g")
    guest.id = host.id
    guest.owned = b"t0,t1,t2,t3"
    guest.join()
    assert guest.sync() == b"t0,t1,t2,t3"
    assert [member.progress for member in group.machine] == [ConsumerMemberState.STABLE]
