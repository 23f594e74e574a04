"""Retention of a broker that does not serve the queues: it removes nothing that they may need."""

import asyncio

from posthouse.broker.queues.backing_topics import QUEUE_TOPIC
from posthouse.broker.topics import NewTopic
from posthouse.model.topics import Topic
from tests.broker.members import Pair, pair, started
from tests.broker.queues.rig import Rig


async def publish(both: Pair) -> None:
    rig = Rig(both.coordinator)
    await rig.queue("mails")
    async with asyncio.timeout(30):
        assert await rig.publish(b"one", key=b"mails") == [True]


async def test_the_topic_of_a_queue_stays_as_it_is() -> None:
    async with pair() as both, started(both.member):
        await publish(both)
        await both.member.refresh_definitions()
        topic = both.member.topic("mails")
        [partition] = topic.partition_ids()
        await both.member_storage.refresh([partition])

        await both.member.namespaces.retention.reclaim()

        assert topic.id in both.storage.topics
        assert (both.storage.bounds(partition).start, both.storage.bounds(partition).end) == (0, 1)


async def test_a_topic_that_was_given_to_a_queue_meanwhile_stays() -> None:
    """The broker has not heard yet that the topic feeds a queue."""
    async with pair() as both, started(both.member):
        [topic] = await both.member.create_topics(
            [NewTopic(name="mails", partitions=1, overrides=QUEUE_TOPIC)]
        )
        assert isinstance(topic, Topic)
        await publish(both)
        assert both.storage.topics[topic.id].scope is not None
        assert both.member.topic("mails").scope is None

        await both.member.namespaces.retention.reclaim()

        assert topic.id in both.storage.topics
