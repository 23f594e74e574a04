"""Readers of a stream: each has its own offset and credit, and takes nothing from the others."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.queues import log_queue, stream_window
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.clock import ManualClock
from posthouse.model.errors import DefinitionMismatch, OffsetOutOfRange, StorageFull
from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Slice
from posthouse.storage.memory.engine import MemoryStorage
from tests.broker.queues.lazy_rig import lazy
from tests.broker.queues.rig import Rig, running, settle_turns, values_of
from tests.broker.queues.stream_readers import Reader
from tests.broker.transactions.producers import Bench, Client
from tests.storage.batches import make_batch


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


async def publish(rig: Rig, values: Sequence[bytes], key: bytes = b"s", exchange: str = "") -> None:
    """One by one."""
    for value in values:
        await rig.publish(value, key=key, exchange=exchange)


async def test_every_reader_gets_everything() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await publish(rig, numbers(0, 5))
        readers = [Reader(stream) for _ in range(3)]
        await publish(rig, numbers(5, 10))
        for reader in readers:
            await reader.has(10)
            assert reader.values == numbers(0, 10)
            assert reader.offsets == list(range(10))
            assert not any(message.redelivered for message in reader.taken)
        assert (stream.message_count, stream.consumer_count) == (10, 3)
        readers[0].leave()
        assert stream.consumer_count == 2


async def test_credit_is_what_a_reader_gets() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await publish(rig, numbers(0, 10))
        slow, fast = Reader(stream, credit=2), Reader(stream, credit=5)
        await fast.has(5)
        await settle_turns()
        assert (slow.values, fast.values) == (numbers(0, 2), numbers(0, 5))
        slow.ack(3)
        await slow.has(5)
        await settle_turns()
        assert (slow.values, fast.values) == (numbers(0, 5), numbers(0, 5))


async def test_settling_in_any_way_leaves_the_messages_where_they_are() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await publish(rig, numbers(0, 4))
        reader = Reader(stream, credit=4)
        await reader.has(4)
        assert all(message.queue is reader.reading for message in reader.taken)
        reader.reading.ack(reader.taken[:1])
        reader.reading.release(reader.taken[1:2])
        reader.reading.reject(reader.taken[2:3])
        wave = TransactionWave(rig.broker.publishing)
        reader.reading.ack(reader.taken[3:], wave)
        await wave.commit()
        await settle_turns()
        assert (reader.values, stream.message_count) == (numbers(0, 4), 4)
        again = Reader(stream)
        await again.has(4)
        assert again.values == numbers(0, 4)


@pytest.mark.parametrize("on_disk", [False, True])
async def test_where_readers_begin(tmp_path: Path, on_disk: bool) -> None:
    clock = ManualClock()
    async with running(tmp_path if on_disk else None, clock) as rig:
        stream = await rig.stream()
        assert (stream.first, stream.next, await stream.last(), await stream.ago(1)) == (0, 0, 0, 0)
        times = []
        for first in range(0, 12, 3):
            times.append(clock.now_ms())
            await rig.publish(*numbers(first, first + 3), key=b"s")
            clock.advance(60)
        assert (stream.first, stream.next, await stream.last()) == (0, 12, 9)
        assert [await stream.at_time(time) for time in times] == [0, 3, 6, 9]
        assert [await stream.at_time(time - 1) for time in times] == [0, 3, 6, 9]
        assert [await stream.at_time(time + 1) for time in times] == [3, 6, 9, 12]
        assert await stream.ago(120_000) == 6
        assert [Reader(stream, start).reading._reader.position for start in (-5, 0, 7, 12, 40)] == [
            *(0, 0, 7, 12, 40)
        ]


async def test_a_reader_beyond_the_end_waits_for_its_offset() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await publish(rig, numbers(0, 3))
        reader = Reader(stream, 5)
        await publish(rig, numbers(3, 8))
        await reader.has(3)
        assert reader.offsets == [5, 6, 7]


async def test_exchanges_kafka_and_transactions_feed_it_in_the_order_of_commits() -> None:
    bench = Bench()
    await bench.start("orders")
    try:
        rig = Rig(bench.broker)
        stream = await rig.stream("orders")
        queue = await rig.queue("work", message_ttl_ms=60_000)
        await rig.exchange("x")
        await rig.bind("x", "orders")
        await rig.bind("x", "work")
        reader = Reader(stream)
        await publish(rig, [b"by exchange"], exchange="x")
        await publish(rig, [b"sent"], key=b"orders")
        for partition in (1, 0):
            produced = Produced(
                bench.topic, partition, memoryview(make_batch(b"a%d" % partition, b"b%d" % partition))
            )
            await rig.broker.append([produced]).wait()
        producer = Client(bench, epoch_per_transaction=True)
        await producer.init()
        await producer.write(b"later")
        await publish(rig, [b"last"], key=b"orders")
        await producer.end(commit=True)
        await reader.has(8)
        values = [b"by exchange", b"sent", b"a1", b"b1", b"a0", b"b0", b"last", b"later"]
        assert (reader.values, reader.offsets) == (values, list(range(8)))
        assert {message.topic for message in reader.taken} == {"x", "orders"}
        assert await values_of(queue) == [b"by exchange"]
        await rig.publish(b"expires", key=b"orders", expires_in_ms=1)
        await reader.has(9)
    finally:
        await bench.close()


async def test_offsets_and_times_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as rig:
        await rig.stream()
        await publish(rig, numbers(0, 5))
        clock.advance(10)
        await publish(rig, numbers(5, 8))
    async with running(tmp_path, clock) as rig:
        found = rig.namespace.queues["s"]
        stream = await rig.stream()
        assert found is stream
        assert stream.message_count == 8
        assert await stream.ago(5_000) == 5
        reader = Reader(stream, 3)
        await publish(rig, numbers(8, 10))
        await reader.has(7)
        assert (reader.values, reader.offsets) == (numbers(3, 10), list(range(3, 10)))


async def test_a_backlog_is_read_a_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_window, "WINDOW", 10)
    monkeypatch.setattr(stream_window, "WINDOW_BYTES", 50)
    async with running() as rig:
        stream = await rig.stream()
        await rig.publish(*numbers(100, 300), key=b"s")
        reader = Reader(stream, credit=1)
        reading = reader.reading
        for count in range(1, 201):
            await reader.has(count)
            assert len(reading._window) <= 10
            assert reading._window._size == 3 * len(reading._window)
            reader.ack(1)
        assert reader.values == numbers(100, 300)
        assert all(message.value is None for message in reader.taken), "only the client has the bodies"


async def test_a_reader_without_credit_costs_no_memory_for_long() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await rig.publish(*numbers(0, 100), key=b"s")
        reader = Reader(stream, credit=3)
        await reader.has(3)
        await settle_turns()
        assert len(reader.reading._window) == 97
        await rig.retention.reclaim()
        assert len(reader.reading._window) == 97, "it may just be busy"
        await rig.retention.reclaim()
        assert not reader.reading._window
        reader.ack(50)
        await reader.has(53)
        assert (reader.values, reader.offsets) == (numbers(0, 53), list(range(53)))


async def test_very_many_readers_read_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_window, "MEMORY", 100_000)
    async with lazy() as (rig, storage):
        stream = await rig.stream()
        await rig.publish(*numbers(0, 400), key=b"s")
        memory = rig.broker.namespaces.resources.stream_memory
        storage.read_gate = asyncio.Event()
        readers = [Reader(stream, number, credit=2) for number in range(100)]
        await settle_turns()
        storage.read_gate.set()  # all of them read at once, and nobody has taken memory yet
        for count in range(2, 8, 2):
            for reader in readers:
                await reader.has(count)
                reader.ack(2)
            await settle_turns()
            # One window more than allowed, and what those without credit gave back.
            assert memory.held <= 100_000 + 500 * 405
        for number, reader in enumerate(readers):
            await reader.has(8)
            assert reader.offsets == list(range(number, number + 8))
        for reader in readers:
            reader.leave()
        assert memory.held == 0


async def test_deleting_a_stream_cancels_its_readers() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await publish(rig, numbers(0, 3))
        readers = [Reader(stream, credit=1) for _ in range(2)]
        await readers[0].has(1)
        assert await rig.namespace.delete_queue("s", None) == 3
        assert all(reader.gone for reader in readers)
        readers[0].ack(2)
        again = await rig.stream()
        assert again.message_count == 0
        await publish(rig, [b"new"])
        reader = Reader(again)
        await reader.has(1)
        assert (readers[0].values, reader.offsets) == ([b"0"], [0])


async def test_a_stream_is_no_other_queue() -> None:
    async with running() as rig:
        await rig.stream(max_age_ms=5)
        with pytest.raises(DefinitionMismatch):
            await rig.queue("s")
        with pytest.raises(DefinitionMismatch):
            await rig.stream(max_age_ms=6)
        await rig.stream(max_age_ms=5)


async def test_records_that_are_gone_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as rig:
        stream = await rig.stream()
        await rig.exchange("x")
        await rig.bind("x", "s")
        await publish(rig, numbers(0, 3))
        await publish(rig, numbers(3, 6), exchange="x")
        await publish(rig, numbers(6, 9))
        await rig.broker.delete_records(rig.broker.topic("x"), 0, 2)
        for _ in range(2):
            reader = Reader(stream)
            await reader.has(7)
            assert reader.offsets == [0, 1, 2, 5, 6, 7, 8]
        assert stream.message_count == 7
        assert "messages 3 to 4 are lost" in caplog.text


class Stumbling(MemoryStorage):
    """Fails the next reads."""

    failures = 0

    async def read(self, partition: PartitionId, offset: int, max_bytes: int, **options: bool) -> Slice:
        if self.failures:
            self.failures -= 1
            raise StorageFull("of descriptors, say")
        return await super().read(partition, offset, max_bytes, **options)


async def test_a_read_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "RETRY_SECONDS", 0.001)
    clock = ManualClock()
    storage = Stumbling(clock)
    async with running(storage=storage, clock=clock) as rig:
        stream = await rig.stream()
        await publish(rig, numbers(0, 5))
        storage.failures = 3
        reader = Reader(stream)
        await reader.has(5)
        assert (reader.values, storage.failures) == (numbers(0, 5), 0)


async def test_offer_returns_when_what_is_there_was_delivered() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await rig.publish(*numbers(0, 20), key=b"s")
        reader = Reader(stream, credit=15)
        async with asyncio.timeout(30):
            await reader.reading.offer()
        assert reader.values == numbers(0, 15)
        with pytest.raises(OffsetOutOfRange):
            await rig.broker.delete_records(rig.broker.topic("s"), 0, 21)
