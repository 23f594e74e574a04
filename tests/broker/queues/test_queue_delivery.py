"""Handing messages out, settling them, and getting them back."""

import asyncio
from pathlib import Path

import pytest

from posthouse.broker.routing.definitions import ExchangeKind
from posthouse.model.errors import InUse
from tests.broker.queues.rig import SESSION, Taker, running, settle_turns


async def test_messages_come_in_the_order_of_publishing() -> None:
    async with running() as rig:
        queue = await rig.queue()
        taker = Taker()
        queue.subscribe(taker)
        values = [str(number).encode() for number in range(3000)]
        for start in range(0, 3000, 100):
            await rig.publish(*values[start : start + 100])
        await taker.has(3000)
        assert taker.values == values
        assert queue.message_count == 0
        assert queue.leased_count == 3000
        queue.ack(taker.taken)
        assert queue.leased_count == 0


async def test_no_more_than_the_credit() -> None:
    async with running() as rig:
        queue = await rig.queue()
        taker = Taker(credit=2)
        queue.subscribe(taker)
        await rig.publish(b"a", b"b", b"c")
        await taker.has(2)
        await settle_turns()
        assert taker.values == [b"a", b"b"]
        assert queue.message_count == 1
        taker.raise_credit(queue, 1)
        await taker.has(3)


async def test_several_consumers_take_turns() -> None:
    async with running() as rig:
        queue = await rig.queue()
        takers = [Taker(), Taker(), Taker()]
        for taker in takers:
            queue.subscribe(taker)
        await rig.publish(*[b"x"] * 30)
        await settle_turns()
        assert [len(taker.taken) for taker in takers] == [10, 10, 10]


async def test_released_messages_come_back_in_their_order() -> None:
    async with running() as rig:
        queue = await rig.queue()
        taker = Taker(credit=4)
        queue.subscribe(taker)
        await rig.publish(b"0", b"1", b"2", b"3", b"4")
        await taker.has(4)
        queue.ack(taker.taken[1:2])
        queue.release([taker.taken[3], taker.taken[0], taker.taken[2]])
        taker.raise_credit(queue, 10)
        await taker.has(8)
        assert taker.values[4:] == [b"0", b"2", b"3", b"4"]
        assert [message.redelivered for message in taker.taken[4:]] == [True, True, True, False]
        assert [message.deliveries for message in taker.taken[4:]] == [1, 1, 1, 0]


async def test_one_is_got_at_a_time() -> None:
    async with running() as rig:
        queue = await rig.queue()
        assert await queue.get() is None
        await rig.publish(b"a", b"b")
        first, second = await queue.get(), await queue.get()
        assert first is not None and second is not None
        assert (first.value, second.value) == (b"a", b"b")
        assert await queue.get() is None
        queue.release([first])
        again = await queue.get()
        assert again is first


async def test_what_is_acknowledged_does_not_come_back_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await rig.queue()
        await rig.publish(*[str(number).encode() for number in range(10)])
        taker = Taker(credit=5)
        queue.subscribe(taker)
        await taker.has(5)
        queue.ack([taker.taken[0], taker.taken[3]])
    async with running(tmp_path) as rig:
        queue = rig.found("q")
        assert queue.message_count == 8
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(8)
        assert taker.values == [str(number).encode() for number in (1, 2, 4, 5, 6, 7, 8, 9)]
        assert [message.redelivered for message in taker.taken] == [True] * 3 + [False] * 5


async def test_exclusive_consumers_are_alone() -> None:
    async with running() as rig:
        queue = await rig.queue()
        queue.subscribe(Taker(), exclusive=True)
        with pytest.raises(InUse):
            queue.subscribe(Taker())
        other = await rig.queue("other")
        other.subscribe(Taker())
        with pytest.raises(InUse):
            other.subscribe(Taker(), exclusive=True)


async def test_the_single_active_consumer_gets_everything_until_it_leaves() -> None:
    async with running() as rig:
        queue = await rig.queue(single_active=True)
        first, second = Taker(), Taker()
        queue.subscribe(first)
        queue.subscribe(second, priority=5)
        await rig.publish(b"a", b"b")
        await first.has(2)
        queue.unsubscribe(first)
        queue.release(first.taken)
        await second.has(2)
        assert second.values == [b"a", b"b"]


