"""The logs of all partitions, and the directories of their files."""

from collections.abc import Iterable

from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.files.segments.partition_log import PartitionLog


class Logs(dict[PartitionId, PartitionLog]):
    """A dict, because every append and every read looks up its log. Owned by the event loop."""

    def __init__(self, directory: str, topics: Iterable[Topic] = ()) -> None:
        self._directory = directory
        for topic in topics:
            self.learn(topic)

    def __missing__(self, partition: PartitionId) -> PartitionLog:
        raise UnknownPartition(f"there is no partition {partition}")

    def has(self, owner: PartitionLog) -> bool:
        """Whether the log still exists: its topic may have been deleted."""
        return self.get(owner.id) is owner

    def learn(self, topic: Topic) -> None:
        """Create the missing logs of a topic; existing logs get its settings."""
        directory = topic_directory(self._directory, topic.id)
        for id in topic.partition_ids():
            owner = self.get(id)
            if owner is None:
                self[id] = PartitionLog(id, directory, topic.config, name=f"{topic.name}-{id.index}")
            else:
                owner.config = topic.config


def topic_directory(directory: str, id: TopicId) -> str:
    return f"{directory}/topics/{id.hex()}"
