"""Records of streams in queues: late, in disorder, damaged, or after a crash."""

from struct import Struct

import pytest
from crc32c import crc32c

from posthouse.broker.appending import Produced
from posthouse.broker.queues import settlement
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.records.batch import ATTRIBUTES_AT, CRC_AT
from posthouse.records.compression import Codec
from tests.broker.queues.lazy_rig import get, lazy, until
from tests.broker.queues.rig import Taker, running, settle_turns, values_of
from tests.broker.queues.test_queue_interop import batch

HEADER_COUNT = Struct(">i")


async def test_records_are_ready_even_if_their_producer_went_away() -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        appending = rig.broker.append([Produced(rig.broker.topic("orders"), 0, batch((b"k", b"v", [])))])
        assert appending.future is not None
        await appending.future  # nobody asks for the results
        await settle_turns()
        assert queue.message_count == 1
        assert (await get(queue)).value == b"v"


async def test_positions_are_counted_in_the_order_of_commits() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        appending = rig.broker.append([Produced(rig.broker.topic("orders"), 0, batch((b"k", b"stays", [])))])
        await rig.publish(b"goes", key=b"orders", expires_in_ms=20)
        await appending.wait()
        clock.advance(1)
        await until(lambda: queue.message_count == 1)
        assert (await get(queue)).value == b"stays"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_batch_that_has_fewer_records_than_it_says(codec: Codec) -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        topic = rig.broker.topic("orders")
        data = bytearray(batch((b"k", b"v", []), codec=codec))
        HEADER_COUNT.pack_into(data, 57, 2**31 - 1)
        HEADER_COUNT.pack_into(data, 23, 2**31 - 2)
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
        await rig.broker.append([Produced(topic, 0, memoryview(data))]).wait()
        assert queue.message_count == 0, "it is in no queue"
        many = batch(*[(b"", b"", [])] * 1000, codec=codec)
        await rig.broker.append([Produced(topic, 0, many)]).wait()
        assert queue.message_count == 1000


async def test_records_that_nobody_can_read_are_lost_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        topic = rig.broker.topic("orders")
        data = bytearray(batch(*[(b"k", b"value", [])] * 500))
        data[61 + 3000 :] = b"\xff" * len(data[61 + 3000 :])
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
        await rig.broker.append([Produced(topic, 0, memoryview(data))]).wait()
        await rig.publish(b"after", key=b"orders")
        found = await values_of(queue)
        assert 100 < len(found) < 300 and found[-1] == b"after"
        assert queue.message_count == 0
        assert len(caplog.messages) < 5


async def test_a_message_that_cannot_be_read_again_is_lost_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settlement, "LEASED_BYTES", 0)
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"one", b"two")
        taker = Taker(credit=2)
        queue.subscribe(taker)
        await taker.has(2)
        [stored] = rig.storage._logs[rig.partition("q")].batches  # type: ignore[attr-defined]
        damaged = bytearray(stored.data)
        damaged[61:] = b"\xff" * len(damaged[61:])
        stored.data = bytes(damaged)
        queue.release(taker.taken)
        taker.raise_credit(queue, 10)
        await rig.publish(b"three")
        await taker.has(3)
        assert taker.values[2] == b"three"


async def test_after_a_crash_what_was_never_there_is_new() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"old", b"older")
        await get(queue)
        after = storage.left_behind()
    async with running(storage=after) as rig:
        queue = rig.found("q")
        await rig.publish(b"new")
        taken = [await get(queue) for _ in range(3)]
        assert [message.redelivered for message in taken] == [True, True, False]
