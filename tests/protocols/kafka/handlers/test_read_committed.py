"""What readers of committed records are given, and when."""

import asyncio

import pytest

from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from posthouse.records.batch import Readable, iter_headers
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire, batch

COMMITTED = {"isolation_level": 1}


@pytest.fixture
async def topic(wire: Wire) -> bytes:
    return await wire.create_topic("t", 2)


@pytest.fixture(params=[False, True], ids=["older", "newer"])
async def producer(request: pytest.FixtureRequest, wire: Wire, topic: bytes) -> TransactionalWire:
    made = TransactionalWire(wire, newer=request.param)
    await made.init()
    return made


def offsets(records: Readable | None) -> list[int]:
    return [header.base_offset for _, header in iter_headers(records or b"")]


async def test_nothing_is_read_from_the_first_open_transaction_on(
    wire: Wire, topic: bytes, producer: TransactionalWire
) -> None:
    await wire.produce(topic, batch(b"before"))
    await producer.write(b"open")
    await wire.produce(topic, batch(b"after"))
    answer = await wire.fetch(topic, **COMMITTED)
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 1)
    assert offsets(answer.records) == [0]
    assert offsets((await wire.fetch(topic, 1, **COMMITTED)).records) == []
    everything = await wire.fetch(topic)
    assert offsets(everything.records) == [0, 1, 2]
    assert everything.aborted_transactions is None
    await producer.end()
    answer = await wire.fetch(topic, **COMMITTED)
    assert (answer.last_stable_offset, offsets(answer.records)) == (4, [0, 1, 2, 3])
    assert answer.aborted_transactions == []


async def test_aborted_transactions_are_named(wire: Wire, topic: bytes, producer: TransactionalWire) -> None:
    await producer.write(b"no")
    await producer.end(commit=False)
    await producer.write(b"yes")
    await producer.end()
    answer = await wire.fetch(topic, **COMMITTED)
    [aborted] = answer.aborted_transactions or []
    assert (aborted.producer_id, aborted.first_offset) == (producer.producer_id, 0)


async def test_only_those_that_are_in_the_answer(
    wire: Wire, topic: bytes, producer: TransactionalWire
) -> None:
    """One whose marker lies before would make the client drop what its producer wrote later."""
    for number in range(3):
        await producer.write(b"no")
        await producer.end(commit=False)
        await producer.write(b"yes %d" % number)
        await producer.end()

    async def firsts(offset: int, size: int = 2**20) -> list[int]:
        answer = await wire.fetch(topic, offset, partition_max_bytes=size, **COMMITTED)
        return [each.first_offset for each in answer.aborted_transactions or []]

    assert await firsts(0) == [0, 4, 8]
    assert await firsts(1) == [0, 4, 8], "the marker itself"
    assert await firsts(2) == [4, 8]
    assert await firsts(2, size=1) == []
    assert await firsts(4, size=1) == [4]


async def test_the_latest_offset(wire: Wire, topic: bytes, producer: TransactionalWire) -> None:
    await wire.produce(topic, batch(b"before"))
    await producer.write(b"open")

    async def latest(isolation: int, timestamp: int = -1) -> int:
        place = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            isolation_level=isolation, topics=[ListOffsetsTopic(name="t", partitions=[place])]
        )
        answer = await wire.ask(request, ListOffsetsResponse)
        return answer.topics[0].partitions[0].offset

    assert (await latest(0), await latest(1)) == (2, 1)
    await wire.produce(topic, batch(b"later", timestamp=1_700_000_500_000))
    assert await latest(0, 1_700_000_500_000) == 2
    assert await latest(1, 1_700_000_500_000) == -1, "nobody may read it yet"
    await producer.end()
    assert (await latest(0), await latest(1)) == (4, 4)


async def test_a_marker_wakes_those_who_wait(
    broker: AsyncBroker, wire: Wire, topic: bytes, producer: TransactionalWire
) -> None:
    await producer.write(b"open")
    async with Wire(broker.kafka) as reader:
        waiting = asyncio.create_task(reader.fetch(topic, max_wait_ms=30_000, min_bytes=1, **COMMITTED))
        await wire.produce(topic, batch(b"after"))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done, "the batch that came is held back"
        await producer.end()
        answer = await asyncio.wait_for(waiting, 30)
        assert offsets(answer.records) == [0, 1, 2]


async def test_one_of_two_transactions_ends(
    broker: AsyncBroker, wire: Wire, topic: bytes, producer: TransactionalWire
) -> None:
    other = TransactionalWire(wire, newer=producer.newer)
    await other.init()
    await producer.write(b"first")
    await other.write(b"second")
    async with Wire(broker.kafka) as reader:
        waiting = asyncio.create_task(reader.fetch(topic, max_wait_ms=30_000, min_bytes=1, **COMMITTED))
        await wire.produce(topic, batch(b"third"))
        await producer.end()
        answer = await asyncio.wait_for(waiting, 30)
        assert (offsets(answer.records), answer.last_stable_offset) == ([0], 1)
        await other.end(commit=False)


async def test_waiting_for_many_bytes(broker: AsyncBroker, wire: Wire, topic: bytes) -> None:
    async with Wire(broker.kafka) as reader:
        waiting = asyncio.create_task(reader.fetch(topic, max_wait_ms=30_000, min_bytes=300, **COMMITTED))
        for _ in range(4):
            assert not waiting.done()
            await wire.produce(topic, batch(b"x" * 50))
        answer = await asyncio.wait_for(waiting, 30)
        assert len(answer.records or b"") >= 300


async def test_deleting_a_topic_lets_readers_go(broker: AsyncBroker, wire: Wire, topic: bytes) -> None:
    async with Wire(broker.kafka) as reader:
        waiting = asyncio.create_task(reader.fetch(topic, max_wait_ms=30_000, min_bytes=1, **COMMITTED))
        await wire.fetch(topic, max_wait_ms=0)
        await broker.app.broker.delete_topics([broker.app.broker.topic("t")])
        answer = await asyncio.wait_for(waiting, 30)
        assert answer.error_code == 100
