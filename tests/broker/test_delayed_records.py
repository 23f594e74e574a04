"""Records that come to a partition of their topic when they are due."""

import asyncio
import logging
from pathlib import Path

import pytest

from posthouse.broker.routing.definitions import Binding, ExchangeKind
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import (
    InvalidTimestamp,
    MissingKeys,
    PosthouseError,
    RecordTooLarge,
    UnknownPartition,
)
from posthouse.model.topics import Topic
from posthouse.records.header_section import encode_section
from posthouse.records.raw import NO_HEADERS
from tests.broker.queues.rig import Rig, running, settle_turns, values_of
from tests.broker.test_record_waves import batches

HOUR = 3_600_000


async def new_topic(rig: Rig, partitions: int = 3, **overrides: str) -> Topic:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    [topic] = await rig.broker.create_topics([NewTopic(name="t", partitions=partitions, overrides=settings)])
    assert isinstance(topic, Topic)
    return topic


async def delay(
    rig: Rig,
    topic: Topic,
    value: bytes,
    due_ms: int,
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: bytes = NO_HEADERS,
) -> None:
    """Return when it is durable in the schedule."""
    stored: asyncio.Future[PosthouseError | None] = asyncio.get_running_loop().create_future()
    rig.broker.delayed_records.add(topic, partition, key, value, headers, due_ms, stored.set_result)
    assert await stored is None


async def fire(rig: Rig) -> None:
    for schedule in rig.broker._schedules._by_scope.values():
        await schedule.fire_due()


async def values(rig: Rig, topic: Topic, partition: int = 0) -> list[tuple[bytes | None, bytes]]:
    found = await batches(rig, topic, partition)
    return [(record.key, record.value) for batch in found for record in batch]


async def test_records_come_to_their_partition_when_they_are_due(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        now = clock.now_ms()
        await delay(rig, topic, b"b", now + 2000, partition=1, key=b"k")
        await delay(rig, topic, b"a", now + 1000, partition=1)
        await delay(rig, topic, b"c", now + 1000, partition=2, key=b"")
        await fire(rig)
        assert [await values(rig, topic, number) for number in range(3)] == [[], [], []]
        clock.advance(1)
        await fire(rig)
        assert await values(rig, topic, 1) == [(None, b"a")]
        assert await values(rig, topic, 2) == [(b"", b"c")]
        clock.advance(1)
        await fire(rig)
        assert await values(rig, topic, 1) == [(None, b"a"), (b"k", b"b")]
        assert rig.broker.scheduled_messages == 0


async def test_those_that_are_due_at_once_share_a_batch(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        due = clock.now_ms() + 1000
        for number in range(10):
            await delay(rig, topic, b"%d" % number, due, partition=number % 2)
        clock.advance(1)
        await fire(rig)
        assert [len(batch) for batch in await batches(rig, topic, 0)] == [5]
        assert [len(batch) for batch in await batches(rig, topic, 1)] == [5]


async def test_they_survive_a_restart(clock: ManualClock, tmp_path: Path) -> None:
    headers = encode_section([(b"TAGS", b"red")])
    async with running(tmp_path, clock) as rig:
        topic = await new_topic(rig)
        due = clock.now_ms() + 300 * 24 * HOUR
        await delay(rig, topic, b"much later", due, partition=2, key=b"k", headers=headers)
    clock.advance(300 * 24 * 3600)
    async with running(tmp_path, clock) as rig:
        await fire(rig)
        topic = rig.broker.topic("t")
        [[record]] = await batches(rig, topic, 2)
        assert (record.key, record.value, record.headers) == (b"k", b"much later", headers)


async def test_queues_that_the_topic_feeds_get_them(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue = await rig.queue("t")
        topic = await new_topic(rig)
        await delay(rig, topic, b"v", clock.now_ms() + 1000, partition=1)
        clock.advance(1)
        await fire(rig)
        await settle_turns()
        assert await values_of(queue) == [b"v"]
        assert await values(rig, topic, 1) == [(None, b"v")]


@pytest.mark.parametrize(
    "headers", [NO_HEADERS, encode_section([(b"posthouse.routing-key", b"red.x")])], ids=["key", "header"]
)
async def test_an_exchange_that_the_topic_feeds_routes_them(clock: ManualClock, headers: bytes) -> None:
    async with running(clock=clock) as rig:
        await rig.exchange("t", ExchangeKind.TOPIC)
        red, blue = await rig.queue("red"), await rig.queue("blue")
        await rig.bind("t", "red", b"red.*")
        await rig.bind("t", "blue", b"blue.*")
        topic = await new_topic(rig)
        key = b"red.x" if headers == NO_HEADERS else b"blue.x"
        await delay(rig, topic, b"v", clock.now_ms() + 1000, partition=1, key=key, headers=headers)
        clock.advance(1)
        await fire(rig)
        await settle_turns()
        assert (await values_of(red), await values_of(blue)) == ([b"v"], [])


async def test_an_exchange_routes_them_by_their_headers(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        await rig.exchange("t", ExchangeKind.HEADERS)
        queue = await rig.queue("red")
        await rig.namespace.bind(Binding(source="t", destination="red", key=b"", arguments={"color": "red"}))
        topic = await new_topic(rig)
        for color in (b"red", b"blue"):
            headers = encode_section([(b"color", color)])
            await delay(rig, topic, color, clock.now_ms() + 1000, headers=headers)
        clock.advance(1)
        await fire(rig)
        await settle_turns()
        assert await values_of(queue) == [b"red"]


async def test_what_is_refused_when_it_is_due_does_not_hold_up_others(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        [gone] = await rig.broker.create_topics([NewTopic(name="gone", partitions=1)])
        assert isinstance(gone, Topic)
        due = clock.now_ms() + 1000
        await delay(rig, gone, b"lost", due)
        await delay(rig, topic, b"x" * 2000, due, key=b"k")
        await delay(rig, topic, b"without a key", due)
        await delay(rig, topic, b"good", due, key=b"k")
        await rig.broker.delete_topics([gone])
        await rig.broker.configure_topic(
            "t", lambda topic: {"max.message.bytes": "1000", "cleanup.policy": "compact"}
        )
        clock.advance(1)
        with caplog.at_level(logging.WARNING):
            await fire(rig)
        assert await values(rig, rig.broker.topic("t")) == [(b"k", b"good")]
        assert "topic gone, partition 0: a delayed record is refused: there is no topic 'gone'" in caplog.text
        assert "topic t, partition 0: a delayed record is refused: a batch of 2095 bytes" in caplog.text
        assert rig.broker.scheduled_messages == 0


async def test_a_topic_with_fewer_partitions_than_before(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig, partitions=3)
        await delay(rig, topic, b"v", clock.now_ms() + 1000, partition=2)
        await rig.broker.delete_topics([topic])
        topic = await new_topic(rig, partitions=2)
        clock.advance(1)
        await fire(rig)
        assert await values(rig, topic, 0) == [(None, b"v")]


async def test_what_cannot_be_delayed(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig, max_message_bytes="1000", cleanup_policy="compact")
        with pytest.raises(UnknownPartition):
            await delay(rig, topic, b"v", 0, partition=3, key=b"k")
        with pytest.raises(RecordTooLarge):
            await delay(rig, topic, b"x" * 1000, 0, key=b"k")
        with pytest.raises(MissingKeys):
            await delay(rig, topic, b"v", 0)
        with pytest.raises(InvalidTimestamp):
            await delay(rig, topic, b"v", -1, key=b"k")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
