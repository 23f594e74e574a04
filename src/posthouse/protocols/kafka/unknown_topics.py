"""What other brokers of the cluster may have done a moment ago: created a topic, or written to a partition.

A broker that is alone knows all topics and ends: there it costs next to nothing.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.errors import UnknownTopic
from posthouse.model.ids import PartitionId, TopicId
from posthouse.protocols.kafka.handler import Context


async def look_for_topic(context: Context, name: str, topic_id: TopicId | None) -> None:
    """Call before a topic is called unknown, by its id or, if that is None, by its name. One call brings all
    topics up to date. Raises Unavailable."""
    with suppress(UnknownTopic):
        if topic_id is None:
            await context.broker.find_topic(name)
        else:
            await context.broker.find_topic_by_id(topic_id)


async def refresh_ends(context: Context, wanted: Iterable[tuple[str, Sequence[int]]]) -> None:
    """Call before bounds are answered. `wanted` are names of topics with their partitions. Raises Unavailable
    and UnknownPartition."""
    found: list[PartitionId] = []
    has_looked = False
    for name, indexes in wanted:
        if not context.guard.may(Operation.DESCRIBE, Kind.TOPIC, name):
            continue
        topic = context.broker.topics.find(name)
        if topic is None and not has_looked:
            await look_for_topic(context, name, None)
            has_looked = True
            topic = context.broker.topics.find(name)
        if topic is not None:
            found += [topic.partition(index) for index in indexes if 0 <= index < topic.partitions]
    if found:
        await context.broker.refresh(found)
