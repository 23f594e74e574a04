"""Storage cannot be read for a moment, after the references of messages were read: none is left out."""

import pytest

from posthouse.broker.queues import log_queue
from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Slice
from posthouse.storage.memory.engine import MemoryStorage
from tests.broker.queues.rig import Taker, running
from tests.broker.queues.stream_readers import Reader


class WithoutRecords(MemoryStorage):
    """Fails the next reads of one partition."""

    partition: PartitionId | None = None
    failures = 0

    async def read(self, partition: PartitionId, offset: int, max_bytes: int, **options: bool) -> Slice:
        if self.failures and partition == self.partition:
            self.failures -= 1
            raise Unavailable("the database is away")
        return await super().read(partition, offset, max_bytes, **options)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> WithoutRecords:
    monkeypatch.setattr(log_queue, "RETRY_SECONDS", 0.001)
    return WithoutRecords(ManualClock())


async def test_a_queue_loads_the_messages_again(storage: WithoutRecords) -> None:
    async with running(storage=storage, clock=ManualClock()) as rig:
        queue = await rig.queue()
        await rig.publish(b"0")
        await rig.publish(b"1", b"2")
        storage.partition, storage.failures = rig.partition("q"), 2
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(3)
        assert (taker.values, storage.failures) == ([b"0", b"1", b"2"], 0)


async def test_a_purge_while_they_are_loaded_counts(storage: WithoutRecords) -> None:
    async with running(storage=storage, clock=ManualClock()) as rig:
        queue = await rig.queue()
        await rig.publish(b"0", b"1")
        storage.partition, storage.failures = rig.partition("q"), 1
        taker = Taker()
        queue.subscribe(taker)
        assert queue.purge() == 2
        await rig.publish(b"2")
        await taker.has(1)
        assert (taker.values, queue.message_count) == ([b"2"], 0)


async def test_a_stream_loads_the_messages_again(storage: WithoutRecords) -> None:
    async with running(storage=storage, clock=ManualClock()) as rig:
        stream = await rig.stream()
        await rig.publish(b"0", b"1", key=b"s")
        storage.partition, storage.failures = rig.partition("s"), 2
        reader = Reader(stream)
        await reader.has(2)
        assert (reader.values, reader.offsets) == ([b"0", b"1"], [0, 1])
