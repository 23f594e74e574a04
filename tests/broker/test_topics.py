"""Topics: who may be called what, and that nobody leaves a change half done."""

import asyncio
from collections.abc import Sequence

import pytest

from posthouse.broker.topics import NewTopic, Topics
from posthouse.model.clock import ManualClock
from posthouse.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    PosthouseError,
    TopicExists,
    UnknownTopic,
)
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Put


class SlowStorage(MemoryStorage):
    """One whose definitions take until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        self.began.set()
        await self.go_on.wait()
        await super().create_topics(topics, state)


def topics_of(storage: Storage) -> Topics:
    return Topics(storage, TopicConfig(), 4)


async def test_a_creation_whose_client_leaves_is_finished_all_the_same() -> None:
    storage = SlowStorage()
    topics = topics_of(storage)
    leaving = asyncio.create_task(topics.create([NewTopic(name="orders")]))
    await storage.began.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    storage.go_on.set()
    [again] = await topics.create([NewTopic(name="orders")])
    assert isinstance(again, TopicExists)
    assert topics.get("orders").id in storage.topics


async def test_of_several_wanted_topics_the_good_ones_are_made() -> None:
    topics = topics_of(MemoryStorage(ManualClock()))
    wanted = [
        NewTopic(name="good"),
        NewTopic(name="good"),
        NewTopic(name="with space"),
        NewTopic(name="many", partitions=0),
        NewTopic(name="odd", overrides={"retention.ms": "soon"}),
        NewTopic(name="strange", overrides={"no.such.key": "1"}),
    ]
    results = await topics.create(wanted)
    kinds = [type(result) for result in results[1:]]
    assert topics.get("good").partitions == 4
    assert kinds == [TopicExists, InvalidTopicName, InvalidPartitions, InvalidConfig, InvalidConfig]


async def test_validation_makes_nothing() -> None:
    topics = topics_of(MemoryStorage(ManualClock()))
    [would_be] = await topics.create([NewTopic(name="orders")], validate_only=True)
    assert not isinstance(would_be, PosthouseError)
    with pytest.raises(UnknownTopic):
        topics.get("orders")


async def test_a_topic_made_again_is_another_topic() -> None:
    topics = topics_of(MemoryStorage(ManualClock()))
    await topics.create([NewTopic(name="orders")])
    first = topics.get("orders")
    await topics.delete([first])
    await topics.create([NewTopic(name="orders")])
    assert topics.get("orders").id != first.id
    with pytest.raises(UnknownTopic):
        topics.get_by_id(first.id)


async def test_partitions_only_grow() -> None:
    topics = topics_of(MemoryStorage(ManualClock()))
    await topics.create([NewTopic(name="orders", partitions=3)])
    for count in (0, 2, 3):
        with pytest.raises(InvalidPartitions):
            await topics.grow("orders", count)
    assert (await topics.grow("orders", 5)).partitions == topics.get("orders").partitions == 5
