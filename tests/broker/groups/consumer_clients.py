"""A group whose partitions the broker assigns, with members that behave as real clients do."""

import itertools
from typing import Any

from posthouse.broker.groups.consumer import ConsumerGroup, ConsumerRules, check_beat
from posthouse.broker.groups.consumer_member import JOINING, LEAVING, LEAVING_FOR_A_WHILE, Beat, BeatAnswer
from posthouse.broker.groups.patterns import TopicPattern
from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import InstanceId, MemberId, PartitionId, TopicId
from posthouse.model.topics import Topic

SESSION = 45.0
REBALANCE = 30.0


def topic(name: str, partitions: int) -> Topic:
    return Topic(id=TopicId(name.encode().ljust(16, b".")), name=name, partitions=partitions)


class Group:
    def __init__(self, *topics: Topic, max_size: int = 100, assignment_seconds: float = 0.0) -> None:
        self.machine = ConsumerGroup(
            ConsumerRules(session_seconds=SESSION, max_size=max_size, assignment_seconds=assignment_seconds)
        )
        self.topics = TopicView(topics)
        self.now = 0.0
        self.numbers = itertools.count(1)

    def change_topics(self, *topics: Topic) -> None:
        self.topics = TopicView(topics)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.machine.wake_at <= end:
            self.now = max(self.now, self.machine.wake_at)
            self.machine.tick(self.now)
        self.now = end

    def member(self, *topics: str, **options: Any) -> "SimulatedMember":
        return SimulatedMember(self, f"m{next(self.numbers)}", topics or ("t",), **options)


class SimulatedMember:
    """`owned` is what it really reads; it lets go and takes up when `obey` is called."""

    def __init__(
        self,
        group: Group,
        name: str,
        topics: tuple[str, ...],
        *,
        pattern: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.group = group
        self.id = MemberId(name)
        self.topics = frozenset(topics)
        self.pattern = pattern
        self.instance = None if instance is None else InstanceId(instance)
        self.assignor = assignor
        self.epoch = JOINING
        self.owned: frozenset[PartitionId] = frozenset()
        self.told: frozenset[PartitionId] = frozenset()

    def send(self, epoch: int, **changes: Any) -> BeatAnswer:
        fields: dict[str, Any] = {"owned": self.owned} | changes
        if epoch == JOINING:
            fields = {
                "rebalance_seconds": REBALANCE,
                "topics": self.topics,
                "pattern": TopicPattern(self.pattern) if self.pattern else None,
                "assignor": self.assignor,
            } | fields
        beat = Beat(member=self.id, epoch=epoch, instance=self.instance, **fields)
        check_beat(beat)
        return self.group.machine.beat(beat, self.group.topics, self.group.now)

    def report(self) -> None:
        """One heartbeat; a member that is fenced drops everything and begins anew."""
        try:
            answer = self.send(self.epoch)
        except PosthouseError:
            self.owned = self.told = frozenset()
            self.epoch = JOINING
            answer = self.send(JOINING)
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.told = answer.assignment

    def let_go(self) -> None:
        self.owned &= self.told

    def obey(self) -> None:
        """First let go, and say so; only then take up: what is new was free when it was given out."""
        self.let_go()
        self.owned = self.told

    def turn(self) -> None:
        self.report()
        self.obey()

    def leave(self, *, for_a_while: bool = False) -> BeatAnswer:
        self.owned = frozenset()
        return self.send(LEAVING_FOR_A_WHILE if for_a_while else LEAVING)

    @property
    def numbers(self) -> list[int]:
        return sorted(partition.index for partition in self.owned)


def settle(*members: SimulatedMember, rounds: int = 4) -> None:
    for _ in range(rounds):
        for member in members:
            member.turn()
