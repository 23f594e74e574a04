"""Where a group begins that has no offset yet."""

from typing import Final

from posthouse.broker.broker import Broker
from posthouse.model.topics import Topic

FROM_THE_START_BYTES: Final = 64 * 1024 * 1024


def begins_at_start(broker: Broker, topic: Topic, partition: int) -> bool:
    """A group begins with the first message of a queue that is complete and not too large: such a queue is in
    memory, and upstream does the same then."""
    is_complete = broker.bounds(topic, partition).start == 0
    return is_complete and broker.size(topic, partition) <= FROM_THE_START_BYTES
