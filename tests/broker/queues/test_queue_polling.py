"""Pulling with a wait, under leases that end."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock
from tests.broker.queues.rig import running


async def test_a_poll_takes_what_is_there() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a", b"b", b"c")
        taken = await queue.poll(2, 5, lease_seconds=30)
        assert [message.value for message in taken] == [b"a", b"b"]
        assert queue.message_count == 1


async def test_a_poll_waits_for_the_first_message() -> None:
    async with running() as rig:
        queue = await rig.queue()
        polling = asyncio.create_task(queue.poll(10, 30, lease_seconds=30))
        await asyncio.sleep(0.01)
        assert not polling.done()
        await rig.publish(b"a")
        async with asyncio.timeout(30):
            assert [message.value for message in await polling] == [b"a"]


async def test_a_poll_gives_up() -> None:
    async with running() as rig:
        queue = await rig.queue()
        assert await queue.poll(10, 0.02, lease_seconds=30) == []


async def test_a_poll_that_is_cancelled_right_after_it_was_woken_ends() -> None:
    async with running() as rig:
        queue = await rig.queue()
        pulling = queue.dispatcher.pulling
        for turns in range(4):
            waiting = asyncio.create_task(pulling.wait(30))
            await asyncio.sleep(0)
            pulling.wake()
            for _ in range(turns):
                await asyncio.sleep(0)
            if waiting.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await waiting


async def test_what_comes_back_wakes_a_poll() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a")
        [first] = await queue.poll(1, 1, lease_seconds=30)
        polling = asyncio.create_task(queue.poll(1, 30, lease_seconds=30))
        await asyncio.sleep(0.01)
        queue.release([first], delay_ms=5)
        async with asyncio.timeout(30):
            [again] = await polling
        assert (again.value, again.redelivered, again.deliveries) == (b"a", True, 1)


async def test_a_lease_ends_and_its_holder_is_late() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.publish(b"a", b"b")
        first, second = await queue.poll(2, 1, lease_seconds=10)
        clock.advance(6)
        queue.extend([second], 10)
        clock.advance(6)
        queue.dispatcher.pulling.end_overdue()
        assert queue.leased_count == 1, "the one that was extended"
        [again] = await queue.poll(2, 1, lease_seconds=10)
        assert (again.value, again.deliveries) == (b"a", 1)
        queue.ack([first])
        assert queue.leased_count == 2, "the late one settles nothing"
        queue.ack([again, second])
        assert (queue.leased_count, queue.message_count) == (0, 0)


async def test_an_extension_of_what_is_settled_is_nothing() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a")
        [message] = await queue.poll(1, 1, lease_seconds=10)
        queue.ack([message])
        queue.extend([message], 0.001)
        assert (queue.leased_count, queue.message_count) == (0, 0)
        assert await queue.poll(1, 0.05, lease_seconds=10) == [], "no lease has ended"
