"""Topics as RocketMQ's clients see them: by their names there, created by use."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import InvalidTopicName, PosthouseError, TopicExists, UnknownTopic
from posthouse.model.topics import Topic
from posthouse.protocols.noop import noop
from posthouse.protocols.rocketmq.names import check_may_create, is_of_group, topic_name
from posthouse.protocols.rocketmq.priorities import SETTING as PRIORITIES
from posthouse.protocols.rocketmq.priorities import has_said

DEFAULT_QUEUES: Final = 4
"""Of a new topic, unless its producer wants fewer."""
RETRY_QUEUES: Final = 1
"""Of a group's retries, and of its dead letters."""
MOST_QUEUES: Final = 1024
"""That a client can have created by sending to a new topic."""


class _Turn:
    """Of those who wait for one topic."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class RocketTopics:
    """Owned by the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turns: dict[str, _Turn] = {}

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

    def find_settled(self, name: str) -> Topic | None:
        """None also while others wait for the topic in `obtain`: who is not to overtake them waits, too."""
        return None if name in self._turns else self.find(name)

    async def obtain(self, name: str, queues: int, check: Callable[[], None] = noop) -> Topic:
        """The topic, created if there is none. Several callers go on in the order of their calls. Raises
        InvalidTopicName, UnknownTopic where topics are not created by use, and what `check` raises, which is
        called before it is created."""
        async with self._turn_of(name):
            topic = self.find(name)
            if topic is None:
                self._check_may_create(name)
                check()
                queues = max(1, min(queues, MOST_QUEUES))
                topic = await undisturbed(asyncio.ensure_future(self._create(name, queues)))
            return topic

    async def with_priorities(self, name: str) -> Topic:
        """The topic, which has priorities from now on unless its settings say otherwise. As in `obtain`,
        others that want the topic meanwhile go on later. Raises UnknownTopic."""
        async with self._turn_of(name):
            topic = self.get(name)
            if not has_said(topic):
                topic = await undisturbed(
                    asyncio.ensure_future(self._broker.configure_topic(topic.name, _with_priorities))
                )
            return topic

    @asynccontextmanager
    async def _turn_of(self, name: str) -> AsyncIterator[None]:
        turn = self._turns.get(name)
        if turn is None:
            turn = self._turns[name] = _Turn()
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[name]

    def _check_may_create(self, name: str) -> None:
        check_may_create(name)
        if not self._broker.settings.auto_create_topics and not is_of_group(name):
            raise UnknownTopic(f"there is no topic {name!r}, and the setting auto_create_topics is off")

    async def _create(self, name: str, queues: int) -> Topic:
        stored = topic_name(name)
        # Clients look for messages by key without having asked for an index, as upstream.
        wanted = new_topic(stored, queues)
        [created] = await self._broker.create_topics([wanted])
        if isinstance(created, TopicExists):
            return self._broker.topic(stored)
        if isinstance(created, PosthouseError):
            raise created
        return created


def _with_priorities(topic: Topic) -> Mapping[str, str]:
    return topic.overrides if has_said(topic) else {**topic.overrides, PRIORITIES: "true"}


def new_topic(name: str, queues: int, overrides: Mapping[str, str] | None = None) -> NewTopic:
    """`name` is that of the log. Messages are found by their keys, as upstream."""
    return NewTopic(name=name, partitions=queues, overrides={"index.keys": "true", **(overrides or {})})
