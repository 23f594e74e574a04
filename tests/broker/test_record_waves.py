"""Records of many clients in one batch: order, offsets, and what one of them does to the others."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import MissingKeys, PosthouseError, RecordTooLarge, Unavailable, UnknownPartition
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.raw import NO_HEADERS, RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.storage.operations import Operation
from tests.broker.queues.rig import Rig, running, settle_turns, values_of

NOW = 1_700_000_000_000


async def new_topic(rig: Rig, partitions: int = 1, **overrides: str) -> Topic:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    [topic] = await rig.broker.create_topics([NewTopic(name="t", partitions=partitions, overrides=settings)])
    assert isinstance(topic, Topic)
    return topic


def send(
    broker: Broker, topic: Topic, value: bytes, partition: int = 0, key: bytes | None = None
) -> "asyncio.Future[int | PosthouseError]":
    answer: asyncio.Future[int | PosthouseError] = asyncio.get_running_loop().create_future()
    broker.record_waves.add(topic, partition, key, value, NO_HEADERS, NOW, answer.set_result)
    return answer


async def batches(rig: Rig, topic: Topic, partition: int = 0) -> list[list[RawRecord]]:
    """The records of each batch of a partition."""
    bounds = rig.broker.bounds(topic, partition)
    if bounds.start == bounds.end:
        return []
    view = memoryview((await rig.broker.read(topic, partition, 0, 2**30)).data)
    return [
        list(iter_raw(body_of(view[at : at + header.length], header), header, 0, 2**62))
        for at, header in iter_headers(view)
    ]


async def test_records_of_one_turn_share_a_batch_of_their_partition() -> None:
    async with running() as rig:
        topic = await new_topic(rig, partitions=2)
        answers = [send(rig.broker, topic, b"%d" % number, number % 2) for number in range(6)]
        assert await asyncio.gather(*answers) == [0, 0, 1, 1, 2, 2]
        later = send(rig.broker, topic, b"later")
        assert await later == 3
        assert [[record.value for record in batch] for batch in await batches(rig, topic)] == [
            [b"0", b"2", b"4"],
            [b"later"],
        ]
        [batch] = await batches(rig, topic, 1)
        assert [(record.offset, record.value, record.timestamp) for record in batch] == [
            (0, b"1", NOW),
            (1, b"3", NOW),
            (2, b"5", NOW),
        ]


async def test_keys_are_kept_and_none_is_not_an_empty_one() -> None:
    async with running() as rig:
        topic = await new_topic(rig)
        await asyncio.gather(*(send(rig.broker, topic, b"v", key=key) for key in (None, b"", b"k" * 200)))
        [batch] = await batches(rig, topic)
        assert [record.key for record in batch] == [None, b"", b"k" * 200]


async def test_batches_stay_below_the_limit_of_the_topic_and_keep_the_order() -> None:
    async with running() as rig:
        topic = await new_topic(rig, max_message_bytes="1000")
        values = [bytes([65 + number]) * 300 for number in range(10)]
        assert await asyncio.gather(*(send(rig.broker, topic, value) for value in values)) == list(range(10))
        found = await batches(rig, topic)
        assert [record.value for batch in found for record in batch] == values
        assert max(map(len, found)) == 2


async def test_a_clock_that_jumps_back_refuses_nothing() -> None:
    """Timestamps of the broker itself are not judged by the topic's limits."""
    async with running() as rig:
        topic = await new_topic(rig, message_timestamp_after_max_ms="3600000")
        answer: asyncio.Future[int | PosthouseError] = asyncio.get_running_loop().create_future()
        ahead = rig.broker.now_ms() + 30 * 24 * 3_600_000
        rig.broker.record_waves.add(topic, 0, None, b"x", NO_HEADERS, ahead, answer.set_result)
        assert await answer == 0
        assert [[record.timestamp for record in batch] for batch in await batches(rig, topic)] == [[ahead]]


async def test_a_large_wave_is_written_at_once() -> None:
    async with running() as rig:
        topic = await new_topic(rig)
        answers = [send(rig.broker, topic, b"x" * 400_000) for _ in range(4)]
        assert await asyncio.gather(*answers) == [0, 1, 2, 3]
        assert [len(batch) for batch in await batches(rig, topic)] == [2, 2]


async def test_a_bad_record_is_refused_alone() -> None:
    async with running() as rig:
        topic = await new_topic(rig, max_message_bytes="1000", cleanup_policy="compact")
        good = send(rig.broker, topic, b"good", key=b"k")
        with pytest.raises(RecordTooLarge, match="limit of 1000 of topic 't'"):
            send(rig.broker, topic, b"x" * 1000, key=b"k")
        with pytest.raises(MissingKeys):
            send(rig.broker, topic, b"without a key")
        with pytest.raises(UnknownPartition):
            send(rig.broker, topic, b"elsewhere", partition=1)
        with pytest.raises(RecordTooLarge):  # with the header of its batch
            send(rig.broker, topic, b"x" * 950, key=b"k")
        largest = send(rig.broker, topic, b"x" * (1000 - 61 - 32 - 2), key=b"k")
        assert await good == 0
        assert await largest == 1


async def test_records_of_a_deleted_topic_are_refused() -> None:
    async with running() as rig:
        topic = await new_topic(rig)
        await rig.broker.delete_topics([topic])
        assert isinstance(await send(rig.broker, topic, b"late"), PosthouseError)


async def test_storage_that_fails_is_told_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as rig:
        topic = await new_topic(rig, partitions=2)

        def fail(operations: Sequence[Operation]) -> "asyncio.Future[object]":
            failed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            failed.set_exception(Unavailable("the disk is gone"))
            return failed

        with monkeypatch.context() as patch:
            patch.setattr(rig.storage, "commit", fail)
            answers = await asyncio.gather(*(send(rig.broker, topic, b"v", number) for number in range(2)))
        assert [str(answer) for answer in answers] == ["the disk is gone"] * 2
        assert await send(rig.broker, topic, b"again") == 0


async def test_queues_that_the_topic_feeds_get_the_records() -> None:
    async with running() as rig:
        queue = await rig.queue("t")
        topic = await new_topic(rig)
        await asyncio.gather(*(send(rig.broker, topic, b"%d" % number) for number in range(3)))
        await settle_turns()
        assert await values_of(queue) == [b"0", b"1", b"2"]
