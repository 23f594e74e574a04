"""What happened to the messages of a queue since the broker started."""

from collections.abc import Sequence

from posthouse.broker.queues.message import Message
from posthouse.broker.traffic import Traffic


class QueueCounters:
    """Of one queue or stream. Plain ints that are incremented in place, once for many messages."""

    __slots__ = ("acked", "dead_lettered", "delivered", "expired", "got", "published", "redelivered")

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        """To consumers, with and without acknowledgement, and to clients that poll."""
        self.got = 0
        """One by one (`basic.get`)."""
        self.acked = 0
        """By consumers, or by their delivery where no acknowledgement is asked for."""
        self.redelivered = 0
        """Of those that were delivered or got: the ones that had been handed out before."""
        self.dead_lettered = 0
        self.expired = 0


def count_handed_out(messages: Sequence[Message], counters: QueueCounters, traffic: Traffic) -> int:
    """Count messages that go to clients, by their topics; returns the bytes of their values."""
    # One loop for all: this runs for every message that is handed out.
    size = counted_size = counted = redelivered = 0
    topic = messages[0].topic if messages else ""
    for at, message in enumerate(messages):
        if message.topic is not topic:  # names of the same topic are mostly the same object
            of_topic = traffic[topic]
            of_topic.records_out += at - counted
            of_topic.bytes_out += size - counted_size
            topic, counted, counted_size = message.topic, at, size
        size += message.size
        if message.redelivered:
            redelivered += 1
    of_topic = traffic[topic]
    of_topic.records_out += len(messages) - counted
    of_topic.bytes_out += size - counted_size
    counters.redelivered += redelivered
    return size
