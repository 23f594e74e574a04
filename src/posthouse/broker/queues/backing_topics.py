"""The topics that messages of exchanges and queues are written to."""

from posthouse.broker.topics import NewTopic
from posthouse.model.topics import Topic

_LARGEST_BATCH = "536870912"

EXCHANGE_TOPIC = {"max.message.bytes": _LARGEST_BATCH}
QUEUE_TOPIC = {
    "max.message.bytes": _LARGEST_BATCH,
    "retention.consumed": "true",
    "retention.ms": "-1",
    "segment.bytes": str(64 * 1024 * 1024),
}
"""Of topics that exist only because there is a queue of that name."""
_LEAST_SEGMENT = 1024 * 1024
_LARGEST_SEGMENT = 2**31 - 1


def queue_topic_config(segment_bytes: int | None) -> dict[str, str]:
    """`QUEUE_TOPIC`, with the segments that a stream asks for as far as a topic can have them."""
    if segment_bytes is None:
        return QUEUE_TOPIC
    size = min(max(segment_bytes, _LEAST_SEGMENT), _LARGEST_SEGMENT)
    return {**QUEUE_TOPIC, "segment.bytes": str(size)}


class BackingTopic:
    """A topic by name. It is created when the first message is written to it."""

    __slots__ = ("name", "new", "partition", "topic")

    def __init__(self, name: str, overrides: dict[str, str], partition: int | None = None) -> None:
        self.name = name
        self.partition = partition
        """The one that all of its messages are for; None if their keys choose."""
        self.new = NewTopic(name=name, partitions=1, overrides=overrides)
        """How the topic is created: with one partition, so that its readers see the order of publishing."""
        self.topic: Topic | None = None
        """The topic when a wave was last written to it: see `Publishing.topic`."""
