"""Topics as RocketMQ's clients see them: by their names there, created by use."""

import asyncio
from collections.abc import Mapping
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import InvalidTopicName, PosthouseError, TopicExists, UnknownTopic
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.names import check_may_create, topic_name

DEFAULT_QUEUES: Final = 4
"""Of a new topic, unless its producer wants fewer."""
MOST_QUEUES: Final = 1024
"""That a client can have created by sending to a new topic."""


class RocketTopics:
    """Owned by the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._creating: dict[str, asyncio.Future[Topic]] = {}

    def find(self, name: str) -> Topic | None:
        try:
            return self._broker.topics.find(topic_name(name))
        except InvalidTopicName:
            return None

    def get(self, name: str) -> Topic:
        """Raises UnknownTopic and InvalidTopicName."""
        topic = self._broker.topics.find(topic_name(name))
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic

    async def obtain(self, name: str, queues: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """The topic, created if there is none: once for several callers, who go on in the order of their
        calls."""
        topic = self.find(name)
        if topic is not None:
            return topic
        check_may_create(name)
        creating = self._creating.get(name)
        if creating is None:
            queues = max(1, min(queues, MOST_QUEUES))
            creating = asyncio.ensure_future(self._create(name, queues, overrides or {}))
            self._creating[name] = creating
            creating.add_done_callback(lambda _: self._creating.pop(name, None))
        return await undisturbed(creating)

    async def _create(self, name: str, queues: int, overrides: Mapping[str, str]) -> Topic:
        stored = topic_name(name)
        [created] = await self._broker.create_topics(
            [NewTopic(name=stored, partitions=queues, overrides=overrides)]
        )
        if isinstance(created, TopicExists):
            return self._broker.topic(stored)
        if isinstance(created, PosthouseError):
            raise created
        return created
