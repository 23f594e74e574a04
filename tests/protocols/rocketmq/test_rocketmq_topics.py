"""Topics that are created by use."""

import asyncio
from typing import Any

import pytest

from posthouse.model.errors import AccessRefused, InvalidTopicName, UnknownTopic
from posthouse.protocols.rocketmq.topics import MOST_QUEUES, RocketTopics
from posthouse.testing import AsyncBroker


@pytest.fixture
def topics(broker: AsyncBroker) -> RocketTopics:
    return RocketTopics(broker.app.broker)


async def test_names_of_either_side(topics: RocketTopics) -> None:
    created = await topics.obtain("%RETRY%g", 3)
    assert (created.name, created.partitions) == (".RETRY.g", 3)
    assert topics.find("%RETRY%g") is topics.find(".RETRY.g") is topics.get("%RETRY%g") is created
    assert topics.find("none") is topics.find("a b") is None
    with pytest.raises(UnknownTopic):
        topics.get("none")
    with pytest.raises(InvalidTopicName):
        topics.get("a b")


async def test_numbers_of_queues(topics: RocketTopics) -> None:
    assert (await topics.obtain("few", -5)).partitions == 1
    assert (await topics.obtain("many", 1 << 40)).partitions == MOST_QUEUES
    assert (await topics.obtain("few", 9)).partitions == 1


async def test_several_callers(topics: RocketTopics) -> None:
    """One creation, and everyone goes on in order."""
    order: list[int] = []

    async def obtain(number: int) -> Any:
        found = await topics.obtain("t", 1)
        order.append(number)
        return found

    found = await asyncio.gather(*map(obtain, range(100)))
    assert len({id(each) for each in found}) == 1
    assert order == list(range(100))
    assert topics.find_settled("t") is found[0]
    assert not topics._turns


async def test_another_protocol_creates_it_meanwhile(broker: AsyncBroker, topics: RocketTopics) -> None:
    other = RocketTopics(broker.app.broker)
    found = await asyncio.gather(topics.obtain("t", 1), other.obtain("t", 2), topics.obtain("t", 3))
    assert len({each.id for each in found}) == 1


async def test_a_caller_goes_away(topics: RocketTopics) -> None:
    tasks = [asyncio.create_task(topics.obtain("t", 1)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    assert (await tasks[1]).name == (await tasks[2]).name == "t"
    assert tasks[0].cancelled()
    assert not topics._turns


async def test_a_creation_that_is_refused(topics: RocketTopics) -> None:
    def refuse() -> None:
        raise AccessRefused("no")

    with pytest.raises(AccessRefused):
        await topics.obtain("t", 1, refuse)
    with pytest.raises(InvalidTopicName):
        await topics.obtain("a b", 1)
    assert topics.find("t") is None
    assert not topics._turns
    assert (await topics.obtain("t", 1)).name == "t"
    assert (await topics.obtain("t", 1, refuse)).name == "t"
