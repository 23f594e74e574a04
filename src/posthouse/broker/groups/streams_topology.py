"""The topology of a Kafka Streams application, and the topics and tasks that it needs.

A *subtopology* reads source topics and is processed in *tasks*, one per partition. It may write to
repartition topics, which others read, and keep state in changelog topics; the broker creates both. Pure
functions: `configured` computes the partitions of the internal topics, or the obstacle.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.errors import InvalidTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    name: str
    partitions: int = 0
    """0: derived from the source topics."""
    replicas: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    id: str
    sources: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    copartitioned: tuple[frozenset[str], ...] = ()
    """Topics that must have the same number of partitions."""

    @property
    def read(self) -> list[str]:
        return [*self.sources, *(topic.name for topic in self.repartition_sources)]

    @property
    def topics(self) -> set[str]:
        """All topics that it reads, writes or keeps state in."""
        return {*self.read, *self.repartition_sinks, *(topic.name for topic in self.changelogs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @property
    def required(self) -> set[str]:
        """The topics without which no task can run."""
        return {
            name
            for each in self.subtopologies
            for name in (*each.read, *(topic.name for topic in each.changelogs))
        }

    def subtopology_of(self, topic: str) -> str | None:
        """The subtopology that reads the topic."""
        return next((each.id for each in self.subtopologies if topic in each.read), None)


class Obstacle(Enum):
    MISSING_SOURCE_TOPICS = auto()
    INCORRECTLY_PARTITIONED_TOPICS = auto()
    MISSING_INTERNAL_TOPICS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredSubtopology:
    id: str
    tasks: int
    read: tuple[str, ...]
    is_stateful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """A topology with its numbers of partitions. With an obstacle, no task is assigned."""

    subtopologies: tuple[ConfiguredSubtopology, ...] = ()
    """In the order of their ids."""
    internal: Mapping[str, InternalTopic] = field(default_factory=dict)
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics to be created."""
    obstacle: Obstacle | None = None
    detail: str = ""

    @property
    def is_ready(self) -> bool:
        return self.obstacle is None

    def tasks(self, subtopology: str) -> int | None:
        return next((each.tasks for each in self.subtopologies if each.id == subtopology), None)


MOST_TASKS = 10_000
"""Tasks of one application: assigning them must not block other clients."""


class _Stopped(Exception):
    def __init__(self, obstacle: Obstacle, detail: str) -> None:
        super().__init__(detail)
        self.obstacle = obstacle


Count = Callable[[str], int | None]
"""The number of partitions that a topic has or will have."""


def configured(topology: Topology, topics: TopicView) -> ConfiguredTopology:
    """Raises InvalidTopology if no topics could make it work."""
    try:
        return _configured(topology, topics)
    except _Stopped as stopped:
        return ConfiguredTopology(obstacle=stopped.obstacle, detail=str(stopped))


def _configured(topology: Topology, topics: TopicView) -> ConfiguredTopology:
    missing = {name for each in topology.subtopologies for name in each.sources} - topics.by_name.keys()
    if missing:
        raise _Stopped(Obstacle.MISSING_SOURCE_TOPICS, f"Source topics {_some(missing)} are missing.")
    decided: dict[str, int] = {}

    def count(name: str) -> int | None:
        topic = topics.by_name.get(name)
        return decided.get(name) if topic is None else topic.partitions

    decided |= _repartition_counts(topology.subtopologies, count)
    repartitioned = {
        topic.name: topic for each in topology.subtopologies for topic in each.repartition_sources
    }
    for each in topology.subtopologies:
        for together in each.copartitioned:
            decided |= _equal_counts(together, repartitioned, count)
    if sum(_tasks(each, count) for each in topology.subtopologies) > MOST_TASKS:
        raise InvalidTopology(f"the application has more than {MOST_TASKS} tasks")
    for each in topology.subtopologies:
        most = _tasks(each, count)
        decided |= {changelog.name: most for changelog in each.changelogs}
    internal = {
        topic.name: InternalTopic(
            name=topic.name,
            partitions=topic.partitions or decided[topic.name],
            replicas=topic.replicas,
            configs=topic.configs,
        )
        for each in topology.subtopologies
        for topic in (*each.repartition_sources, *each.changelogs)
    }
    for name, wanted in internal.items():
        there = topics.by_name.get(name)
        if there is not None and there.partitions != wanted.partitions:
            raise _Stopped(
                Obstacle.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {wanted.partitions}, found {there.partitions}",
            )
    absent = tuple(topic for name, topic in sorted(internal.items()) if name not in topics.by_name)
    return ConfiguredTopology(
        subtopologies=tuple(
            ConfiguredSubtopology(
                id=each.id,
                tasks=_tasks(each, count),
                read=tuple(each.read),
                is_stateful=bool(each.changelogs),
            )
            for each in sorted(topology.subtopologies, key=lambda each: each.id)
        ),
        internal=internal,
        missing=absent,
        obstacle=Obstacle.MISSING_INTERNAL_TOPICS if absent else None,
        detail=f"Internal topics are missing: {_some(topic.name for topic in absent)}" if absent else "",
    )


def _tasks(subtopology: Subtopology, count: Count) -> int:
    counts = [count(name) for name in subtopology.read]
    if not counts:
        raise InvalidTopology(f"the subtopology {subtopology.id!r} reads no topic")
    return max(each for each in counts if each is not None)


def _repartition_counts(subtopologies: Sequence[Subtopology], count: Count) -> dict[str, int]:
    """Derive the missing numbers of partitions from the topics that the writing subtopology reads, step by
    step."""
    found = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_sources
        if topic.partitions
    }
    open_sinks = [(each, sink) for each in subtopologies for sink in each.repartition_sinks]
    open_sinks = [(each, sink) for each, sink in open_sinks if sink not in found]
    while open_sinks:
        left = []
        for each, sink in open_sinks:
            known = [found.get(topic.name) for topic in each.repartition_sources]
            known += [count(name) for name in each.sources]
            counts = [number for number in known if number is not None]
            if counts:
                found[sink] = max(counts)
            else:
                left.append((each, sink))
        if len(left) == len(open_sinks):
            raise InvalidTopology("the partitions of repartition topics depend on each other in a circle")
        open_sinks = left
    for each in subtopologies:
        for topic in each.repartition_sources:
            if topic.name not in found:
                raise InvalidTopology(f"no subtopology writes to the repartition topic {topic.name!r}")
    return found


def _equal_counts(
    together: frozenset[str], internal: Mapping[str, InternalTopic], count: Count
) -> dict[str, int]:
    """The number of partitions of repartition topics that are co-partitioned with others."""
    repartitioned = sorted(together & internal.keys())
    others = {name: count(name) for name in sorted(together - internal.keys())}
    fixed = {name: internal[name].partitions for name in repartitioned if internal[name].partitions}
    given = others or fixed
    if len(set(given.values())) > 1:
        listed = ", ".join(f"{name}={number}" for name, number in given.items())
        raise _Stopped(
            Obstacle.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{listed}]",
        )
    numbers = [number for number in (*given.values(), *map(count, repartitioned)) if number is not None]
    if not repartitioned or not numbers:
        return {}
    wanted = numbers[0] if given else max(numbers)
    for name, number in fixed.items():
        if number != wanted:
            raise _Stopped(
                Obstacle.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{number}] of repartition topic [{name}] "
                f"doesn't match number of partitions [{wanted}] of the source topic.",
            )
    return dict.fromkeys(repartitioned, wanted)


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more
