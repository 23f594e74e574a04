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
    # One loop with little in it: this runs for every message that is handed out. Nearly always all are
    # of one topic, whose name is then one object.
    size = redelivered = 0
    is_mixed = False
    topic = messages[0].topic
    for message in messages:
        size += message.size
        if message.redelivered:
            redelivered += 1
        if message.topic is not topic:
            is_mixed = True
    counters.redelivered += redelivered
    if is_mixed:
        for message in messages:
            of_topic = traffic[message.topic]
            of_topic.records_out += 1
            of_topic.bytes_out += message.size
    else:
        of_topic = traffic[topic]
        of_topic.records_out += len(messages)
        of_topic.bytes_out += size
    return size
