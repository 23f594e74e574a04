"""Consumers that were told to read a partition from another broker, and ask here again.

One that comes back at once, several times, cannot follow: it does not know that broker, because its metadata
are older, or cannot reach it. Some clients would ask again and again, without records, until their next
metadata, which may be five minutes later. So this broker serves it for a while. Once is no sign: the next
fetch may have been on its way. One that comes back later has followed, and has to ask again from time to time
(`metadata.max.age.ms`): it is told again.
"""

from dataclasses import dataclass

from posthouse.model.ids import PartitionId

AT_ONCE_SECONDS = 2.0
"""More than clients wait between two fetches, less than they read elsewhere until they ask again."""
MOST_TIMES = 3
SERVED_SECONDS = 60.0
"""librdkafka complains when it is sent to a broker more than once in a minute."""
_MOST_PARTITIONS = 5000
"""Of one connection. With more, all are told again."""


@dataclass(slots=True)
class _Told:
    node_id: int
    at: float
    times: int = 1
    """Without a pause."""
    served_until: float = 0.0


class ReadReplicas:
    """What the consumer on one connection was told, by partition."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[PartitionId, _Told] = {}

    def tell(self, partition: PartitionId, node_id: int, now: float) -> bool:
        """Whether the consumer is to be told, now, to read from this node."""
        told = self._told.get(partition)
        if told is None or told.node_id != node_id:
            if len(self._told) >= _MOST_PARTITIONS:
                self._told.clear()
            self._told[partition] = _Told(node_id, now)
            return True
        if now < told.served_until:
            return False
        comes_at_once = now < told.at + AT_ONCE_SECONDS
        if comes_at_once and told.times >= MOST_TIMES:
            told.served_until = now + SERVED_SECONDS
            return False
        told.times = told.times + 1 if comes_at_once else 1
        told.at = now
        return True
