"""The one way into the log: what is refused, what counts, and who hears of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import CorruptBatch, OutOfOrderSequence, StorageClosed
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Settings
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.rig import Taker, running


class Bench:
    def __init__(self, broker: Broker, storage: LazyStorage, topic: Topic) -> None:
        self.broker = broker
        self.storage = storage
        self.topic = topic

    def produced(self, partition: int, *, producer_id: int = -1, sequence: int = -1) -> Produced:
        epoch = 0 if producer_id >= 0 else -1
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        builder.add(None, b"value", timestamp=self.broker.now_ms())
        return Produced(self.topic, partition, memoryview(builder.build()))

    def ends(self) -> list[int]:
        return [self.broker.bounds(self.topic, index).end for index in range(self.topic.partitions)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = ManualClock()
    storage = LazyStorage(clock)
    broker = Broker(storage, Settings(memory=True), clock)
    await broker.start()
    await broker.coordinate()
    [topic] = await broker.create_topics([NewTopic(name="t", partitions=3)])
    assert isinstance(topic, Topic)
    yield Bench(broker, storage, topic)
    await broker.stop()


async def test_a_refused_batch_leaves_the_others_in_one_commit(bench: Bench) -> None:
    await bench.broker.append([bench.produced(1, producer_id=5, sequence=0)]).wait()
    commits = bench.storage.commits
    odd = bench.produced(1, producer_id=5, sequence=7)
    appending = bench.broker.append([bench.produced(0), odd, bench.produced(2)])
    assert appending.future is not None
    outcomes = await appending.future
    for _ in range(2):  # asking has no effect
        first, refused, last = appending.results(outcomes)
        assert isinstance(refused, OutOfOrderSequence)
        assert first == last == Appended(0, 0, -1)
    assert bench.ends() == [1, 1, 1]
    assert bench.storage.commits == commits + 1


async def test_what_is_wrong_before_the_commit_keeps_its_place_among_the_results(bench: Bench) -> None:
    broken = bench.produced(1)
    broken.batch[-1] ^= 1
    results = await bench.broker.append([broken, bench.produced(2)]).wait()
    assert isinstance(results[0], CorruptBatch)
    assert results[1] == Appended(0, 0, -1)


async def test_a_storage_that_takes_nothing_refuses_every_batch(bench: Bench) -> None:
    await bench.storage.close()
    appending = bench.broker.append([bench.produced(0), bench.produced(1)])
    assert appending.future is None
    assert [type(result) for result in appending.results([])] == [StorageClosed, StorageClosed]


async def test_routed_batches_are_all_or_nothing(bench: Bench) -> None:
    broken = bench.produced(1)
    broken.batch[-1] ^= 1
    commits = bench.storage.commits
    put = Put(Space.USERS, b"key", b"value")
    with pytest.raises(CorruptBatch):
        bench.broker._log_writer.append([bench.produced(0), broken], routed=[put])
    assert bench.storage.commits == commits
    several = [bench.produced(0), bench.produced(0)]
    assert len(await bench.broker._log_writer.append_routed(several, [put])) == 3
    assert bench.ends() == [2, 0, 0]


async def test_long_polls_wake_though_no_caller_asks_for_results(bench: Bench) -> None:
    waiting = asyncio.ensure_future(
        bench.broker.wait_for_records([(bench.topic.partition(0), 0)], missing=1, seconds=60)
    )
    await asyncio.sleep(0)
    bench.broker.append([bench.produced(0)])
    await asyncio.wait_for(waiting, 10)


async def test_queues_hear_of_records_though_their_producer_has_gone() -> None:
    storage = LazyStorage(ManualClock(), turns=5)
    async with running(storage=storage) as rig:
        await rig.broker.create_topics([NewTopic(name="q", partitions=1)])
        queue = await rig.queue("q")
        taker = Taker()
        queue.subscribe(taker)
        builder = BatchBuilder()
        builder.add(None, b"value", timestamp=rig.broker.now_ms())
        batch = Produced(rig.broker.topic("q"), 0, memoryview(builder.build()))
        producing = asyncio.ensure_future(rig.broker.append([batch]).wait())
        await asyncio.sleep(0)
        producing.cancel()
        await taker.has(1)
        assert taker.values == [b"value"]
