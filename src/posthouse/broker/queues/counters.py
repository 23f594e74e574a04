"""Counters of a queue's messages since the broker started."""


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
        """Messages among those delivered or got that had been delivered before."""
        self.dead_lettered = 0
        self.expired = 0