async def test_consumers_of_higher_priority_come_first() -> None:
    async with running() as rig:
        queue = await rig.queue()
        low, high = Taker(), Taker(credit=2)
        queue.subscribe(low)
        queue.subscribe(high, priority=1)
        await rig.publish(b"a", b"b", b"c")
        await low.has(1)
        assert high.values == [b"a", b"b"]
        assert low.values == [b"c"]


async def test_messages_of_higher_priority_come_first() -> None:
    async with running() as rig:
        queue = await rig.queue(max_priority=5)
        for priority in (0, 3, 9, 1):
            await rig.publish(str(priority).encode(), priority=priority)
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(4)
        assert taker.values == [b"9", b"3", b"1", b"0"]


async def test_of_one_key_one_is_in_flight() -> None:
    async with running() as rig:
        await rig.exchange("x")
        queue = await rig.queue(ordered_by_key=True)
        await rig.bind("x", "q")
        for key, value in ((b"a", b"1"), (b"a", b"2"), (b"b", b"3"), (b"a", b"4")):
            await rig.publish(value, key=key, exchange="x")
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(2)
        await settle_turns()
        assert taker.values == [b"1", b"3"]
        queue.ack(taker.taken[:1])
        await taker.has(3)
        queue.release(taker.taken[2:3])
        await taker.has(4)
        assert taker.values == [b"1", b"3", b"2", b"2"]
        queue.ack(taker.taken[3:4])
        await taker.has(5)
        assert taker.values[4] == b"4"


async def test_a_message_for_many_queues_is_stored_once() -> None:
    async with running() as rig:
        await rig.exchange("x")
        for number in range(10):
            await rig.queue(f"q{number}")
            await rig.bind("x", f"q{number}")
        await rig.publish(b"a" * 1000, b"b" * 1000, exchange="x")
        topic = rig.broker.topic("x")
        assert rig.broker.bounds(topic, 0).end == 2
        for number in range(10):
            queue = rig.found(f"q{number}")
            assert queue.message_count == 2
            assert rig.broker._storage.size(queue.lanes[0].log) < 300
            message = await queue.get()
            assert message is not None and message.value == b"a" * 1000


async def test_messages_routed_by_key() -> None:
    async with running() as rig:
        await rig.exchange("x", ExchangeKind.DIRECT)
        red, blue = await rig.queue("red"), await rig.queue("blue")
        await rig.bind("x", "red", b"red")
        await rig.bind("x", "blue", b"blue")
        for key in (b"red", b"blue", b"green", b"red"):
            await rig.publish(key, key=key, exchange="x")
        assert (red.message_count, blue.message_count) == (2, 1)
        assert rig.broker.bounds(rig.broker.topic("x"), 0).end == 4, (
            "what no queue wants is in the stream all the same"
        )


async def test_purging_leaves_what_is_leased() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(*[b"x"] * 10)
        message = await queue.get()
        assert message is not None
        assert queue.purge() == 9
        assert queue.message_count == 0
        queue.release([message])
        assert queue.message_count == 1
        assert await queue.get() is message


async def test_a_queue_that_nobody_reads_is_not_in_memory() -> None:
    async with running() as rig:
        queue = await rig.queue()
        for _ in range(50):
            await rig.publish(*[b"x" * 100] * 100)
        taker = Taker(credit=1)
        queue.subscribe(taker)
        await taker.has(1)
        await settle_turns(100)
        assert len(queue.lanes[0].window) <= 1500
        assert queue.message_count == 4999


async def test_auto_delete_goes_with_the_last_consumer() -> None:
    async with running() as rig:
        queue = await rig.queue(auto_delete=True)
        taker = Taker()
        queue.subscribe(taker)
        queue.unsubscribe(taker)
        async with asyncio.timeout(30):
            while "q" in rig.namespace.queues:
                await asyncio.sleep(0.01)


async def test_deleting_a_queue_tells_its_consumers() -> None:
    async with running() as rig:
        queue = await rig.queue()
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(b"a")
        await taker.has(1)
        assert await rig.namespace.delete_queue("q", SESSION) == 0
        assert taker.gone
        queue.ack(taker.taken)
        queue.release(taker.taken)
