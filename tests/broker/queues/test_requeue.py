"""Very many messages that come back at once: a part in each turn of the event loop, and in their order."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.requeue import AT_ONCE
from tests.broker.queues.rig import Rig, Taker, running

COUNT = 3 * AT_ONCE + 10


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def held(rig: Rig) -> tuple[Queue, list[Message]]:
    """A queue, and all of its messages with a consumer that has left."""
    queue = await rig.queue()
    await rig.publish(*numbers(COUNT))
    taker = Taker()
    queue.subscribe(taker)
    await taker.has(COUNT)
    queue.unsubscribe(taker)
    return queue, taker.taken


async def every(queue: Queue) -> AsyncIterator[Message]:
    while (message := await queue.get()) is not None:
        yield message


def leased(queue: Queue) -> int:
    [lane] = queue.lanes
    return len(lane.leases.holders)


async def test_they_come_back_a_part_at_a_time() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.release(messages)
        parts = []
        before = COUNT
        while leased(queue):
            parts.append(before - leased(queue))
            before = leased(queue)
            await asyncio.sleep(0)
        assert max(parts) == AT_ONCE
        await queue.dispatcher.requeue.done()
        assert not queue.dispatcher.requeue


async def test_few_come_back_at_once() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.release(messages[:AT_ONCE])
        assert leased(queue) == COUNT - AT_ONCE
        assert queue.dispatcher.requeue.task is None


async def test_they_count_as_ready_from_the_start() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.release(messages)
        assert leased(queue) > 0
        assert (queue.message_count, queue.leased_count) == (COUNT, 0)
        await queue.dispatcher.requeue.done()
        assert (queue.message_count, queue.leased_count) == (COUNT, 0)


async def test_nothing_overtakes_them() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        await rig.publish(b"later")
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(1)
        queue.release([*taker.taken])
        queue.release(messages)
        await taker.has(1 + COUNT + 1)
        assert taker.values == [b"later", *numbers(COUNT), b"later"]
        assert all(message.redelivered for message in taker.taken[1:])


async def test_the_last_come_back_first_and_still_in_order() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.release(messages[AT_ONCE:])
        queue.release(messages[:AT_ONCE])
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(COUNT)
        assert taker.values == numbers(COUNT)


async def test_who_asks_for_one_gets_the_first() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.release(messages[::-1])
        first = await queue.get()
        assert first is not None
        assert first.value == b"0"


async def test_a_purge_takes_them_too() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.release(messages)
        assert queue.purge() == COUNT
        assert await queue.get() is None
        assert (queue.message_count, queue.leased_count) == (0, 0)


async def test_a_queue_that_is_deleted_meanwhile_takes_nothing_back() -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.release(messages)
        await rig.namespace.delete_queue("q", object())
        await queue.dispatcher.requeue.done()
        assert queue.leased_count == 0


async def test_the_oldest_of_them_go_where_there_are_too_many() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=COUNT)
        await rig.publish(*numbers(COUNT))
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(COUNT)
        queue.unsubscribe(taker)
        queue.release(taker.taken[::-1])
        await rig.publish(b"one more")
        await queue.dispatcher.requeue.done()
        first = await queue.get()
        assert first is not None
        assert first.value == b"1"
        assert queue.message_count == COUNT - 1


async def test_what_is_too_much_is_counted_when_all_are_back() -> None:
    """Those that come back are too often delivered, and go by themselves: nothing else is to go."""
    async with running() as rig:
        queue = await rig.queue(max_length=AT_ONCE, delivery_limit=1)
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(*numbers(COUNT))
        await taker.has(COUNT)
        for message in taker.taken:
            message.lane.progress.came_back(message.position)
        queue.unsubscribe(taker)
        await rig.publish(*numbers(AT_ONCE - 10))
        queue.release(taker.taken)
        await rig.publish(b"one more")
        await queue.dispatcher.requeue.done()
        while queue.dispatcher.overflow.task is not None:
            await asyncio.wait([queue.dispatcher.overflow.task])
        assert queue.message_count == AT_ONCE - 9


async def test_a_part_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as rig:
        queue, messages = await held(rig)
        queue.dispatcher.requeue._retry_seconds = 0.001
        requeued = queue.dispatcher.requeued
        failures = iter([None] * AT_ONCE + [ValueError("once")])

        def failing(message: Message) -> None:
            requeued(message)
            error = next(failures, None)
            if error is not None:
                raise error

        monkeypatch.setattr(queue.dispatcher, "requeued", failing)
        queue.release(messages)
        while queue.dispatcher.requeue:
            await asyncio.sleep(0.001)
        await queue.dispatcher.requeue.done()
        assert [message.value async for message in every(queue)] == numbers(COUNT)
