"""An immutable view of the topics, from which groups resolve subscriptions."""

from collections.abc import Iterable, Mapping

from posthouse.broker.groups.metadata import NamedPartition
from posthouse.broker.groups.patterns import TopicPattern
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic


class TopicView:
    """Immutable: a subscription resolved with one view stays valid until there is another view."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        self.by_name: Mapping[str, Topic] = {topic.name: topic for topic in topics}
        self._names = {topic.id: topic.name for topic in self.by_name.values()}

    def resolved(self, names: Iterable[str], pattern: TopicPattern | None) -> dict[TopicId, int]:
        """The subscribed topics, with their numbers of partitions."""
        found = {name: self.by_name[name] for name in names if name in self.by_name}
        if pattern is not None:
            found |= {name: topic for name, topic in self.by_name.items() if pattern.matches(name)}
        return {topic.id: topic.partitions for topic in found.values()}

    def ids(self, partitions: Iterable[NamedPartition]) -> frozenset[PartitionId]:
        """The ids, without partitions of deleted topics."""
        return frozenset(
            self.by_name[each.topic].partition(each.index)
            for each in partitions
            if each.topic in self.by_name
        )

    def named(self, partitions: Iterable[PartitionId]) -> frozenset[NamedPartition]:
        return frozenset(
            NamedPartition(self._names[each.topic], each.index)
            for each in partitions
            if each.topic in self._names
        )


NO_TOPICS = TopicView(())
