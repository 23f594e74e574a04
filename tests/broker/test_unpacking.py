"""Batches that are opened on a thread: in order, refused where they must be, and nothing overtakes them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidRecord, PosthouseError, RecordTooLarge
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    clock = SystemClock()
    broker = Broker(MemoryStorage(clock), Settings(memory=True), clock)
    await broker.start()
    await broker.coordinate()
    yield broker
    await broker.stop()


async def topic(broker: Broker, **configs: str) -> Topic:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    await broker.create_topics([NewTopic(name="t", partitions=1, overrides=settings)])
    return broker.topic("t")


def batch(topic: Topic, *values: bytes, codec: Codec = Codec.NONE, key: bytes | None = b"k") -> Produced:
    builder = BatchBuilder(codec)
    for value in values:
        builder.add(key, value, timestamp=1_700_000_000_000)
    return Produced(topic, 0, memoryview(builder.build()))


async def append(broker: Broker, produced: Produced) -> Appended | PosthouseError:
    if broker.must_unpack([produced]):
        [result] = await broker.append_unpacked([produced], None)
    else:
        [result] = await broker.append([produced]).wait()
    return result


async def test_plain_topics_are_not_unpacked(broker: Broker) -> None:
    plain = await topic(broker)
    assert not broker.must_unpack([batch(plain, bytes(100_000), codec=Codec.ZSTD)])


async def test_a_batch_is_stored_in_the_topics_codec(broker: Broker) -> None:
    stored = await topic(broker, compression_type="lz4")
    produced = batch(stored, bytes(10_000), codec=Codec.ZSTD)
    assert broker.must_unpack([produced])
    assert isinstance(await append(broker, produced), Appended)
    found = await broker.read(stored, 0, 0, 1_000_000)
    assert [header.codec for _, header in iter_headers(found.data)] == [Codec.LZ4]


async def test_what_is_wrong_with_a_batch_is_told(broker: Broker) -> None:
    compacted = await topic(broker, cleanup_policy="compact")
    bomb = batch(compacted, bytes(17 * 1024 * 1024), codec=Codec.ZSTD)
    assert isinstance(await append(broker, bomb), RecordTooLarge)
    keyless = batch(compacted, bytes(1000), codec=Codec.GZIP, key=None)
    assert isinstance(await append(broker, keyless), InvalidRecord)
    assert isinstance(await append(broker, batch(compacted, bytes(1000))), Appended)


async def test_quick_batches_do_not_overtake_slow_ones(broker: Broker) -> None:
    compacted = await topic(broker, cleanup_policy="compact")
    slow = [batch(compacted, bytes(5 * 1024 * 1024), codec=Codec.GZIP) for _ in range(3)]
    quick = batch(compacted, b"quick")
    assert not broker.must_unpack([quick])
    appending = [asyncio.ensure_future(append(broker, each)) for each in slow]
    await asyncio.sleep(0)
    assert broker.must_unpack([quick])
    appending.append(asyncio.ensure_future(append(broker, quick)))
    results = await asyncio.gather(*appending)
    assert [result.base_offset for result in results if isinstance(result, Appended)] == [0, 1, 2, 3]
    assert not broker.must_unpack([quick])
