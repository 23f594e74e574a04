"""A streams group with members that behave as real clients do."""

import itertools
from typing import Any

from posthouse.broker.groups.streams import StreamsGroup, StreamsRules
from posthouse.broker.groups.streams_answers import StreamsAnswer
from posthouse.broker.groups.streams_assignor import NOTHING, Tasks
from posthouse.broker.groups.streams_member import JOINING, LEAVING, StreamsBeat, check_streams_beat
from posthouse.broker.groups.streams_topology import InternalTopic, Subtopology, Topology
from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import MemberId
from posthouse.model.topics import Topic
from tests.broker.groups.consumer_clients import topic

SESSION = 45.0
REBALANCE = 30.0

READ = Subtopology(id="0", sources=("t",), repartition_sinks=("r",))
COUNT = Subtopology(
    id="1", repartition_sources=(InternalTopic(name="r"),), changelogs=(InternalTopic(name="c"),)
)
TOPOLOGY = Topology(epoch=0, subtopologies=(READ, COUNT))


def topics_for(partitions: int) -> list[Topic]:
    return [topic(name, partitions) for name in ("t", "r", "c")]


class Group:
    def __init__(self, *topics: Topic, **rules: Any) -> None:
        self.machine = StreamsGroup(StreamsRules(**({"session_seconds": SESSION, "max_size": 100} | rules)))
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

    def member(self, process: str | None = None, **options: Any) -> "SimulatedMember":
        name = f"m{next(self.numbers)}"
        return SimulatedMember(self, name, process or f"p-{name}", **options)


class SimulatedMember:
    """`owned` is what it really works on; it gives up and takes up when `obey` is called."""

    def __init__(
        self, group: Group, name: str, process: str, topology: Topology = TOPOLOGY, **fields: Any
    ) -> None:
        self.group = group
        self.id = MemberId(name)
        self.process = process
        self.topology = topology
        self.fields = fields
        self.epoch = JOINING
        self.owned = self.told = NOTHING
        self.answer: StreamsAnswer | None = None

    def send(self, epoch: int, **changes: Any) -> StreamsAnswer:
        fields: dict[str, Any] = {"owned": self.owned} | changes
        if epoch == JOINING:
            fields = {
                "rebalance_seconds": REBALANCE,
                "topology": self.topology,
                "process": self.process,
                **self.fields,
            } | fields
        beat = StreamsBeat(member=self.id, epoch=epoch, **fields)
        check_streams_beat(beat)
        return self.group.machine.beat(beat, self.group.topics, self.group.now)

    def report(self) -> None:
        """One heartbeat; a member that is fenced drops everything and begins anew."""
        try:
            answer = self.send(self.epoch)
        except PosthouseError:
            self.owned = self.told = NOTHING
            self.epoch = JOINING
            answer = self.send(JOINING)
        self.answer = answer
        self.epoch = answer.epoch
        if answer.tasks is not None:
            self.told = answer.tasks

    def let_go(self) -> None:
        self.owned = self.owned & self.told

    def obey(self) -> None:
        """First give up, and say so; only then take up: what is new was free when it was given out."""
        self.let_go()
        self.owned = self.told

    def turn(self) -> None:
        self.report()
        self.obey()

    def leave(self) -> StreamsAnswer:
        self.owned = NOTHING
        return self.send(LEAVING)

    @property
    def names(self) -> list[str]:
        return shown(self.owned)


def shown(tasks: Tasks) -> list[str]:
    """Active tasks as `0_1`, standbys as `s0_1`."""
    active = sorted(f"{task.subtopology}_{task.partition}" for task in tasks.active)
    return active + sorted(f"s{task.subtopology}_{task.partition}" for task in tasks.standby)


def settle(*members: SimulatedMember, rounds: int = 5) -> None:
    for _ in range(rounds):
        for member in members:
            member.turn()
